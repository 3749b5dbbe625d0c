"""Kendall's τ-b of two rankings, ties included, in NumPy alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastfill.errors import ShapeError
from fastfill.features import Array, Ints


def kendall_tau(a: ArrayLike, b: ArrayLike) -> float:
    """Kendall's τ-b of two rankings; NaN where one of them is constant or has a NaN.

    (concordant − discordant pairs) / √(pairs not tied in a · pairs not tied in b)

    >>> round(kendall_tau([1, 2, 3, 4], [1, 2, 4, 3]), 3)
    0.667
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ShapeError(f"Rankings of the same items are needed, got {x.shape} and {y.shape}.")
    if np.isnan(x).any() or np.isnan(y).any():
        return float("nan")
    p, q = _ranks(x), _ranks(y)
    pairs = len(x) * (len(x) - 1) // 2
    tied_x, tied_y = _tied_pairs(p), _tied_pairs(q)
    if pairs in (tied_x, tied_y):
        return float("nan")
    tied_both = _tied_pairs(p * len(p) + q)
    discordant = _inversions(q[np.lexsort((q, p))])
    surplus = pairs - tied_x - tied_y + tied_both - 2 * discordant
    tau = surplus / np.sqrt(pairs - tied_x) / np.sqrt(pairs - tied_y)
    return float(np.clip(tau, -1, 1))


def _ranks(values: Array) -> Ints:
    """Whole numbers from 0 in the order of the values, equal where they are."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _tied_pairs(ranks: Ints) -> int:
    counts = np.unique(ranks, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def _inversions(ranks: Ints) -> int:
    """Pairs of which the first is larger than the second: a merge sort, all blocks at a time.

    The number of a block's pair, times `size`, is added to the ranks: keys of all pairs together
    are then sorted where the ranks of each are, and one search counts for all.
    """
    size = len(ranks)
    places = np.arange(size)
    keys, total, width = ranks, 0, 1
    while width < size:
        pair = places // (2 * width)
        is_left = places // width % 2 == 0
        keys = keys % size + pair * size
        left, right = keys[is_left], keys[~is_left]
        through = np.searchsorted(left, (pair[~is_left] + 1) * size)  # of this and earlier pairs
        total += int((through - np.searchsorted(left, right, side="right")).sum())
        keys = np.sort(keys, kind="stable")
        width *= 2
    return total
