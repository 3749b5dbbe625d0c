"""python -m benchmarks.lab_report [--only main,sigma] [--results DIR] [--pictures docs/lab]

What `fastfill lab run` found, as sections of RESULTS.md: one for each experiment and data set,
and one for the speed of training and of embedding where a GPU has measured it. Tables and figures
go to the docs. With `--only` the other sections keep their dates.
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
EMBEDDING = DATA / "lab_embedding_speed.json"  # written by benchmarks.lab_embedding_speed


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


def embedding_speed(measured: dict[str, Any]) -> str:
    """Images per second of each form of a network, and what the time of the fastest goes to."""
    rows = [
        [run["backbone"], run["form"], str(run["batch"]), f"{run['images_per_s']:,}",
         f"{run['difference']:.1e}"]
        for run in measured.values() if isinstance(run, dict) and "backbone" in run
    ]  # fmt: skip
    heads = ["network", "form", "batch", "images/s", "difference from the network in float32"]
    largest = sorted(measured["profile"].items(), key=lambda item: -item[1])[:6]
    shares = ", ".join(f"`{name[:60]}` {100 * share:.0f} %" for name, share in largest)
    return f"{table(heads, rows)}\n\nGPU time of the fastest ResNet-50: {shares}."


def device_of(result: dict[str, Any]) -> str | None:
    """The machine that trained the models, if it was another than this one."""
    devices = {model.get("device") for model in result["models"].values()} - {None, "cpu"}
    return ", ".join(sorted(devices)) or None


def last_day(results: Sequence[dict[str, Any]]) -> str:
    """When the last seed was measured."""
    return max(str(result["day"]) for result in results)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=DATA / "lab")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "lab")
    parser.add_argument("--only", help="experiments and 'speed', with commas between")
    given = parser.parse_args(arguments)
    only = None if given.only is None else set(given.only.split(","))
    runs = read_results(given.results)
    write_report(runs, given.pictures)
    for one in runs:
        if only is not None and one.experiment.name not in only:
            continue
        title = f"Laboratory: {one.experiment.name} on {one.data}"
        first = one.per_seed[0]
        commands = "\n$ ".join(one.commands)
        text = f"{LEGEND}\n\n{body(one)}"
        write_section(title, commands, text, device_of(first), last_day(one.per_seed))
    if only is None or "speed" in only:
        write_speeds()


def write_speeds() -> None:
    """What a GPU measured of training and of embedding."""
    if SPEED.is_file():
        measured = json.loads(SPEED.read_text())
        command = "PYTHONPATH=src python3 -m benchmarks.lab_training_speed --data cifar100=DIR"
        where = f"{measured['device']}, torch {measured['torch']}"
        write_section(
            "Laboratory: training speed", command, speed(measured), where, measured["day"]
        )
    if EMBEDDING.is_file():
        measured = json.loads(EMBEDDING.read_text())
        command = "PYTHONPATH=src python3 -m benchmarks.lab_embedding_speed"
        where = f"{measured['device']}, torch {measured['torch']}"
        text = embedding_speed(measured)
        write_section("Laboratory: embedding speed", command, text, where, measured["day"])


if __name__ == "__main__":
    main()
