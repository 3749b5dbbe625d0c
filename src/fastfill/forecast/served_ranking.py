"""What a query ranks items by in each way to serve: old distances, new ones, or both fused.

The rehearsals work with distances of the new model. Here they become what readers see.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Fusion, QueryScale, Reference
from fastfill.features import Distance, Ints, Matrix, pairwise

TINY = 1e-9
UNSCALED = QueryScale(0.0, 1.0, 0.0, 1.0)

Column = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class QueryRanking:
    """What one query ranks items by: smaller comes first.

    Without old distances that is the distance of the new model, as it is given.

    >>> QueryRanking().of_aligned(np.array([0, 1]), np.array([0.25, 0.5]))
    array([0.25, 0.5 ])
    """

    old: Column | None = None  # (n,) distances to all items under the old model
    fusion: Fusion | None = None  # None: the old model answers alone
    scale: QueryScale = UNSCALED
    rooted: bool = False  # distances of the new model are given as their roots

    def of_aligned(self, rows: Ints, distances: Column) -> Column:
        """Items that are aligned, by their rows and their distances under the new model."""
        return self._ranked(rows, distances, is_new=False)

    def of_new(self, rows: Ints, distances: Column) -> Column:
        """Items that are new."""
        return self._ranked(rows, distances, is_new=True)

    def _ranked(self, rows: Ints, distances: Column, is_new: bool) -> Column:
        if self.old is None:
            return distances
        old = self.old[rows]
        if self.fusion is None:
            return old
        added = np.square(distances) if self.rooted else distances
        return -self.fusion.combine(self.scale, -old, -added, is_new)


@dataclass(frozen=True, eq=False)
class ServedRanking:
    """A way to serve other than `aligned`, and all that it needs to know of items and queries."""

    distance: Distance
    items: Matrix  # (n, d_old)
    old: Matrix  # (q, d_old) the queries under both models
    new: Matrix  # (q, d_new)
    reference: Reference
    fusion: Fusion | None  # None: the old model answers alone

    def of_query(self, query: int, *, rooted: bool = False) -> QueryRanking:
        """One query's ranking; `rooted` says that distances will be given as their roots."""
        old = self.distances(self.old[query], self.items)
        return QueryRanking(old, self.fusion, self.scale(query), rooted and self.distance != "ip")

    def scale(self, query: int) -> QueryScale:
        """What standardises a query's similarities, that is, distances below zero."""
        # A pair that asks may be a reference itself; a real query never is.
        others = (self.reference.old != self.old[query]).any(axis=1)
        sides = ((self.old[query], self.reference.old), (self.new[query], self.reference.new))
        numbers = []
        for asked, reference in sides:
            values = -self.distances(asked, reference[others])
            numbers += [float(values.mean()), max(float(values.std()), TINY)]
        return QueryScale(*numbers)

    def distances(self, query: Matrix, vectors: Matrix) -> Column:
        """(n,) of one query."""
        return np.asarray(pairwise(query[None], vectors, self.distance)[0], dtype=np.float64)
