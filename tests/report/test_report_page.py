"""The page in a real browser: drawn, readable by pointer and keyboard, silent on the network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from browser import Chromium
from report_samples import sample_findings
from test_report_html import HOSTILE

from fastfill.report import Findings, write_html


@pytest.fixture
def findings() -> Findings:
    """Everything that a report can show."""
    return sample_findings()


@pytest.fixture
def page(chromium: Chromium, findings: Findings, tmp_path: Path) -> Path:
    """The report in a file; what the browser noted before is forgotten."""
    write_html(tmp_path / "report.html", findings)
    chromium.forget()
    return tmp_path / "report.html"


def test_all_charts_are_drawn_without_network_or_complaint(chromium: Chromium, page: Path) -> None:
    """Every figure holds lines or dots; the only request is the file itself."""
    chromium.open(page)
    drawn = chromium.run(
        "[...document.querySelectorAll('figure')].map(f => [f.id,"
        " f.querySelectorAll('.chart .curve').length, f.querySelectorAll('.dot').length])"
    )
    assert drawn == [
        ["curves", 2, 0],
        ["timeline", 4, 0],
        ["flips", 4, 0],
        ["groups", 2, 0],
        ["gaps", 2, 0],
        ["served", 2, 0],
        ["sigma", 0, 200],
    ]
    assert chromium.requests == [page.as_uri()]
    assert chromium.complaints == []


def test_hovering_shows_the_values(chromium: Chromium, page: Path) -> None:
    """The tip names the fraction and every curve's value there, the higher first."""
    chromium.open(page)
    chromium.move("#curves .chart", 0.52, 0.5)
    tip = chromium.run("document.querySelector('#curves .tip').innerText")
    assert " ".join(tip.split()) == "50 % backfilled sigma 64.1 random 59.3 ± 0.6"
    chromium.move("h1")
    assert chromium.run("document.querySelector('#curves .tip').hidden")
    chromium.move("#groups .chart", 0.52, 0.5)
    tip = chromium.run("document.querySelector('#groups .tip').innerText")
    assert tip.split()[-4:] == ["many", "35.0", "few", "25.0"]


def test_a_name_in_the_legend_is_a_switch(chromium: Chromium, page: Path) -> None:
    """A click hides the curve and says so to assistive technology; another brings it back."""
    chromium.open(page)
    state = (
        "[document.querySelectorAll('#curves .chart .curve').length,"
        " document.querySelector('#curves .legend button').getAttribute('aria-pressed')]"
    )
    assert chromium.run(state) == [2, "true"]
    chromium.click("#curves .legend button")
    assert chromium.run(state) == [1, "false"]
    chromium.click("#curves .legend button")
    assert chromium.run(state) == [2, "true"]


def test_the_metric_can_be_chosen(chromium: Chromium, page: Path) -> None:
    """Choosing mAP draws its curves, with its areas and its axis."""
    chromium.open(page)
    chromium.click("#curves fieldset label:nth-of-type(2)")
    assert "sigma (43.2)" in chromium.run("document.querySelector('#curves .legend').innerText")
    assert "mAP (%)" in chromium.run("document.querySelector('#curves svg').textContent")
    chromium.click("#groups fieldset label:nth-of-type(2)")
    label = chromium.run("document.querySelector('#groups .chart svg').getAttribute('aria-label')")
    assert label.startswith("mAP, random.")


def test_the_axis_can_begin_at_zero(chromium: Chromium, page: Path) -> None:
    """The box beside the chart brings the axis down to 0; old/old is drawn with and without."""
    chromium.open(page)
    texts = "[...document.querySelectorAll('#curves .chart svg text')].map(t => t.textContent)"
    chromium.click("#curves fieldset label:nth-of-type(2)")
    assert "0" not in chromium.run(texts)[:3]
    assert "old/old 5.0" in chromium.run(texts)
    chromium.click("#curves .check")
    assert chromium.run(texts)[0] == "0"
    assert "old/old 5.0" in chromium.run(texts)


def test_a_chart_is_read_by_keyboard(chromium: Chromium, page: Path) -> None:
    """Arrows walk along the points and the values are announced; Escape ends it."""
    chromium.open(page)
    chromium.run("document.querySelector('#curves .chart svg').focus()")
    said = "document.querySelector('#curves [aria-live]').textContent"
    chromium.press("End")
    assert chromium.run(said).startswith("100 % backfilled")
    chromium.press("Home")
    assert chromium.run(said) == "0 % backfilled sigma 50.0 random 50.0 ± 0.0"
    chromium.press("ArrowRight")
    assert chromium.run(said).startswith("10 % backfilled")
    chromium.press("Escape")
    assert chromium.run("document.querySelector('#curves .tip').hidden")


def test_everything_is_reached_with_the_tab_key(chromium: Chromium, page: Path) -> None:
    """Skip link, contents, choices, box, chart and switches of the first chart, in this order."""
    chromium.open(page)
    seen = []
    for _ in range(13):
        chromium.press("Tab")
        seen.append(chromium.run("document.activeElement.type || document.activeElement.tagName"))
    links = ["A"] * 8  # one skip link, seven sections
    assert seen == [*links, "radio", "checkbox", "svg", "button", "button"]
    assert chromium.run("document.activeElement.closest('figure').id") == "curves"


def test_dots_of_the_scatter_can_be_read(chromium: Chromium, page: Path) -> None:
    """Keys walk through the items; each shows its σ² and its loss, or their ranks."""
    chromium.open(page)
    chromium.run("document.querySelector('#sigma .chart svg').focus()")
    chromium.press("Home")
    said = "document.querySelector('#sigma [aria-live]').textContent"
    assert chromium.run(said).startswith("item 0 predicted σ²")
    chromium.click("#sigma fieldset:last-of-type label:nth-of-type(2)")
    assert "rank of predicted σ²" in chromium.run(
        "document.querySelector('#sigma svg').textContent"
    )


@pytest.mark.parametrize("width", [320, 390, 1000])
def test_the_page_fits_its_window(chromium: Chromium, page: Path, width: int) -> None:
    """No width makes the page scroll sideways; wide tables scroll within themselves."""
    chromium.open(page, width)
    assert chromium.run("document.documentElement.scrollWidth") <= width
    inside = "[...document.querySelectorAll('.chart svg')].every(s => s.clientWidth <= innerWidth)"
    assert chromium.run(inside)


def test_dark_and_light_differ_and_both_can_be_read(chromium: Chromium, page: Path) -> None:
    """The page follows the system's scheme; text stands out from its ground by 7 to 1 or more."""
    contrast = """(() => {
        const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map(v => v / 255)
            .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const style = getComputedStyle(document.body);
        const [a, b] = [light(style.color), light(style.backgroundColor)];
        return [a > b, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]; })()"""
    for dark in (False, True):
        chromium.open(page, dark=dark)
        lighter_text, ratio = chromium.run(contrast)
        assert lighter_text == dark
        assert ratio > 7


def test_hostile_names_do_nothing(
    chromium: Chromium, page: Path, findings: Findings, tmp_path: Path
) -> None:
    """A name full of markup and script is shown as it is, and nothing of it runs."""
    named = [replace(curve, name=HOSTILE) for curve in findings.curves if curve.name == "sigma"]
    write_html(tmp_path / "hostile.html", replace(findings, curves=named, title=HOSTILE))
    chromium.open(tmp_path / "hostile.html")
    assert chromium.complaints == []
    assert chromium.run("document.querySelectorAll('img').length") == 0
    chromium.move("#curves .chart", 0.5, 0.5)
    assert "onerror=alert(2)" in chromium.run("document.querySelector('#curves .tip').innerText")
    assert chromium.requests == [(tmp_path / "hostile.html").as_uri()]
