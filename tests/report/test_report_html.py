"""The page as text: complete in itself, and safe whatever things are called."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import FRACTIONS, curves, sample_findings

from fastfill.errors import FileError
from fastfill.evaluate import Curve
from fastfill.report import Findings, Series, html_page, write_html
from fastfill.report.html import embedded, headline


@pytest.fixture
def findings() -> Findings:
    """Everything that a report can show."""
    return sample_findings()


HOSTILE = "</script><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>{{data}}\u2028"


class Reader(HTMLParser):
    """Elements, texts and scripts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def charts_of(page: str) -> list[dict[str, object]]:
    """The embedded data."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return list(json.loads(text)["charts"])


def test_the_page_needs_nothing_else(findings: Findings) -> None:
    """No element refers to another file, and no address but SVG's namespace occurs."""
    page = html_page(findings)
    for tag, attributes in Reader(page).tags:
        assert "src" not in attributes, tag
        assert (attributes.get("href") or "#").startswith(("#", "data:"))
    assert set(re.findall(r"https?://[^\"'\s<]+", page)) == {"http://www.w3.org/2000/svg"}


def test_every_part_has_its_section_and_chart(findings: Findings) -> None:
    """What was measured is on the page, in order; each chart has a place to be drawn in."""
    page = html_page(findings)
    wanted = ["curves", "timeline", "flips", "groups", "gaps", "served", "sigma"]
    assert [chart["id"] for chart in charts_of(page)] == wanted
    assert re.findall(r'<figure id="(\w+)">', page) == wanted
    assert re.findall(r'<a href="#(\w+)-title">', page) == wanted


def test_parts_that_were_not_measured_are_absent() -> None:
    """A page of curves alone has one section."""
    page = html_page(Findings("plain", curves()))
    assert [chart["id"] for chart in charts_of(page)] == ["curves"]
    assert page.count("<section") == 1


def test_groups_without_quality_have_one_chart(findings: Findings) -> None:
    """A chart without a line is not on the page."""
    assert findings.groups is not None
    bare = replace(findings, groups=replace(findings.groups, quality={}, gaps=[]))
    ids = [chart["id"] for chart in charts_of(html_page(bare))]
    assert "served" in ids
    assert not {"groups", "gaps"} & set(ids)


def test_the_data_are_the_curves(findings: Findings) -> None:
    """Lines hold means in %, bands the deviations, labels the areas."""
    view = charts_of(html_page(findings))[0]["views"][1]  # type: ignore[index]
    sigma, random = view["lines"]
    series = Series.group(findings.curves)[3]
    assert view["keys"] == ["mAP"]
    assert sigma["label"] == "sigma (43.2)"
    assert "low" not in sigma
    np.testing.assert_allclose(random["x"], 100 * FRACTIONS)
    np.testing.assert_allclose(random["y"], 100 * series.mean, rtol=1e-5)
    spread = (np.array(random["high"]) - random["low"]) / 200
    np.testing.assert_allclose(spread, series.std, atol=1e-6)
    assert view["levels"] == [
        {"name": "new/new", "value": 50.0},
        {"name": "old/old", "value": 5.0},
    ]


def test_hostile_names_are_only_text(findings: Findings) -> None:
    """Titles, names, facts and commands cannot become elements."""
    named = [replace(curve, name=HOSTILE) for curve in findings.curves if curve.name == "sigma"]
    page = html_page(
        replace(
            findings,
            title=HOSTILE,
            curves=named,
            levels={"map": {HOSTILE: 0.3}},
            command=HOSTILE,
            facts={HOSTILE: HOSTILE},
            sigma={HOSTILE: findings.sigma["mine"]},
            comparisons=[replace(findings.comparisons[0], a=HOSTILE, b=HOSTILE)],
        )
    )
    reader = Reader(page)
    assert [tag for tag, _ in reader.tags].count("script") == 2
    assert "img" not in [tag for tag, _ in reader.tags]
    assert HOSTILE in reader.texts  # the title, whole
    assert charts_of(page)[0]["views"][0]["lines"][0]["name"] == HOSTILE  # type: ignore[index]


def test_the_policy_allows_exactly_the_page_s_own_script_and_style(findings: Findings) -> None:
    """The hashes of the content security policy are those of what is embedded."""
    page = html_page(findings)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag, name in (("script", "script-src"), ("style", "style-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy


def test_the_style_is_never_given_in_an_attribute(findings: Findings) -> None:
    """The policy would refuse inline styles, so there are none."""
    assert all("style" not in attributes for _, attributes in Reader(html_page(findings)).tags)


@given(st.text())
def test_embedded_json_cannot_leave_its_element(text: str) -> None:
    """Any text survives, and nothing of it is markup."""
    written = embedded({"name": text})
    assert json.loads(written) == {"name": text}
    assert not set("<>&\u2028\u2029") & set(written)


def test_numbers_that_json_has_not_become_gaps() -> None:
    """NaN is drawn as a gap in its line."""
    gap = Series("a", "map", FRACTIONS, np.full(11, np.nan))
    from fastfill.report import GroupLines

    page = html_page(Findings("", curves(), groups=GroupLines({"map": {"o": [gap]}}, [gap], {})))
    assert charts_of(page)[1]["views"][0]["lines"][0]["y"] == [None] * 11  # type: ignore[index]


def test_tables_are_there_without_a_script(findings: Findings) -> None:
    """The numbers are plain HTML: areas, significance and Kendall τ."""
    texts = Reader(html_page(findings)).texts
    for text in ("43.2 ▲", "+2.00 ▲", "+1.00 to +3.00", "< 0.001", "1.000"):
        assert text in texts


def test_headline_orders_by_need_and_names_the_range_of_starts() -> None:
    """The order that needs least comes first; different starts are given as a range."""
    text = headline(
        Findings("", [Curve("map", [0, 1], [0.4, 0.8], "a"), Curve("map", [0, 1], [0.6, 0.8], "b")])
    )
    assert "<strong>50.0 to 75.0\xa0%</strong> of the new model's mAP of 80.0\xa0%" in text
    assert text.index("(b)") < text.index("(a)")


def test_headline_does_not_promise_what_nobody_can_run() -> None:
    """The oracle comes last, and says that it is one."""
    best, plain = (
        Curve("map", [0, 1], [0.6, 0.8], "best"),
        Curve("map", [0, 1], [0.4, 0.8], "plain"),
    )
    text = headline(Findings("", [best, plain], cheating={"best"}))
    assert text.index("(plain)") < text.index("(best, which nobody can know)")


def test_headline_of_a_search_that_finds_nothing() -> None:
    """A metric of 0 throughout is said in words, and not divided by."""
    assert "No query finds anything" in headline(Findings("", [Curve("map", [0, 1], [0, 0], "a")]))


def test_the_page_is_written_whole_or_not_at_all(
    findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When writing fails the earlier page stays, and no temporary file."""
    path = tmp_path / "report.html"
    write_html(path, findings)
    before = path.read_bytes()

    def fail(*_: object, **__: object) -> int:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(FileError, match="disk full"):
        write_html(path, replace(findings, title="other"))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_headline_names_the_old_search_beside_what_takes_its_place() -> None:
    """Shares are of what the new model gives alone; a curve that never gets there says so."""
    curves = [
        Curve("map", [0, 1], [0.4, 0.4], "old", serving=("old", "old")),
        Curve("map", [0, 1], [0.6, 0.7], "both", serving=("both", "both")),
        Curve("map", [0, 1], [0.5, 0.8], "aligned", serving=("aligned", "aligned")),
    ]
    levels = {"map": {"new/new": 0.8, "old/old": 0.4}}
    text = headline(Findings("", curves, levels)).replace("\xa0", " ")
    assert "<strong>62.5 to 75.0 %</strong> of the new model's mAP of 80.0 %" in text
    assert "; before the update it had 50.0 %." in text
    assert "<strong>97.3 %</strong> of the gallery (aligned), more than all (both)." in text
