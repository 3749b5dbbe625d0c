"""PYTHONPATH=src python3 -m fastfill.lab prepare all --data cifar100=DIR --minutes 9 --out OUT

The laboratory without the rest of the command line: for a machine that has torch, NumPy and
safetensors and nothing else. A call trains what is missing, the most important first, stops in
time, and goes on where it stopped when called again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastfill.errors import FastFillError

if TYPE_CHECKING:
    from fastfill.lab.driver import Laboratory
    from fastfill.lab.training import Report


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, do, and say in one line what is left to do."""
    given = _parser().parse_args(arguments)
    try:
        left = given.do(given)
    except FastFillError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print("Done." if left == 0 else f"{left} left: run the same command again.", flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m fastfill.lab", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    prepare = verbs.add_parser("prepare", help="train models and learn maps, no curves yet")
    prepare.set_defaults(do=_prepare)
    run = verbs.add_parser("run", help="run experiments, training what is missing")
    run.set_defaults(do=_run)
    unpack = verbs.add_parser("unpack", help="put parcels of another machine into the cache")
    unpack.set_defaults(do=_unpack)
    unpack.add_argument("parcels", nargs="+", type=Path)
    unpack.add_argument("--work", type=Path, default=Path(".lab"))
    for verb in (prepare, run):
        verb.add_argument("experiments", nargs="+", help="names, or 'all'")
        verb.add_argument("--data", required=True, help="NAME or NAME=DIR")
        verb.add_argument("--seeds", type=int, default=5)
        verb.add_argument("--first-seed", type=int, default=0, help="where other machines did some")
        verb.add_argument("--effort", type=float, default=1.0, help="share of the epochs")
        verb.add_argument("--map-epochs", type=int, help="of the maps, other than 80")
        verb.add_argument("--without", default="", help="'bct,ract': rows only in the main table")
        verb.add_argument("--minutes", type=float)
        verb.add_argument("--device")
        verb.add_argument("--work", type=Path, default=Path(".lab"), help="the cache")
        verb.add_argument("--out", type=Path, help="where parcels or results are put")
    return parser


def _laboratory(given: argparse.Namespace) -> Laboratory:
    from fastfill.lab.driver import Laboratory, Settings, portable

    settings = Settings(
        given.data, given.work, given.out or given.work / "results", given.device, given.effort,
        given.map_epochs, given.minutes, tuple(filter(None, given.without.split(","))),
        portable(["python3 -m fastfill.lab", *sys.argv[1:]]),
    )  # fmt: skip
    return Laboratory(settings, _lines)


def _say(line: str) -> None:
    print(line, flush=True)


def _prepare(given: argparse.Namespace) -> int:
    from fastfill.lab.parcels import pack

    laboratory = _laboratory(given)
    chosen = laboratory.experiments(given.experiments)
    seeds = range(given.first_seed, given.seeds)
    left = laboratory.prepare(chosen, seeds, _say)
    if given.out is not None:
        parcels = pack(laboratory.made(chosen, seeds), given.work, given.out)
        _say(f"Packed {', '.join(parcel.name for parcel in parcels) or 'nothing'}.")
    return left


def _run(given: argparse.Namespace) -> int:
    laboratory = _laboratory(given)
    chosen = laboratory.experiments(given.experiments)
    return len(laboratory.run(chosen, range(given.first_seed, given.seeds), _say))


def _unpack(given: argparse.Namespace) -> int:
    from fastfill.lab.parcels import unpack

    _say(f"{unpack(given.parcels, given.work)} files put into {given.work}.")
    return 0


def _lines(name: str) -> Report:
    """Progress for a log: a line every ten seconds."""
    last = [0.0]

    def report(epoch: int, epochs: int, loss: float, rate: float) -> None:
        if time.monotonic() - last[0] > 10 or epoch == epochs:
            last[0] = time.monotonic()
            print(f"{name}  {epoch}/{epochs}  loss {loss:.3f}  {rate:,.0f} images/s", flush=True)

    return report


if __name__ == "__main__":
    sys.exit(main())
