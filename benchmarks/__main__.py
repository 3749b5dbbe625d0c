"""python -m benchmarks [--list] [--only NAME] [--skip NAME]

Runs every benchmark that can run here, one after the other, each in a process of its own; they
write their sections of RESULTS.md. `--list` shows all of them, what each needs, and why one is
left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.shared.discovery import Benchmark, find_benchmarks


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all that can run here, even if one fails; the exit code says whether one did."""
    given = parse(arguments)
    chosen = [one for one in find_benchmarks() if not given.only or one.name in given.only]
    chosen = [one for one in chosen if one.name not in given.skip]
    if given.list:
        print("\n".join(map(describe, chosen)))
        return 0
    failed = []
    for benchmark in chosen:
        obstacle = benchmark.obstacle()
        if obstacle is not None:
            print(f"{benchmark.name} is left out: {obstacle}.", file=sys.stderr)
        succeeded = benchmark.name not in given.only if obstacle else run(benchmark)
        failed += [] if succeeded else [benchmark.name]
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, with the names of the benchmarks checked."""
    names = [benchmark.name for benchmark in find_benchmarks()]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show what there is, and run nothing")
    for option, about in (("--only", "run this one, and others so named"), ("--skip", "not this")):
        parser.add_argument(
            option, action="append", choices=names, metavar="NAME", default=[], help=about
        )
    return parser.parse_args(arguments)


def describe(benchmark: Benchmark) -> str:
    """Name, whether it runs here, and what it needs."""
    obstacle = benchmark.obstacle()
    state = "runs here" if obstacle is None else f"left out: {obstacle}"
    needs = f"\n{'':20} needs {benchmark.needs}" if benchmark.needs else ""
    return f"{benchmark.name:20} {state}{needs}"


def run(benchmark: Benchmark) -> bool:
    """Run one in a process of its own; whether it succeeded."""
    command = [sys.executable, "-m", f"benchmarks.{benchmark.name}"]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
