"""A laboratory that trains as little as possible."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastfill.lab.driver import Laboratory, Settings
from fastfill.lab.training import Report


def quick(work: Path, report: Callable[[str], Report] | None = None, **options: Any) -> Laboratory:
    """Digits, two epochs per model, one per map."""
    given: dict[str, Any] = {"effort": 0.1, "map_epochs": 1, "device": "cpu", **options}
    return Laboratory(Settings("digits", work, work / "results", **given), report)


def result(work: Path, name: str, seed: int = 0) -> dict[str, Any]:
    """A result without what differs from run to run: speeds."""
    found: dict[str, Any] = json.loads(
        (work / "results" / "digits" / f"{name}-seed{seed}.json").read_text()
    )
    for model in found["models"].values():
        del model["images_per_s"]
    return found
