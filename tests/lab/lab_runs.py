"""A laboratory that trains as little as possible."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastfill.lab.experiments import choose_experiments
from fastfill.lab.runner import ExperimentRunner
from fastfill.lab.settings import RunSettings
from fastfill.lab.training import Report


def quick(
    work: Path, report: Callable[[str], Report] | None = None, seeds: int = 1, **options: Any
) -> ExperimentRunner:
    """Digits, two epochs per model, one per map, two views of each image."""
    settings = RunSettings(
        "digits", seeds, work=work, effort=0.1, map_epochs=1, views=2, device="cpu"
    )
    return ExperimentRunner(replace(settings, **options), report=report)


def run_all(runner: ExperimentRunner, *names: str) -> list[tuple[str, int]]:
    """Run experiments without a word, with results beside the cache; what is left."""
    experiments = choose_experiments(names, "digits")
    return runner.run(experiments, runner.settings.work / "results", lambda line: None)


def result(work: Path, name: str, seed: int = 0) -> dict[str, Any]:
    """A result without what differs from run to run: speeds."""
    measured: dict[str, Any] = json.loads(
        (work / "results" / "digits" / f"{name}-seed{seed}.json").read_text()
    )
    for model in measured["models"].values():
        del model["images_per_s"], model["seconds"]
    del measured["seconds"]
    return measured
