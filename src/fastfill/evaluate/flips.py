"""Positive and negative flips along a curve (Appendix D of the paper)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import InputError
from fastfill.evaluate.curves import Curve


@dataclass(frozen=True, eq=False)
class Flips:
    """Shares of the queries that turned right (positive) or wrong (negative) since 0 %."""

    metric: str
    fractions: NDArray[np.float64]  # (f,)
    positive: NDArray[np.float64]  # (f,)
    negative: NDArray[np.float64]  # (f,)
    name: str = ""


def count_flips(curve: Curve) -> Flips:
    """Flips of a curve of `cmc@k`: what each query's success was at 0 %, and is at each fraction.

    >>> hits = [[0, 1, 1], [1, 0, 1], [1, 1, 1], [0, 0, 0]]
    >>> flips = count_flips(Curve("cmc@1", [0, 0.5, 1], [0.5, 0.5, 0.75], per_query=hits))
    >>> flips.positive.tolist(), flips.negative.tolist()
    ([0.0, 0.25, 0.25], [0.0, 0.25, 0.0])
    """
    if not curve.metric.startswith("cmc@"):
        raise InputError(
            f"Flips are counted on queries that succeed or fail: use cmc@k, not {curve.metric}."
        )
    right = per_query(curve) > 0.5  # (k, f)
    first = right[:, :1]
    return Flips(
        curve.metric,
        curve.fractions,
        positive=(right & ~first).mean(axis=0),
        negative=(~right & first).mean(axis=0),
        name=curve.name,
    )


def per_query(curve: Curve) -> NDArray[np.float32]:
    """The values of each query, which flips, groups and the bootstrap need."""
    if curve.per_query is None:
        raise InputError(
            f"The curve {curve.name or curve.metric} has no values per query (they are not kept in "
            "files): simulate it again."
        )
    return curve.per_query
