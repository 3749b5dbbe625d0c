"""`fastfill forecast`: files in, a curve out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fastfill.cli.forecast import QUALITIES
from fastfill.cli.main import commands
from fastfill.forecast import Forecast


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
        "asked": new[200:] + 0.1, "asked-labels": labels[200:], "asked-old": old[200:],
    }.items():  # fmt: skip
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def test_a_forecast_is_printed_for_people_and_machines(files: Path) -> None:
    """With --json points and fractions go to stderr, one object to stdout; labels are for mAP."""
    done = CliRunner().invoke(
        commands,
        ["forecast", str(files / "old.npy"), str(files / "new.npy"), "--items", "240",
         "--labels", str(files / "labels.npy"),
         "--gallery", str(files / "rest.npy"), "--gallery-labels", str(files / "rest-labels.npy"),
         "--method", "ridge", "--json"],
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert Forecast.from_json(found).items == 240
    assert set(found["reached"]) == {f"{share:.0%}" for share in QUALITIES}
    assert set(found["reached"]["95%"]) == {"low", "middle", "high"}
    assert "95% of the new model at" in done.stderr
    assert "backfilled: map " in done.stderr


def test_without_labels_agreement_is_forecast(files: Path) -> None:
    """Two files and the size of the gallery are enough."""
    done = CliRunner().invoke(
        commands,
        ["forecast", str(files / "old.npy"), str(files / "new.npy"), "--items", "240",
         "--method", "ridge"],
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "100% backfilled: agreement@10 1.000" in done.stdout


def _labelled(files: Path, *more: str) -> list[str]:
    return ["forecast", str(files / "old.npy"), str(files / "new.npy"), "--items", "240",
            "--metric", "map", "--labels", str(files / "labels.npy"), "--method", "ridge",
            "--gallery", str(files / "rest.npy"), "--gallery-labels",
            str(files / "rest-labels.npy"), "--json", *more]  # fmt: skip


def test_a_forecast_that_cannot_be_trusted_says_so(files: Path) -> None:
    """New vectors that have nothing to do with the old ones cannot be told from them."""
    np.save(files / "new.npy", np.random.default_rng(1).normal(size=(80, 6)))
    command = ["forecast", str(files / "old.npy"), str(files / "new.npy"), "--items", "240"]
    done = CliRunner().invoke(commands, [*command, "--method", "ridge", "--json"])
    assert done.exit_code == 0, done.stderr
    assert "This holds for queries that are like the items; where people" in done.stderr
    assert "Not to be trusted: The map explains" in done.stderr
    assert json.loads(done.stdout)["trusted"] is False


def test_real_queries_take_the_place_of_the_pairs(files: Path) -> None:
    """The start of the curve is what they find, and no longer what the pairs find."""
    asked = ["--queries", str(files / "asked.npy"), "--query-labels",
             str(files / "asked-labels.npy")]  # fmt: skip
    starts = []
    for more in ([], asked):
        done = CliRunner().invoke(commands, _labelled(files, *more))
        assert done.exit_code == 0, done.stderr
        starts.append(json.loads(done.stdout)["values"][0])
    assert starts[0] != starts[1]


def test_agreement_needs_no_labels_of_the_queries(files: Path) -> None:
    """A file of vectors is enough."""
    done = CliRunner().invoke(
        commands,
        ["forecast", str(files / "old.npy"), str(files / "new.npy"), "--items", "240",
         "--method", "ridge", "--queries", str(files / "asked.npy")],
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "100% backfilled: agreement@10 1.000" in done.stdout


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--queries", "asked.npy"], "the queries have no labels"),
        (["--queries", "rest.npy"], "Embed the queries by the new model"),
        (["--queries", "asked.npy", "--query-labels", "labels.npy"], "80 entries for 40 vectors"),
        (["--query-labels", "labels.npy"], "--query-labels needs --queries"),
    ],
)
def test_queries_that_cannot_be_used_are_named(
    files: Path, more: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence says what is wrong with them."""
    monkeypatch.chdir(files)
    done = CliRunner().invoke(commands, _labelled(files, *more))
    assert done.exit_code != 0
    assert message in " ".join((done.stderr + str(done.exception)).split())


def test_what_both_models_answer_is_forecast(files: Path) -> None:
    """Queries of both models and the whole gallery are enough; one side of them is not."""
    given = ["forecast", str(files / "old.npy"), str(files / "new.npy"), "--items", "240",
             "--method", "ridge", "--gallery", str(files / "rest.npy"), "--serving", "both",
             "--queries", str(files / "asked.npy")]  # fmt: skip
    done = CliRunner().invoke(
        commands, [*given, "--query-old", str(files / "asked-old.npy"), "--json"]
    )
    assert done.exit_code == 0, done.stderr
    assert Forecast.from_json(json.loads(done.stdout)).serving == "both"
    assert "queries like those given, answered by both models." in done.stderr
    refused = CliRunner().invoke(commands, given)
    assert refused.exit_code == 2
    assert "--serving both needs --queries and --query-old" in refused.stderr
