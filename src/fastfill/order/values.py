"""`Order`: a checked permutation of the gallery; `PolicyInput`: what a policy may look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Aligned
from fastfill.errors import OrderError, some
from fastfill.features import Array, Distance, Matrix


@dataclass(frozen=True, eq=False)
class Order:
    """The order to backfill a gallery in: every row once, the first to be done first.

    >>> order = Order([2, 0, 1], name="mine")
    >>> order.ranks
    array([1, 2, 0])
    """

    positions: NDArray[np.int64]  # (n,) gallery rows, first to be backfilled first
    scores: NDArray[np.float64] | None = None  # (n,) why: score of each gallery row, if known
    name: str = ""

    def __init__(
        self, positions: ArrayLike, scores: ArrayLike | None = None, name: str = ""
    ) -> None:
        rows = _permutation(np.asanyarray(positions), name or "order")
        values = None if scores is None else np.array(scores, dtype=np.float64)
        if values is not None and values.shape != rows.shape:
            raise OrderError(f"{name or 'order'}: {values.shape} scores for {len(rows):,} rows.")
        for array in (rows, values):
            if array is not None:
                array.flags.writeable = False
        object.__setattr__(self, "positions", rows)
        object.__setattr__(self, "scores", values)
        object.__setattr__(self, "name", name)

    @classmethod
    def by_score(cls, scores: ArrayLike, name: str = "") -> Order:
        """Highest score first; equal scores in the order of the gallery.

        >>> Order.by_score([0.1, 0.9, 0.1]).positions
        array([1, 0, 2])
        """
        values = np.asarray(scores, dtype=np.float64)
        if values.ndim != 1:
            raise OrderError(f"{name or 'order'}: expected one score per row, got {values.shape}.")
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise OrderError(
                f"{name or 'order'}: the scores of rows {some(bad)} are NaN or infinite. "
                "Every item needs a finite score."
            )
        return cls(np.argsort(-values, kind="stable"), values, name)

    def __len__(self) -> int:
        return len(self.positions)

    def __repr__(self) -> str:
        return f"Order({', '.join([f'{len(self):,} rows', *filter(None, [self.name])])})"

    @property
    def ranks(self) -> NDArray[np.int64]:
        """When each gallery row has its turn, 0 for the first, (n,)."""
        ranks = np.empty_like(self.positions)
        ranks[self.positions] = np.arange(len(ranks))
        return ranks


def _permutation(rows: Array, name: str) -> NDArray[np.int64]:
    """The rows as whole numbers, if they are 0 … n − 1 with each exactly once."""
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise OrderError(
            f"{name}: expected a list of row numbers, got {rows.dtype} of shape {rows.shape}."
        )
    outside = np.unique(rows[(rows < 0) | (rows >= len(rows))])
    if len(outside):
        raise OrderError(
            f"{name}: rows {some(outside)} are outside 0 to {len(rows) - 1}. An order names every "
            "gallery row exactly once."
        )
    counts = np.bincount(rows, minlength=len(rows))
    if (counts != 1).any():
        raise OrderError(
            f"{name}: rows {some(np.flatnonzero(counts > 1))} come more than once and rows "
            f"{some(np.flatnonzero(counts == 0))} never. An order names every row exactly once."
        )
    return rows.astype(np.int64)


@dataclass(frozen=True, eq=False)
class PolicyInput:
    """What a policy may look at. `new` and `labels` are for the oracle alone."""

    aligned: Aligned  # (n, d_new) vectors and their variance
    old: Matrix | None = None  # (n, d_old)
    pairs_old: Matrix | None = None  # (m, d_old) old vectors of the pairs the map learned from
    head: Matrix | None = None  # (classes, d_new) the new model's classifier
    shown: Array | None = None  # (n,) how often each item was shown
    new: Matrix | None = None  # (n, d_new)
    labels: Array | None = None  # (n,)
    distance: Distance = "l2"
    seed: int = 0

    def __len__(self) -> int:
        return len(self.aligned.vectors)


Known = PolicyInput  # its former name
