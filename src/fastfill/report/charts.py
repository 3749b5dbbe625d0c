"""The charts of the page as plain data: sections with views, views with lines or dots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastfill.evaluate import (
    ByOrder,
    Findings,
    FlipLines,
    GroupLines,
    Levels,
    Series,
    Sigma,
    Timeline,
    metrics_of,
)
from fastfill.report.diagnostics import outermost, positive, ranks, subsample
from fastfill.report.figures import axis_name
from fastfill.report.formats import correlation, percent, title
from fastfill.report.style import colour_and_dash

JSON = dict[str, Any]

_DOTS = 1_500  # of a scatter: enough to see its shape, light enough to hover over
_GROUPS = 12  # lines of one chart; of more groups the outermost are drawn
_HELP = "Left and right arrows read the values."


def charts(findings: Findings) -> list[JSON]:
    """Every chart that the findings have data for, in the order of the page."""
    listed = [_curves(findings.series, findings.levels)]
    if findings.timelines:
        listed.append(one_chart("timeline", ["Metric"], list(map(_timeline, findings.timelines))))
    if findings.flips is not None:
        listed.append(_flips(findings.flips))
    if findings.groups is not None:
        listed += _groups(findings.groups)
    if findings.sigma:
        listed.append(_sigma(findings.sigma))
    return listed


def _curves(series: Sequence[Series], levels: Levels) -> JSON:
    def label(one: Series) -> str:
        return f"{one.name} ({percent(one.estimate(lambda curve: curve.area).mean)})"

    views = []
    for metric in metrics_of(series):
        lines = [one for one in series if one.metric == metric]
        view = _view([title(metric)], f"{title(metric)} (%)", lines, label=label)
        view["levels"] = [
            {"name": name, "value": _number(100 * value)}
            for name, value in levels.get(metric, {}).items()
        ]
        views.append(view)
    return one_chart("curves", ["Metric"], views)


def _timeline(timeline: Timeline) -> JSON:
    *online, offline, never = timeline.lines
    view = _view([title(timeline.metric)], f"{title(timeline.metric)} (%)", [])
    view |= {"x": axis_name(timeline.unit), "unit": timeline.unit}
    for place, line in enumerate(online):
        colour, dash = colour_and_dash(place)
        view["lines"].append(chart_line(line.name, line.x, line.y, f"c{colour}", f"d{dash}"))
    view["lines"].append(chart_line(offline.name, offline.x, offline.y, "grey", "d1"))
    view["lines"].append(chart_line(never.name, never.x, never.y, "grey", "d2"))
    return view


def _flips(flips: FlipLines) -> JSON:
    views = []
    for metric in metrics_of(flips.positive):
        won = [one for one in flips.positive if one.metric == metric]
        lost = [one for one in flips.negative if one.metric == metric]
        view = _view([title(metric)], "flips (% of queries)", won, sign="+ ")
        more = _view([title(metric)], "", lost, sign="− ")["lines"]
        view["lines"] = [line | {"dash": "d0"} for line in view["lines"]]
        view["lines"] += [line | {"dash": "d2"} for line in more]
        views.append(view)
    return one_chart("flips", ["Metric"], views)


def _groups(groups: GroupLines) -> list[JSON]:
    quality = [
        _view([title(metric), order], f"{title(metric)} (%)", _outermost(series, orders))
        for metric, orders in groups.quality.items()
        for order, series in orders.items()
    ]
    gaps = [
        _view(
            [title(metric)],
            f"gap of {title(metric)} (points)",
            [one for one in groups.gaps if one.metric == metric],
        )
        for metric in metrics_of(groups.gaps)
    ]
    served = [
        _view([order], "backfilled of the group (%)", _outermost(series, groups.served))
        for order, series in groups.served.items()
    ]
    for view in served:
        view["lines"].append(chart_line("its share", [0, 100], [0, 1], "grey", "d1"))
    listed = [
        one_chart("groups", ["Metric", "Order"], quality),
        one_chart("gaps", ["Metric"], gaps),
        one_chart("served", ["Order"], served),
    ]
    return [chart for chart in listed if chart["views"]]


def _outermost(series: Sequence[Series], orders: ByOrder) -> list[Series]:
    """The groups that are drawn, in the same colours under every order."""
    named = {one.name: one for one in series}
    return [named[name] for name in outermost(orders, _GROUPS) if name in named]


def _sigma(alignments: Mapping[str, Sigma]) -> JSON:
    views = []
    for name, sigma in alignments.items():
        shown = subsample(len(sigma.variance), _DOTS)
        items = [str(item) for item in np.asarray(sigma.items)[shown]]
        predicted = np.asarray(sigma.variance, dtype=np.float64)
        for loss, values in sigma.losses.items():
            actual = np.asarray(values, dtype=np.float64)
            for way, measure in (("values", positive), ("ranks", ranks)):
                of = "rank of " if way == "ranks" else ""
                view = {
                    "keys": [name, loss, way],
                    "about": f"Kendall τ {correlation(sigma.taus[loss])}.",
                    "x": f"{of}predicted σ²",
                    "y": f"{of}{loss} loss",
                    "log": way == "values",
                    "items": items,
                    "xs": plain_numbers(measure(predicted)[shown]),
                    "ys": plain_numbers(measure(actual)[shown]),
                }
                views.append(view)
    return one_chart("sigma", ["Alignment", "Loss", "Shown"], views) | {"dots": True}


def one_chart(key: str, choices: list[str], views: list[JSON]) -> JSON:
    """A chart with views to choose from; each view has a key for every choice."""
    return {"id": key, "choices": choices, "help": _HELP, "views": views}


def _view(
    keys: list[str],
    y: str,
    series: Sequence[Series],
    *,
    sign: str = "",
    label: Callable[[Series], str] | None = None,
) -> JSON:
    lines = []
    for place, one in enumerate(series):
        colour, dash = colour_and_dash(place)
        x = 100 * one.fractions
        line = chart_line(f"{sign}{one.name}", x, one.mean, f"c{colour}", f"d{dash}")
        if label is not None:
            line["label"] = label(one)
        if one.std is not None:
            line["low"] = plain_numbers(100 * (one.mean - one.std))
            line["high"] = plain_numbers(100 * (one.mean + one.std))
        lines.append(line)
    return {"keys": keys, "x": "backfilled (%)", "y": y, "unit": "% backfilled", "lines": lines}


def chart_line(name: str, x: ArrayLike, y: ArrayLike, colour: str, dash: str) -> JSON:
    """A line of a view: x as it is, y shares that are shown in percent."""
    shares = plain_numbers(100 * np.asarray(y))
    return {"name": name, "x": plain_numbers(x), "y": shares, "colour": colour, "dash": dash}


def plain_numbers(values: ArrayLike | Iterable[float]) -> list[float | None]:
    """For JSON, rounded to what a screen can show; None where there is no number."""
    return [_number(float(value)) for value in np.asarray(values).ravel()]


def _number(value: float) -> float | None:
    """Six digits are more than a screen can show; JSON has no NaN."""
    return float(f"{value:.6g}") if np.isfinite(value) else None
