"""The gallery as far as it is known before the migration, and how queries see it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Aligned
from fastfill.errors import InputError, ShapeError
from fastfill.features import Array, Distance, Ints, Matrix, Pairs, as_column, as_matrix, pairwise


@dataclass(frozen=True, eq=False)
class KnownGallery:
    """The pairs first, then old vectors of other items."""

    pairs: Pairs
    items: int  # of the real gallery
    old: Matrix  # (n, d_old)
    labels: Array | None  # (n,)
    distance: Distance
    done: NDArray[np.bool_]  # (n,) items beside the pairs that are new already

    @classmethod
    def of(
        cls,
        pairs: Pairs,
        items: int,
        others: ArrayLike | None = None,
        other_labels: ArrayLike | None = None,
        distance: Distance = "l2",
        done: ArrayLike | None = None,
    ) -> KnownGallery:
        """Checked; labels only where all items have one."""
        old, labels = pairs.old.vectors, pairs.labels
        if others is not None:
            rest = as_matrix(others, "gallery")
            if rest.shape[1] != old.shape[1]:
                raise ShapeError(
                    f"gallery: vectors of {rest.shape[1]} dimensions, but the old vectors of the "
                    f"pairs have {old.shape[1]}. Give vectors of the old model."
                )
            labels = _joined(labels, other_labels, len(rest))
            old = np.concatenate([old, rest])
        if items < len(old):
            raise InputError(
                f"The gallery has {items:,} items, but {len(pairs):,} pairs and "
                f"{len(old) - len(pairs):,} other old vectors were given."
            )
        new = np.zeros(len(old), dtype=bool)
        if done is not None:
            new[len(pairs) :] = as_column(done, len(old) - len(pairs), "done")
        return cls(pairs, items, old, labels, distance, new)

    @property
    def pairs_only(self) -> bool:
        """Is nothing known of the other items?"""
        return len(self.old) == len(self.pairs)

    def distances(self, queries: Matrix, vectors: Matrix) -> Matrix:
        """Distances (q, n) that can be compared and sampled: not squared."""
        values = pairwise(queries, vectors, self.distance)
        return values if self.distance == "ip" else np.sqrt(np.maximum(values, 0))


def _joined(labels: Array | None, others: ArrayLike | None, rows: int) -> Array | None:
    """The labels of the pairs and of the other items, where both have some."""
    if labels is None or others is None:
        return None
    return np.concatenate([labels, as_column(others, rows, "gallery labels")])


@dataclass(frozen=True, eq=False)
class QueryView:
    """Queries, and the gallery as maps align it that have not seen them.

    Either one map that has seen none of the held pairs, or one for each of them without it alone.
    """

    held: Ints  # (h,) pairs
    kept: Ints  # pairs that the map knows: the others, or all where only the query is left out
    aligned: Aligned  # (n, d_new), the held pairs as maps without them align them
    near: Matrix  # (q, n) distances of the queries to the aligned gallery
    true: Matrix  # (q, m) distances to the new vectors of all pairs
    asked: Ints  # (q,) the items that the queries are: the held pairs; −1 for those of users
    labels: Array | None  # (q,) of the queries
    as_aligned: Matrix  # (q, n) distances of the aligned vectors of the queries to the gallery
    together: Matrix  # (q, h) distances to the held pairs, aligned by maps that knew neither
