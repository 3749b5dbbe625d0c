"""Quality against time or cost, as in Figure 1 (right) of the paper.

The update starts at 0. Until then everything is served by the old model. Backfilling *online*
serves aligned vectors at once and improves as it goes; *offline* backfilling serves the old model
until the last item is done; *no update* serves it for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import InputError
from fastfill.evaluate.curves import Curve
from fastfill.features import check_positive


@dataclass(frozen=True, eq=False)
class TimelineTrace:
    """One trace of the figure: x in the timeline's unit, y the metric; a step is two equal x."""

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Timeline:
    """Traces of one metric over time or cost."""

    metric: str
    unit: str
    lines: tuple[TimelineTrace, ...]


def timeline(
    curves: Curve | Sequence[Curve],
    *,
    old: float,
    new: float | None = None,
    items: int,
    per_item: float = 1.0,
    unit: str = "items",
    before: float = 0.1,
    after: float = 0.1,
) -> Timeline:
    """Online backfilling of each curve, with offline backfilling and no update beside it.

    `old` and `new` are the metric of each model alone (without `new`: the end of the first curve,
    where the new model serves alone), `per_item` is what one item takes in the `unit` (seconds,
    dollars), `before` and `after` are shares of the whole that are shown around it.

    >>> figure = timeline(Curve("map", [0, 1], [0.5, 0.7]), old=0.3, items=1000, per_item=0.002)
    >>> [(line.name, line.y.tolist()) for line in figure.lines[1:]]
    [('offline backfilling', [0.3, 0.3, 0.7, 0.7]), ('no update', [0.3, 0.3])]
    """
    listed = [curves] if isinstance(curves, Curve) else list(curves)
    if not listed or len({curve.metric for curve in listed}) > 1:
        raise InputError("A timeline shows one or more curves, all of the same metric.")
    check_positive(items, "items")
    if per_item <= 0:
        raise InputError(f"per_item must be above 0, got {per_item}.")
    total = items * per_item
    left, right = -before * total, (1 + after) * total
    lines = [_online(curve, old, total, left, right) for curve in listed]
    end = listed[0].end if new is None else new
    lines.append(_trace("offline backfilling", [left, total, total, right], [old, old, end, end]))
    lines.append(_trace("no update", [left, right], [old, old]))
    return Timeline(listed[0].metric, unit, tuple(lines))


def _online(curve: Curve, old: float, total: float, left: float, right: float) -> TimelineTrace:
    x = [left, 0.0, *(curve.fractions * total), right]
    y = [old, old, *curve.values, curve.end]
    return _trace(curve.name or "online backfilling", x, y)


def _trace(name: str, x: Sequence[float], y: Sequence[float]) -> TimelineTrace:
    return TimelineTrace(name, np.array(x, dtype=np.float64), np.array(y, dtype=np.float64))
