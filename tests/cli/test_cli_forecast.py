"""`fastfill forecast`: files in, a curve out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fastfill.cli.forecast import QUALITIES
from fastfill.cli.main import commands
from fastfill.evaluate import Forecast


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A small gallery under both models, 80 of its items as pairs."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 240)
    new = rng.normal(size=(4, 6))[labels] * 2 + rng.normal(size=(240, 6))
    old = new @ rng.normal(size=(6, 5))
    for name, array in {
        "old": old[:80], "new": new[:80], "labels": labels[:80],
        "rest": old[80:], "rest-labels": labels[80:],
    }.items():  # fmt: skip
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def test_a_forecast_is_printed_for_people_and_machines(files: Path) -> None:
    """Points and fractions go to stderr, one object to stdout."""
    done = CliRunner().invoke(
        commands,
        ["forecast", str(files / "old.npy"), str(files / "new.npy"), "--items", "240",
         "--metric", "map", "--labels", str(files / "labels.npy"),
         "--gallery", str(files / "rest.npy"), "--gallery-labels", str(files / "rest-labels.npy"),
         "--method", "ridge", "--json"],
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert Forecast.from_json(found).items == 240
    assert set(found["reached"]) == {f"{share:.0%}" for share in QUALITIES}
    assert set(found["reached"]["95%"]) == {"low", "middle", "high"}
    assert "95% of the new model at" in done.stderr


def test_without_labels_agreement_is_forecast(files: Path) -> None:
    """Two files and the size of the gallery are enough."""
    done = CliRunner().invoke(
        commands,
        ["forecast", str(files / "old.npy"), str(files / "new.npy"), "--items", "240",
         "--method", "ridge"],
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "100% backfilled: agreement@10 1.000" in done.stderr
