"""Figures of backfilling curves, along the fraction, the time or the cost.

Every function takes plain values and returns a matplotlib `Figure`; `save` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import InputError
from fastfill.evaluate import Curve, Levels, Series, Timeline, metrics_of
from fastfill.report.formats import percent, title
from fastfill.report.style import FAINT, INK, LineStyle, grow, line_styles, panels, save, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["curves_figure", "save", "timeline_figure"]

TIMES = ("seconds", "minutes", "hours", "days", "weeks", "months")
_LEVEL_DASHES = {"new/new": (0, (6, 2)), "old/old": (0, (1, 1.6))}


def curves_figure(
    curves: Iterable[Curve],
    levels: Levels | None = None,
    *,
    metrics: Sequence[str] | None = None,
    columns: int = 3,
) -> Figure:
    """Backfilling curves, one panel per metric; the area in % stands behind each name.

    Curves of one name and metric are seeds: their mean is drawn with a band of one standard
    deviation. `levels` are the horizontal lines.
    """
    series = Series.group(curves)
    wanted = list(metrics or metrics_of(series))
    _check_metrics(wanted, series)
    styles = line_styles(one.name for one in series)
    with styled():
        figure, axes = panels(len(wanted), columns)
        for axis, metric in zip(axes, wanted, strict=True):
            for one in series:
                if one.metric == metric:
                    area = one.estimate(lambda curve: curve.area)
                    draw(axis, one, styles[one.name], f"{one.name} ({percent(area.mean)})")
            _levels(axis, (levels or {}).get(metric, {}))
            axis.set_title(f"{title(metric)} (%)", loc="left")
            axis.set_xlabel("backfilled (%)")
            axis.set_xlim(-2, 102)
            legend_below(figure, axis)
    return figure


def timeline_figure(timeline: Timeline) -> Figure:
    """Quality against time or cost, from before the update until after the whole backfill.

    The last two lines of a timeline are *offline backfilling* and *no update*.
    """
    *online, offline, never = timeline.lines
    styles = line_styles(line.name for line in online)
    with styled():
        figure, (panel,) = panels(1, size=(3.4, 2.4))
        panel.plot(never.x, 100 * never.y, color=FAINT, linewidth=0.9, label=never.name)
        for line in online:
            style = styles[line.name]
            panel.plot(
                line.x, 100 * line.y, color=style.colour, ls=style.dash, label=shown(line.name)
            )
        dash = (0, (4, 2.5))
        panel.plot(offline.x, 100 * offline.y, color=INK, ls=dash, lw=1.1, label=offline.name)
        panel.set_xlim(never.x[0], never.x[-1])
        panel.set_title(f"{title(timeline.metric)} (%)", loc="left")
        panel.set_xlabel(axis_name(timeline.unit))
        legend_below(figure, panel)
    return figure


def axis_name(unit: str) -> str:
    """What is written beside the axis of a timeline.

    >>> axis_name("days"), axis_name("€"), axis_name("items")
    ('days since the update', 'cost in €', 'items re-embedded')
    """
    if unit == "items":
        return "items re-embedded"
    return f"{unit} since the update" if unit in TIMES else f"cost in {unit}"


def draw(axis: Axes, one: Series, style: LineStyle, label: str) -> None:
    """One series in % of both axes, with its band over seeds."""
    every = max(1, len(one.fractions) // 10)
    axis.plot(
        100 * one.fractions, 100 * one.mean, label=shown(label), markevery=every, **style.line()
    )
    _band(axis, 100 * one.fractions, one, style)


def _band(axis: Axes, x: NDArray[np.float64], one: Series, style: LineStyle) -> None:
    if one.std is not None:
        low, high = 100 * (one.mean - one.std), 100 * (one.mean + one.std)
        axis.fill_between(x, low, high, color=style.colour, alpha=0.15, linewidth=0)


def _levels(axis: Axes, levels: Mapping[str, float]) -> None:
    """Horizontal lines; the old search is seen beside all that takes its place."""
    for name, value in levels.items():
        dash = _LEVEL_DASHES.get(name, (0, (3, 2)))
        label = f"{name} ({percent(value)})"
        axis.axhline(100 * value, color=FAINT, linestyle=dash, linewidth=1.1, label=label)


def shown(label: str) -> str:
    """A label that matplotlib shows: one with an underscore in front would be left out."""
    return f" {label}" if label.startswith("_") else label


def legend_below(figure: Figure, axis: Axes, columns: int | None = None) -> None:
    """A legend under the panel, where it can hide nothing; the figure grows to make room."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = axis.get_legend_handles_labels()
    across = columns or (2 if len(labels) > 3 and max(map(len, labels)) < 24 else 1)
    under = ScaledTranslation(0, -28 / 72, figure.dpi_scale_trans)  # below ticks and their name
    axis.legend(
        handles,
        labels,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=axis.transAxes + under,
        borderaxespad=0.4,
        ncols=across,
    )
    grow(figure, -(-len(labels) // across))


def _check_metrics(wanted: Sequence[str], series: Sequence[Series]) -> None:
    if not series:
        raise InputError("There is no curve to draw: give at least one.")
    missing = [name for name in wanted if name not in metrics_of(series)]
    if missing:
        raise InputError(
            f"No curve of the metric {missing[0]!r}, only of {', '.join(metrics_of(series))}."
        )
