"""The how-to about the paper and the page on limits: commands and links that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastfill.lab.claims import FAILS, HOLDS, PARTLY, judge_claims
from fastfill.lab.cli import lab
from fastfill.lab.data import DATASETS
from fastfill.lab.experiments import EXPERIMENTS
from fastfill.lab.results import read_results

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
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


def test_the_guide_counts_the_conclusions_as_they_are_judged() -> None:
    """How many of the paper's conclusions hold, in part or not, by the results that are kept."""
    verdicts = [
        claim.verdict
        for one in read_results(ROOT / "benchmarks" / "results" / "lab")
        if one.data == "cifar100" and one.experiment.source != "not in the paper"
        for claim in judge_claims(one)
        if not claim.paper.startswith("Not the paper's")
    ]
    held, partly, failed = (verdicts.count(kind) for kind in (HOLDS, PARTLY, FAILS))
    text = " ".join(GUIDE.read_text(encoding="utf-8").split())
    assert f"the paper's {len(verdicts)} conclusions" in text
    assert f"{held} hold here ({100 * held / len(verdicts):.0f} %" in text
    assert f"{partly} hold in part and {failed} do not hold" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files(page: Path) -> None:
    """Relative links exist."""
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
