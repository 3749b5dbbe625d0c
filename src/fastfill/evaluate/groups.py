"""Groups of queries and items: accuracy per group, the gap between them, who is served first.

Section 5.3 and Appendix F of the paper: whether a biased old model is repaired early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.errors import InputError, ShapeError
from fastfill.evaluate.curves import Curve
from fastfill.evaluate.flips import per_query
from fastfill.evaluate.simulation import as_fractions, backfilled_counts
from fastfill.features import as_column
from fastfill.order import Order


def group_curves(curve: Curve, groups: ArrayLike) -> dict[str, Curve]:
    """The curve of each group of queries; a group without an answerable query has none.

    >>> curve = Curve("cmc@1", [0, 1], [0.5, 1.0], per_query=[[1, 1], [0, 1]])
    >>> {name: part.start for name, part in group_curves(curve, ["m", "f"]).items()}
    {'f': 0.0, 'm': 1.0}
    """
    values = per_query(curve)
    queries = np.arange(len(values)) if curve.queries is None else curve.queries
    given = np.asanyarray(groups)
    if given.ndim != 1 or len(given) != len(values) + curve.excluded:
        raise ShapeError(
            f"groups: got shape {given.shape}, expected one for each of the "
            f"{len(values) + curve.excluded:,} queries."
        )
    column = as_column(given, len(given), "groups")[queries]
    curves = {}
    for group in np.unique(column):
        rows = column == group
        part = values[rows].astype(np.float64).mean(axis=0)
        name = f"{curve.name}: {group}" if curve.name else str(group)
        curves[str(group)] = Curve(
            curve.metric, curve.fractions, part, name, values[rows], queries[rows],
            serving=curve.serving,
        )  # fmt: skip
    return curves


def group_gap(curves: Mapping[str, Curve]) -> NDArray[np.float64]:
    """Best group less worst group at each fraction, (f,).

    >>> group_gap({"f": Curve("map", [0, 1], [0.6, 0.9]), "m": Curve("map", [0, 1], [0.9, 1.0])})
    array([0.3, 0.1])
    """
    if len(curves) < 2:
        raise InputError(f"A gap is between at least 2 groups, got {len(curves)}.")
    values = np.stack([curve.values for curve in curves.values()])
    return np.asarray(values.max(axis=0) - values.min(axis=0))


@dataclass(frozen=True, eq=False)
class Served:
    """Which groups an order serves first: the share of each that is done, along the order."""

    fractions: NDArray[np.float64]  # (f,) of the whole gallery
    shares: dict[str, NDArray[np.float64]]  # by group, (f,)
    name: str = ""


def served_first(order: Order, groups: ArrayLike, points: int | ArrayLike = 21) -> Served:
    """The share of each group's items that is backfilled at each fraction.

    >>> served_first(Order([1, 0, 2, 3]), ["m", "f", "m", "m"], points=[0.25, 1]).shares
    {'f': array([1., 1.]), 'm': array([0., 1.])}
    """
    column = as_column(groups, len(order), "groups")
    fractions = as_fractions(points)
    counts = backfilled_counts(fractions, len(order))
    ranks = order.ranks
    shares = {}
    for group in np.unique(column):
        turns = np.sort(ranks[column == group])
        shares[str(group)] = np.searchsorted(turns, counts, side="left") / len(turns)
    return Served(fractions, shares, order.name)
