"""The chart of the live page: quality as it was measured, in the band that was forecast for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastfill.align import Serving
from fastfill.migrate import QualityForecast, ServingChoice, Status
from fastfill.report.charts import chart_line, one_chart, plain_numbers
from fastfill.report.formats import title

JSON = dict[str, Any]
OLD = "old search"
NEW_WAYS: tuple[tuple[Serving, str, str], ...] = (  # name and colour
    ("aligned", "new model", "c1"),
    ("both", "both models", "c2"),
)


def quality_charts(status: Status) -> list[JSON]:
    """No chart, or one with a view for each thing that was measured.

    >>> from fastfill.migrate import Progress
    >>> quality_charts(Status("started", Progress(10), None))
    []
    """
    views = []
    if status.forecast is not None:
        views.append(_forecast_view(status.forecast))
    if status.serving.evidence is not None:
        views.append(_serving_view(status.choices, status.serving))
    return [one_chart("quality", ["Measured"], views)] if views else []


def _forecast_view(expected: QualityForecast) -> JSON:
    """The forecast with its band, what was measured since, and the old search."""
    forecast, measured = expected.forecast, expected.measured
    begin = forecast.pairs / forecast.items  # of the sample: its queries are new from the start
    sample = [begin, *(float(f) for f in forecast.fractions if f > begin)]
    values, low, high = zip(*map(forecast.at, sample), strict=True)
    fractions = [100 * expected.of_gallery(f) for f in sample]
    band = {"low": _percent(low), "high": _percent(high)}
    lines = [chart_line("forecast", fractions, values, "c0", "d1") | band]
    at = [100 * one.fraction for one in measured]
    if measured:
        new = [one.value for one in measured]
        lines.append(chart_line("measured", at, new, "c1", "d0") | {"points": True})
    if any(one.served is not None for one in measured):
        served = [float("nan") if one.served is None else one.served for one in measured]
        lines.append(chart_line("measured as served", at, served, "c2", "d0") | {"points": True})
    view = _view(title(forecast.metric), f"{title(forecast.metric)} (%)", lines)
    return view | {"levels": _level(expected.old_search)}


def _serving_view(choices: Sequence[ServingChoice], latest: ServingChoice) -> JSON:
    """Each way to serve on the queries, along the backfill; the old search does not change."""
    assert latest.evidence is not None  # noqa: S101 - asked before
    metric, asked = latest.evidence.metric, latest.asked
    alike = [
        (one.fraction, one.evidence.values)
        for one in choices
        if one.evidence is not None and (one.evidence.metric, one.asked) == (metric, asked)
    ]
    at = [100 * fraction for fraction, _ in alike]
    lines = []
    for way, name, colour in NEW_WAYS:
        if all(way in values for _, values in alike):
            shares = [values[way] for _, values in alike]
            lines.append(chart_line(name, at, shares, colour, "d0") | {"points": True})
    key = f"{title(metric)} on {latest.evidence.queries:,} {asked}"
    view = _view(key, f"{title(metric)} (%)", lines)
    return view | {"levels": _level(latest.evidence.values.get("old"))}


def _view(key: str, y: str, lines: list[JSON]) -> JSON:
    return {
        "keys": [key],
        "x": "backfilled (%)",
        "y": y,
        "unit": "% backfilled",
        "span": [0, 100],
        "lines": lines,
    }


def _percent(shares: Sequence[float]) -> list[float | None]:
    return plain_numbers([100 * share for share in shares])


def _level(value: float | None) -> list[JSON]:
    return [] if value is None else [{"name": OLD, "value": _percent([value])[0]}]
