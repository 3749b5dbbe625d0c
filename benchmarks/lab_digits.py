"""python -m benchmarks.lab_digits

The first command of the guide to the paper, as it is written there, in an empty folder and on the
CPU: how long it takes, and which conclusions of the paper it shows. Where others keep the machine
busy, the time of its processors says more than that on the clock.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.shared.sections import write_section
from fastfill.lab.claims import judge_claims
from fastfill.lab.results import ExperimentResults, read_results

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

COMMAND = "fastfill lab run main --data digits"
RESULTS = Path("benchmarks", "results", "lab")  # below the folder that it is run in


def timed(folder: Path) -> tuple[float, float, ExperimentResults]:
    """Seconds of the command on the clock and of its processors, and what it found."""
    arguments = COMMAND.split()[1:]
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "fastfill", *arguments],
        cwd=folder,
        check=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # nothing else was started
    return seconds, used.ru_utime + used.ru_stime, read_results(folder / RESULTS)[0]


def body(seconds: float, busy: float, found: ExperimentResults) -> str:
    """The time, and a sentence for each conclusion."""
    views = found.per_seed[0]["map"]["views"]
    claims = "\n".join(f"- {claim}" for claim in judge_claims(found))
    return (
        f"`{COMMAND}`: {seconds:.0f} s, {busy:.0f} s of a processor, for {len(found.seeds)} seeds "
        f"with {views} views of each image, from an empty folder to the last result.\n\n{claims}"
    )


def main() -> None:
    """Run it once."""
    with tempfile.TemporaryDirectory() as folder:
        text = body(*timed(Path(folder)))
    write_section("Laboratory: digits on a CPU", "python -m benchmarks.lab_digits", text)


if __name__ == "__main__":
    main()
