"""`fastfill lab`: run, list, report; and the same without click for a bare machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fastfill.cli import lab as lab_commands
from fastfill.errors import InputError
from fastfill.lab.__main__ import main as bare


def call(*arguments: str) -> str:
    """Run a command and return what it printed for programs."""
    found = CliRunner().invoke(lab_commands.lab, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def test_a_run_writes_one_file_per_seed_and_a_report_shows_them(tmp_path: Path) -> None:
    """From the data set's name to a page, in two commands."""
    places = ["--work", str(tmp_path / "work"), "--results", str(tmp_path / "results")]
    quick = ["--effort", "0.1", "--map-epochs", "1", "--seeds", "1", "--device", "cpu"]
    found = json.loads(call("run", "flips", "--data", "digits", *places, *quick, "--json"))
    assert found["left"] == 0
    assert [Path(path).is_file() for path in found["results"]] == [True]
    shown = json.loads(
        call("report", "--results", str(tmp_path / "results"), "-o", str(tmp_path / "r"), "--json")
    )
    assert shown["experiments"][0]["experiment"] == "flips"
    assert shown["experiments"][0]["claims"][0]["verdict"]
    assert (tmp_path / "r" / "digits.md").is_file()


def test_no_path_of_the_machine_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result is kept with its command, in which absolute paths are only DIR."""
    given = ["lab", "run", "flips", "--data", "digits", "--work", str(tmp_path / "work"),
             f"--results={tmp_path / 'results'}", "--effort", "0.1", "--map-epochs", "1",
             "--seeds", "1", "--device", "cpu"]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["fastfill", *given])
    call(*given[1:])
    (result,) = (tmp_path / "results").rglob("*.json")
    text = result.read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    assert "--work DIR --results=DIR --effort 0.1" in json.loads(text)["command"]


def test_list_names_every_experiment_and_what_was_run(digits: Path, tmp_path: Path) -> None:
    """With and without results."""
    listed = json.loads(call("list", "--results", str(digits), "--json"))["experiments"]
    assert listed[0]["name"] == "main"
    assert listed[0]["seeds"] == {"digits": [0, 1]}
    empty = json.loads(call("list", "--results", str(tmp_path), "--json"))["experiments"]
    assert [one["seeds"] for one in empty] == [{}] * len(listed)


def test_a_report_on_data_that_was_not_run_is_refused(digits: Path) -> None:
    """The message names the data sets that there are results of."""
    with pytest.raises(InputError, match="no results of 'cifar100', only of digits"):
        call("report", "--results", str(digits), "--data", "cifar100")


def test_an_unknown_experiment_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    """The message lists the experiments."""
    with pytest.raises(InputError, match="use one of main"):
        call("run", "mian", "--data", "digits", "--work", str(tmp_path))


def test_a_bare_machine_prepares_and_packs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m fastfill.lab prepare` trains, packs, and says what is left."""
    work = ["--work", str(tmp_path / "work")]
    given = ["prepare", "flips", "--data", "digits", "--seeds", "1", "--effort", "0.1", *work,
             "--map-epochs", "1", "--device", "cpu", "--out", str(tmp_path / "out")]  # fmt: skip
    assert bare([*given, "--minutes", "0"]) == 0
    assert "1 left" in capsys.readouterr().out
    assert bare(given) == 0
    said = capsys.readouterr().out
    assert "Packed parcel-0000.npz" in said
    assert said.rstrip().endswith("Done.")
    parcel = str(tmp_path / "out" / "parcel-0000.npz")
    assert bare(["unpack", parcel, "--work", str(tmp_path / "other")]) == 0
    assert "4 files" in capsys.readouterr().out


def test_a_bare_machine_says_errors_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 and the sentence on stderr."""
    assert bare(["run", "main", "--data", "cifar11"]) == 1
    assert "Error: Unknown data set 'cifar11'" in capsys.readouterr().err
