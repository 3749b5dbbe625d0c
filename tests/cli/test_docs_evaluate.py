"""The how-tos about evaluation do what they say: their blocks are run from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_cli_curve import run

from fastfill.cli import align as _align  # noqa: F401  registers its commands

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
GUIDE = HOW_TO / "evaluate.md"
DOCUMENT_SEARCH = HOW_TO / "evaluate-document-search.md"
NUMBER = re.compile(r"\d+\.\d+")


def blocks(guide: Path) -> list[tuple[str, str]]:
    """(language, text) of the fenced blocks."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", guide.read_text(encoding="utf-8"), re.M | re.S)


def alike(shown: str, printed: str) -> bool:
    """The same words; numbers within a point, since another processor rounds differently."""
    words = [NUMBER.sub("#", text).split() for text in (shown, printed)]
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=False)
    return words[0] == words[1] and all(abs(float(a) - float(b)) <= 1 for a, b in pairs)


def run_blocks(guide: Path) -> None:
    """Python blocks share a namespace, commands succeed and print what the guide shows."""
    names: dict[str, object] = {}
    for language, text in blocks(guide):
        if language == "python":
            exec(compile(text, str(guide), "exec"), names)
            continue
        command, *shown = text.splitlines()
        result = run(command.removeprefix("$ fastfill "))
        assert result.exit_code == 0, f"{command}\n{result.stderr}"
        printed = [line for line in result.output.splitlines() if line.strip()]
        for expected, actual in zip(shown, printed, strict=False):
            assert alike(expected, actual), f"{command}\n{result.stderr}"


def test_every_block_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands write the report that it describes."""
    monkeypatch.chdir(tmp_path)
    run_blocks(GUIDE)
    assert {"report.html", "curve.svg", "timeline-map.svg", "served.png"} <= {
        path.name for path in (tmp_path / "report").iterdir()
    }


def test_every_block_about_document_search_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a judged set to the curves of each way to serve."""
    monkeypatch.chdir(tmp_path)
    run_blocks(DOCUMENT_SEARCH)


@pytest.mark.parametrize("guide", [GUIDE, DOCUMENT_SEARCH], ids=lambda guide: guide.stem)
def test_pictures_and_pages_that_a_guide_links_exist(guide: Path) -> None:
    """Links of the guides lead to files."""
    links = re.findall(r"\]\(([^)]+)\)", guide.read_text(encoding="utf-8"))
    assert [link for link in links if not (HOW_TO / link).exists()] == []
