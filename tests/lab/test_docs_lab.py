"""The how-to about the paper and the page on limits: commands and links that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastfill.lab.cli import lab
from fastfill.lab.data import DATASETS
from fastfill.lab.experiments import EXPERIMENTS

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = DOCS / "how-to" / "reproduce-the-paper.md"
PAGES = (GUIDE, DOCS / "explanation" / "limitations-and-ethics.md")


def commands(start: str) -> list[list[str]]:
    """The words behind `start` of every command of the guide."""
    lines = re.findall(r"^\$ (.*)$", GUIDE.read_text(encoding="utf-8"), re.M)
    return [line.split(start)[1].split() for line in lines if start in line]


def test_every_lab_command_of_the_guide_is_accepted() -> None:
    """Names, arguments and options are those of the command line."""
    shown = commands("fastfill lab ")
    assert len(shown) >= 4
    for verb, *arguments in shown:
        lab.commands[verb].make_context(verb, arguments)


def test_the_guide_names_every_experiment_and_data_set() -> None:
    """Nothing that can be run is left out of its tables."""
    text = GUIDE.read_text(encoding="utf-8")
    for name in [*EXPERIMENTS, *DATASETS, "digits"]:
        assert f"| `{name}` |" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files(page: Path) -> None:
    """Relative links exist."""
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
