"""The chart of the live page: what was measured, in its forecast band, above the old search."""

from __future__ import annotations

from typing import Any

import pytest

from fastfill.evaluate import Evidence
from fastfill.forecast import Forecast
from fastfill.migrate import Measured, Progress, QualityForecast, ServingChoice, Status
from fastfill.page import quality_charts

FORECAST = Forecast(
    "map", [0, 0.2, 0.6, 1], [0.3, 0.4, 0.6, 0.8], [0.2, 0.3, 0.5, 0.7], [0.4, 0.5, 0.7, 0.9],
    items=100, pairs=20,
)  # fmt: skip


def view_of(status: Status, place: int = 0) -> dict[str, Any]:
    """One view of the one chart."""
    (chart,) = quality_charts(status)
    return dict(chart["views"][place])


def measured(*points: Measured, old: float | None = None) -> Status:
    """A migration of a gallery of which a tenth was new from the start, with measurements."""
    expected = QualityForecast(
        FORECAST, label="album", policy="sigma", first=0.1, measured=points, old_search=old
    )
    return Status("started", Progress(100, new=50, aligned=50), None, forecast=expected)


def test_the_forecast_lies_on_the_gallery() -> None:
    """Its fractions are those of the gallery, which begins where the queries are new."""
    (line,) = view_of(measured())["lines"]
    assert line["name"] == "forecast"
    assert line["x"] == pytest.approx([10, 55, 100])
    assert line["y"] == pytest.approx([40, 60, 80])
    assert line["low"] == pytest.approx([30, 50, 70])
    assert line["high"] == pytest.approx([50, 70, 90])


def test_measurements_and_the_old_search_are_drawn() -> None:
    """What serves has a line of its own where it was measured; the old search is a level."""
    points = (Measured(0.1, 0.2, 0.41, 0.45), Measured(0.5, 0.6, 0.62))
    view = view_of(measured(*points, old=0.35))
    _, new, served = view["lines"]
    assert (new["x"], new["y"]) == ([10, 50], [41, 62])
    assert served["y"] == [45, None]
    assert view["levels"] == [{"name": "old search", "value": 35}]
    assert view["span"] == [0, 100]


def test_ways_to_serve_are_a_second_view() -> None:
    """Only measurements of the same kind as the latest one are on one line."""

    def choice(fraction: float, metric: str, asked: str, both: float) -> ServingChoice:
        evidence = Evidence(metric, 300, {"old": 0.5, "aligned": 0.3, "both": both})
        return ServingChoice(fraction, "both", evidence, asked)

    choices = (
        choice(0.05, "agreement@10", "pairs", 0.9),
        ServingChoice(0.06, "old"),  # as it was told
        choice(0.1, "ndcg@10", "queries", 0.55),
        choice(0.4, "ndcg@10", "queries", 0.6),
    )
    view = view_of(Status("started", Progress(10), None, choices=choices))
    assert view["keys"] == ["nDCG@10 on 300 queries"]
    new, both = view["lines"]
    assert (new["x"], new["y"]) == ([10, 40], [30, 30])
    assert both["y"] == [55, 60]
    assert view["levels"] == [{"name": "old search", "value": 50}]
