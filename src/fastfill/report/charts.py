"""The charts of the page as plain data: sections with views, views with lines or dots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastfill.report.diagnostics import outermost, positive, ranks, subsample
from fastfill.report.figures import Axis
from fastfill.report.findings import Findings, Flips, Groups, Sigma
from fastfill.report.series import Levels, Series, metrics_of, percent, title
from fastfill.report.style import colour_and_dash

JSON = dict[str, Any]

_DOTS = 1_500  # of a scatter: enough to see its shape, light enough to hover over
_GROUPS = 12  # lines of one chart; of more groups the outermost are drawn
_HELP = "Left and right arrows read the values."


def charts(findings: Findings) -> list[JSON]:
    """Every chart that the findings have data for, in the order of the page."""
    series = Series.group(findings.curves)
    found = [_curves(series, findings.levels)]
    if findings.axis is not None:
        found.append(_timeline(series, findings.levels, findings.axis))
    if findings.flips is not None:
        found.append(_flips(findings.flips))
    if findings.groups is not None:
        found += _groups(findings.groups)
    if findings.sigma:
        found.append(_sigma(findings.sigma))
    return found


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
    return _chart("curves", ["Metric"], views)


def _timeline(series: Sequence[Series], levels: Levels, axis: Axis) -> JSON:
    views = []
    before, total, after = -0.08 * axis.total, axis.total, 1.08 * axis.total
    for metric in metrics_of(series):
        old = levels.get(metric, {}).get("old/old")
        lines = [one for one in series if one.metric == metric]
        view = _view([title(metric)], f"{title(metric)} (%)", lines, factor=total)
        view |= {"x": axis.name, "unit": axis.unit}
        if old is not None:
            end = float(lines[0].mean[-1])
            for line in view["lines"]:
                _around(line, [before, 0.0], 100 * old, after)
            offline = [before, total, total, after], [old, old, end, end]
            view["lines"] += [
                _plain("offline backfill", *offline, "d1"),
                _plain("no update", [before, after], [old, old], "d2"),
            ]
        views.append(view)
    return _chart("timeline", ["Metric"], views)


def _around(line: JSON, before: Sequence[float], old: float, after: float) -> None:
    """The old model's value before the update, and the line's last one after the backfill."""
    line["x"] = [*_numbers(before), *line["x"], _number(after)]
    for key in {"y", "low", "high"} & line.keys():
        line[key] = [*(_number(old) for _ in before), *line[key], line[key][-1]]


def _flips(flips: Flips) -> JSON:
    views = []
    for metric in metrics_of(flips.positive):
        won = [one for one in flips.positive if one.metric == metric]
        lost = [one for one in flips.negative if one.metric == metric]
        view = _view([title(metric)], "flips (% of queries)", won, sign="+ ")
        more = _view([title(metric)], "", lost, sign="− ")["lines"]
        view["lines"] = [line | {"dash": "d0"} for line in view["lines"]]
        view["lines"] += [line | {"dash": "d2"} for line in more]
        views.append(view)
    return _chart("flips", ["Metric"], views)


def _groups(groups: Groups) -> list[JSON]:
    quality = [
        _view([title(metric), order], f"{title(metric)} (%)", outermost(series, _GROUPS))
        for metric, orders in groups.quality.items()
        for order, series in orders.items()
    ]
    gaps = [
        _view([title(metric)], "gap (points)", [one for one in groups.gaps if one.metric == metric])
        for metric in metrics_of(groups.gaps)
    ]
    served = [
        _view([order], "backfilled of the group (%)", outermost(series, _GROUPS))
        for order, series in groups.served.items()
    ]
    return [
        _chart("groups", ["Metric", "Order"], quality),
        _chart("gaps", ["Metric"], gaps),
        _chart("served", ["Order"], served),
    ]


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
                    "about": f"Kendall τ {sigma.taus[loss]:.2f}.",
                    "x": f"{of}predicted σ²",
                    "y": f"{of}{loss} loss",
                    "log": way == "values",
                    "items": items,
                    "xs": _numbers(measure(predicted)[shown]),
                    "ys": _numbers(measure(actual)[shown]),
                }
                views.append(view)
    return _chart("sigma", ["Alignment", "Loss", "Shown"], views) | {"dots": True}


def _chart(key: str, choices: list[str], views: list[JSON]) -> JSON:
    return {"id": key, "choices": choices, "help": _HELP, "views": views}


def _view(
    keys: list[str],
    y: str,
    series: Sequence[Series],
    *,
    factor: float = 100.0,
    sign: str = "",
    label: Callable[[Series], str] | None = None,
) -> JSON:
    lines = []
    for place, one in enumerate(series):
        colour, dash = colour_and_dash(place)
        line = {
            "name": f"{sign}{one.name}",
            "x": _numbers(factor * one.fractions),
            "y": _numbers(100 * one.mean),
            "colour": f"c{colour}",
            "dash": f"d{dash}",
        }
        if label is not None:
            line["label"] = label(one)
        if one.std is not None:
            line["low"] = _numbers(100 * (one.mean - one.std))
            line["high"] = _numbers(100 * (one.mean + one.std))
        lines.append(line)
    return {"keys": keys, "x": "backfilled (%)", "y": y, "unit": "% backfilled", "lines": lines}


def _plain(name: str, x: list[float], y: list[float], dash: str) -> JSON:
    shares = _numbers(100 * np.asarray(y))
    return {"name": name, "x": _numbers(x), "y": shares, "colour": "grey", "dash": dash}


def _numbers(values: ArrayLike | Iterable[float]) -> list[float | None]:
    return [_number(float(value)) for value in np.asarray(values).ravel()]


def _number(value: float) -> float | None:
    """Six digits are more than a screen can show; JSON has no NaN."""
    return float(f"{value:.6g}") if np.isfinite(value) else None
