"""`fastfill lab`: run, prepare, list, report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import fastfill
from fastfill.errors import InputError
from fastfill.lab.cli import lab
from fastfill.lab.experiments import EXPERIMENTS

SOURCE = Path(fastfill.__file__).parents[1]


def call(*arguments: str) -> str:
    """Run a command and return what it printed for programs."""
    found = CliRunner().invoke(lab, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def test_a_run_writes_one_file_per_seed_and_a_report_shows_them(tmp_path: Path) -> None:
    """From the data set's name to a page, in two commands."""
    places = ["--work", str(tmp_path / "work"), "--results", str(tmp_path / "results")]
    quick = ["--effort", "0.1", "--map-epochs", "1", "--seeds", "1", "--device", "cpu",
             "--views", "2"]  # fmt: skip
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


def test_prepare_trains_and_says_what_is_left(tmp_path: Path) -> None:
    """Models and maps are made, no curve and no result; without time all seeds are left."""
    given = ["prepare", "flips", "--data", "digits", "--seeds", "1", "--effort", "0.1", "--json",
             "--map-epochs", "1", "--device", "cpu", "--work", str(tmp_path / "work")]  # fmt: skip
    assert json.loads(call(*given, "--minutes", "0"))["left"] == 1
    assert json.loads(call(*given))["left"] == 0
    made = sorted(path.name for path in (tmp_path / "work").iterdir())
    assert made == ["maps", "models"]


def test_a_log_gets_a_line_for_each_model(tmp_path: Path) -> None:
    """Where there is no terminal for a bar, the last epoch of a training is written down."""
    given = ["prepare", "flips", "--data", "digits", "--seeds", "1", "--effort", "0.1",
             "--map-epochs", "1", "--device", "cpu", "--work", str(tmp_path)]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "fastfill", "lab", *given],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "tiny-0to5 seed 0  2/2  loss" in done.stderr
    assert done.stderr.rstrip().endswith("Done.")


def test_an_unknown_row_to_leave_out_is_refused() -> None:
    """Only BCT and RACT can be left out."""
    given = ["run", "main", "--data", "digits", "--without", "fct,bct"]
    done = CliRunner().invoke(lab, given)
    assert done.exit_code == 2
    assert "fct: use bct or ract" in done.stderr


def test_an_unknown_data_set_is_refused() -> None:
    """The message lists the data sets."""
    with pytest.raises(InputError, match="Unknown data set 'cifar11'"):
        call("run", "main", "--data", "cifar11")


@pytest.mark.parametrize("columns", [80, 60])
def test_the_list_fits_a_narrow_terminal(columns: int) -> None:
    """No line is longer than the terminal, and every name is on a line of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "fastfill", "lab", "list"], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": str(columns)}, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(EXPERIMENTS)


def test_the_command_line_loads_the_lab_on_first_use() -> None:
    """`fastfill --help` lists `lab` without importing it; a command of the lab imports it."""
    code = """
import sys
from click.testing import CliRunner
from fastfill.cli.main import commands, load_commands
load_commands()
print("lab " in CliRunner().invoke(commands, ["--help"]).stdout)
print("fastfill.lab" in sys.modules)
print("prepare" in CliRunner().invoke(commands, ["lab", "--help"]).stdout)
print("fastfill.lab.cli" in sys.modules, "torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert done.stdout.split() == ["True", "False", "True", "True", "False"]
