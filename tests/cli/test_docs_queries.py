"""The how-to about queries does what it says: a migration that is served by what measured best."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from test_cli_curve import run
from test_docs_evaluate import HOW_TO, alike, blocks

from fastfill.cli.main import load_commands

pytest.importorskip("lancedb", reason="LanceDB is not installed")

GUIDE = HOW_TO / "choose-queries.md"
SERVING = HOW_TO / "serve-with-both-models.md"


def example() -> list[tuple[str, str]]:
    """The blocks of the example; those before it name files that are the reader's."""
    return [each for each in blocks(GUIDE) if "URL" not in each[1] and "my_module" not in each[1]]


def test_the_example_migrates_and_says_how_to_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands print the lines that it shows, among others, and its code runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "toy_models", raising=False)
    load_commands()
    names: dict[str, object] = {}
    for language, text in example():
        if language == "python":
            exec(compile(text, str(GUIDE), "exec"), names)
            continue
        command, *shown = text.splitlines()
        result = run(command.removeprefix("$ fastfill "))
        assert result.exit_code == 0, f"{command}\n{result.stderr}"
        printed = result.stderr.splitlines()
        missing = [line for line in shown if not any(alike(line, other) for other in printed)]
        assert missing == [], f"{command}\n{result.stderr}"


@pytest.mark.parametrize("guide", [GUIDE, SERVING], ids=lambda guide: guide.stem)
def test_pages_that_the_guides_about_serving_link_exist(guide: Path) -> None:
    """Links lead to files."""
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", guide.read_text(encoding="utf-8"))
    assert [link for link in links if not (HOW_TO / link).exists()] == []
