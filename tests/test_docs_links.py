"""Links between the pages of the docs lead to files and headings that are there."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from docs_world import PAGES, ROOT

BESIDE = [ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/RESULTS.md")]
FENCED = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2", re.M | re.S)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.M)


def links(text: str) -> list[str]:
    """Where the links and pictures of a page lead, without those that are shown as code.

    >>> links("[a](b.md#c) ![d](<e.svg>) `[f](g)` [`h`](i.md 'title') [j](https://example.org)")
    ['b.md#c', 'e.svg', 'i.md', 'https://example.org']
    """
    return LINK.findall(CODE.sub("code", FENCED.sub("", text)))


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page, as on a code host and on the site.

    Of headings that are called the same only the first has one that is the same on both.

    >>> sorted(anchors("# A `b_c` – [d](e.md)?\\n## É, 5 %\\n```\\n# no heading\\n```"))
    ['a-b_c--d', 'é-5-']
    """
    return {slug(heading) for heading in HEADING.findall(FENCED.sub("", text))}


def slug(heading: str) -> str:
    """Letters, numbers, hyphens and underscores in lower case; a hyphen for each blank."""
    shown = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", heading)
    plain = unicodedata.normalize("NFC", shown).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def lost(page: Path) -> Iterator[str]:
    """The links of a page that lead nowhere."""
    for link in links(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):  # another site
            continue
        place, _, anchor = unquote(link).partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or ROOT not in target.parents:
            yield f"{link}: there is no such file"
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            yield f"{link}: {target.name} has no such heading"


@pytest.mark.parametrize("page", [*PAGES, *BESIDE], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file of the repository, and an anchor one of its headings."""
    assert list(lost(page)) == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is missing or outside the repository, a heading that is called otherwise."""
    monkeypatch.setitem(lost.__globals__, "ROOT", tmp_path)
    (tmp_path / "there.md").write_text("# Once upon a `time`!\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#once-upon-a-time) [c](#here) [d](gone.md) [e](/etc/hosts)\n"
        "[f](there.md#once) ![g](gone.svg) `[h](shown.md)` [i](https://example.org/gone)\n"
        "# Here\n```\n[j](shown.md)\n```\n"
    )
    assert [told.partition(":")[0] for told in lost(page)] == [
        "gone.md",
        "/etc/hosts",
        "there.md#once",
        "gone.svg",
    ]
