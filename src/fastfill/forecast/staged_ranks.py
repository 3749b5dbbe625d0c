"""Ranks along a backfilling from distances instead of vectors, in Numba: imported where it runs."""

from __future__ import annotations

import numpy as np
from numba import njit

from fastfill.features import Array


@njit(cache=True, nogil=True, error_model="numpy")
def staged_ranks(before: Array, after: Array, steps: Array, relevant: Array, stages: int) -> Array:
    """The rank of each relevant item at each stage, rising within a stage, (stages, r).

    `before` and `after` are the distances (n,) of one query to the aligned and to the new items,
    `steps` (n,) the first stage at which an item is new. The rank of an item is the number of
    items that are as near as it or nearer. The distances of the relevant items, aligned and new,
    are thresholds; every other item is counted at its place among them, for all stages at once.
    """
    r = len(relevant)
    thresholds = np.empty(2 * r)
    for i in range(r):
        thresholds[2 * i] = before[relevant[i]]
        thresholds[2 * i + 1] = after[relevant[i]]
    thresholds = np.sort(thresholds)
    table = np.zeros((stages + 1, 2 * r + 1), dtype=np.int64)  # change of the counts at each stage
    for g in range(len(before)):
        old = np.searchsorted(thresholds, before[g])
        step = steps[g]
        if step > 0:
            table[0, old] += 1
            table[step, old] -= 1
        table[step, np.searchsorted(thresholds, after[g])] += 1
    ranks = np.empty((stages, r), dtype=np.int64)
    counts = np.zeros(2 * r + 1, dtype=np.int64)
    for stage in range(stages):
        counts += table[stage]
        below = np.cumsum(counts)  # items up to each threshold
        for i in range(r):
            g = relevant[i]
            place = after[g] if steps[g] <= stage else before[g]
            ranks[stage, i] = below[np.searchsorted(thresholds, place)]
        ranks[stage] = np.sort(ranks[stage])
    return ranks
