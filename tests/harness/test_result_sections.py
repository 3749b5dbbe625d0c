"""The page of results: every section in its place, each replaced by its benchmark alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.shared import sections
from benchmarks.shared.paths import RESULTS


def test_the_page_is_as_the_benchmarks_write_it() -> None:
    """It has every section once, under a subject, with a link to it at the top."""
    page = RESULTS.read_text(encoding="utf-8")
    found = sections.read_sections(page)
    assert sections.page_of(found) == page
    assert [t for t in found if sections.place_of(t)[1] == sections.OTHERS] == []
    assert all(page.count(f"](#{sections.anchor_of(title)})") == 1 for title in found)


def test_a_section_is_replaced_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one comes where its subject is, a repeated one where it was."""
    monkeypatch.setattr(sections, "RESULTS", tmp_path / "RESULTS.md")
    for title, body in [
        ("Exported maps in Node", "1e-7"),
        ("Forecast of document search", "fine"),
        ("Something new", "?"),
        ("The paper on digits", "old"),
        ("The paper on digits", "### 1\n\n# 2"),
    ]:
        sections.write_section(title, "python -m this", body, where="a machine", day="2026-01-02")
    written = sections.read_sections((tmp_path / "RESULTS.md").read_text(encoding="utf-8"))
    assert list(written) == [
        "The paper on digits",
        "Forecast of document search",
        "Exported maps in Node",
        "Something new",
    ]
    head = "```console\n$ python -m this\n```\na machine; 2026-01-02.\n\n"
    assert written["The paper on digits"] == head + "### 1\n\n# 2"
    assert written["Exported maps in Node"] == head + "1e-7"
