"""python -m benchmarks.lab_report [--results benchmarks/results/lab] [--pictures docs/lab]

What `fastfill lab run` found, as sections of RESULTS.md: one for each experiment and data set,
and one for the training speed where a GPU has measured it. Tables and figures go to the docs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.shared.paths import DATA, ROOT
from benchmarks.shared.sections import write_section
from fastfill.lab.markdown_report import LEGEND, body, write_report
from fastfill.lab.results import read_results
from fastfill.lab.tables import table

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

SPEED = DATA / "lab_training_speed.json"  # written by benchmarks.lab_training_speed


def speed(measured: dict[str, Any]) -> str:
    """Images per second of every setting, and what the time goes to."""
    runs = [run for run in measured.values() if isinstance(run, dict) and "backbone" in run]
    rows = [
        [run["backbone"], str(run["batch"]), "yes" if run["fused"] else "no",
         "yes" if run["products"] else "no", f"{run['images_per_s']:,}", f"{run['memory_GiB']} GiB"]
        for run in runs
    ]  # fmt: skip
    heads = ["network", "batch", "fused norm", "1×1 as products", "images/s", "GPU memory"]
    parts = [table(heads, rows)]
    for run in runs:
        shares = run.get("profile", {}).get("families", {})
        if shares:
            listed = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
            parts.append(f"GPU time of {run['backbone']} at batch {run['batch']}: {listed}.")
    error = measured["norm_error"]
    parts.append(f"Largest relative error of the fused norm against PyTorch's: {error:.1e}.")
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=DATA / "lab")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "lab")
    given = parser.parse_args(arguments)
    runs = read_results(given.results)
    write_report(runs, given.pictures)
    for one in runs:
        title = f"Laboratory: {one.experiment.name} on {one.data}"
        write_section(title, one.per_seed[0]["command"], f"{LEGEND}\n\n{body(one)}")
    if SPEED.is_file():
        measured = json.loads(SPEED.read_text())
        command = "PYTHONPATH=src python3 -m benchmarks.lab_training_speed --data cifar100=DIR"
        where = f"{measured['device']}, torch {measured['torch']}"
        write_section("Laboratory: training speed", command, speed(measured), where)


if __name__ == "__main__":
    main()
