"""Figures that explain a curve: flips, groups, what is served first, σ² against the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.errors import InputError
from fastfill.evaluate import ByOrder, Series, metrics_of
from fastfill.report.figures import draw, legend_below
from fastfill.report.formats import correlation, title
from fastfill.report.style import COLOURS, FAINT, INK, LineStyle, line_styles, panels, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_POINTS = 5_000  # of a scatter: more only darkens it


def flips_figure(positive: Sequence[Series], negative: Sequence[Series]) -> Figure:
    """Positive and negative flips in % of the queries, one panel per metric.

    A query flips positively when it fails at 0 % and succeeds at the fraction, negatively the
    other way round; the metric's gain is the difference of the two.
    """
    metrics = metrics_of(positive)
    styles = line_styles(one.name for one in positive)
    with styled():
        figure, axes = panels(len(metrics))
        for axis, metric in zip(axes, metrics, strict=True):
            for sign, flips, dash in (("+", positive, "-"), ("−", negative, (0, (2, 1.5)))):
                for one in flips:
                    if one.metric == metric:
                        shape = replace(styles[one.name], dash=dash)
                        draw(axis, one, shape, f"{sign} {one.name}")
            axis.set_title(f"flips of {title(metric)} (% of queries)", loc="left")
            _fractions(axis)
            legend_below(figure, axis, columns=2)
    return figure


def groups_figure(groups: ByOrder, gaps: Sequence[Series]) -> Figure:
    """The metric of each group along the curve, a panel per order; last the gap between them."""
    styles = line_styles(outermost(groups))
    with styled():
        figure, axes = panels(len(groups) + bool(gaps))
        for axis in axes[1 : len(groups)]:
            axis.sharey(axes[0])
        for axis, (order, series) in zip(axes, groups.items(), strict=False):
            _groups(axis, series, styles)
            axis.set_title(f"{order}: {title(series[0].metric)} (%)", loc="left")
            _fractions(axis)
            legend_below(figure, axis)
        if gaps:
            _gaps(figure, axes[-1], gaps)
    return figure


def _gaps(figure: Figure, axis: Axes, gaps: Sequence[Series]) -> None:
    for one, style in zip(gaps, line_styles(one.name for one in gaps).values(), strict=True):
        draw(axis, one, style, one.name)
    axis.set_title("gap between best and worst group (points)", loc="left")
    axis.set_ylim(bottom=0)
    _fractions(axis)
    legend_below(figure, axis)


def served_figure(served: ByOrder) -> Figure:
    """How much of each group is backfilled at each fraction, a panel per order.

    On the diagonal a group gets its share; above it, it is served first.
    """
    styles = line_styles(outermost(served))
    with styled():
        figure, axes = panels(len(served))
        for axis, (order, series) in zip(axes, served.items(), strict=True):
            axis.plot([0, 100], [0, 100], color=FAINT, linewidth=0.8, linestyle=(0, (3, 2)))
            _groups(axis, series, styles)
            axis.set_title(f"{order}: backfilled of each group (%)", loc="left")
            axis.set_ylim(-2, 102)
            _fractions(axis)
            legend_below(figure, axis)
    return figure


def sigma_figure(
    variance: ArrayLike, losses: Mapping[str, ArrayLike], taus: Mapping[str, float]
) -> Figure:
    """Predicted σ² against the loss that came true: values above, ranks below, with Kendall τ."""
    predicted = np.asarray(variance, dtype=np.float64)
    with styled():
        figure, axes = panels(2 * len(losses), len(losses), (2.5, 2.3))
        for column, (name, loss) in enumerate(losses.items()):
            actual = np.asarray(loss, dtype=np.float64)
            if actual.shape != predicted.shape:
                raise InputError(
                    f"Loss {name!r} has shape {actual.shape}, σ² has {predicted.shape}: "
                    "give one number per item in both."
                )
            shown = subsample(len(predicted))
            x, y = positive(predicted)[shown], positive(actual)[shown]
            top, bottom = axes[column], axes[column + len(losses)]
            _scatter(top, x, y, COLOURS[0])
            _logarithmic(top)
            top.set_xlabel("predicted σ²")
            top.set_ylabel(f"{name} loss")
            _scatter(bottom, ranks(predicted)[shown], ranks(actual)[shown], COLOURS[0])
            bottom.set_title(f"Kendall τ = {correlation(taus[name])}", loc="left")
            bottom.set_xlabel("rank of σ²")
            bottom.set_ylabel(f"rank of {name} loss")
    return figure


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Place in rising order, as a share of all; equal values share the mean place.

    >>> ranks(np.array([3.0, 1.0, 3.0, 9.0])).tolist()
    [0.5, 0.0, 0.5, 1.0]
    """
    rising = np.sort(values)
    first = np.searchsorted(rising, values, "left")
    last = np.searchsorted(rising, values, "right") - 1
    return np.asarray((first + last) / 2 / max(len(values) - 1, 1))


def subsample(count: int, most: int = _MOST_POINTS) -> NDArray[np.int64]:
    """The same random rows every time; all of them where they are few.

    >>> subsample(3).tolist(), len(subsample(9_000))
    ([0, 1, 2], 5000)
    """
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def positive(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """For a logarithmic axis: zeros are drawn at the smallest positive value."""
    above = values[values > 0]
    return np.maximum(values, above.min() if len(above) else 1.0)


def _scatter(axis: Axes, x: NDArray[np.float64], y: NDArray[np.float64], colour: str) -> None:
    # Dots as pixels: thousands of vector shapes would make a heavy file of the SVG.
    axis.scatter(x, y, s=3, color=colour, alpha=0.25, linewidths=0, rasterized=True)


def _logarithmic(axis: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_xscale("log")
    axis.set_yscale("log")
    for side, (low, high) in ((axis.xaxis, axis.get_xlim()), (axis.yaxis, axis.get_ylim())):
        between = (1, 2, 5) if high < 50 * low else (1,)
        side.set_major_locator(LogLocator(subs=between, numticks=5))
        side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        side.set_minor_formatter(NullFormatter())


def _groups(axis: Axes, series: Sequence[Series], styles: Mapping[str, LineStyle]) -> None:
    """A line per group; groups that have no style are faint and unnamed."""
    for one in series:
        if one.name in styles:
            draw(axis, one, styles[one.name], one.name)
        else:
            axis.plot(100 * one.fractions, 100 * one.mean, color=FAINT, linewidth=0.6, alpha=0.5)


def outermost(groups: ByOrder, most: int = 6) -> list[str]:
    """Of many groups the lowest and the highest, by their mean along all orders; lowest first.

    >>> many = [Series(str(k), "map", np.array([0, 1]), np.array([k, k])) for k in range(9)]
    >>> outermost({"sigma": many})
    ['0', '1', '2', '6', '7', '8']
    """
    heights: dict[str, list[float]] = {}
    for series in groups.values():
        for one in series:
            heights.setdefault(one.name, []).append(float(one.mean.mean()))
    if len(heights) <= most:
        return list(heights)
    rising = sorted(heights, key=lambda name: float(np.mean(heights[name])))
    return rising[: most // 2] + rising[-(most // 2) :]


def _fractions(axis: Axes) -> None:
    axis.set_xlabel("backfilled (%)")
    axis.set_xlim(-2, 102)
    axis.tick_params(labelcolor=INK)
