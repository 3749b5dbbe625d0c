"""The how-to about evaluation does what it says: its blocks are run from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_cli_curve import run

from fastfill.cli import align as _align  # noqa: F401  registers its commands

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "evaluate.md"
NUMBER = re.compile(r"\d+\.\d+")


def blocks() -> list[tuple[str, str]]:
    """(language, text) of the fenced blocks."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.M | re.S)


def alike(shown: str, printed: str) -> bool:
    """The same words; numbers within a point, since another processor rounds differently."""
    words = [NUMBER.sub("#", text).split() for text in (shown, printed)]
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=False)
    return words[0] == words[1] and all(abs(float(a) - float(b)) <= 1 for a, b in pairs)


def test_every_block_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python blocks share a namespace, commands succeed and print what the guide shows."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for language, text in blocks():
        if language == "python":
            exec(compile(text, str(GUIDE), "exec"), names)
            continue
        command, *shown = text.splitlines()
        result = run(command.removeprefix("$ fastfill "))
        assert result.exit_code == 0, f"{command}\n{result.stderr}"
        printed = [line for line in result.stderr.splitlines() if line.strip()]
        for expected, actual in zip(shown, printed, strict=False):
            assert alike(expected, actual), f"{command}\n{result.stderr}"
    assert {"report.html", "curve.svg", "timeline-map.svg", "served.png"} <= {
        path.name for path in (tmp_path / "report").iterdir()
    }


def test_the_guide_s_picture_and_its_command_exist() -> None:
    """Links of the guide lead to files."""
    links = re.findall(r"\]\(([^)]+)\)", GUIDE.read_text(encoding="utf-8"))
    assert [link for link in links if not (GUIDE.parent / link).exists()] == []
