"""Ranks along a backfilling from distances instead of vectors."""

from __future__ import annotations

import numpy as np

from fastfill.features import Array, Ints


def staged_ranks(before: Array, after: Array, steps: Ints, relevant: Ints, stages: int) -> Ints:
    """The rank of each relevant item at each stage, rising within a stage, (stages, r).

    `before` and `after` are the distances (n,) of one query to the aligned and to the new items,
    `steps` (n,) the first stage at which an item is new. The rank of an item is the number of
    items that are as near as it or nearer. The distances of the relevant items, aligned and new,
    are thresholds; every other item is counted at its place among them, for all stages at once.
    """
    thresholds = np.sort(np.concatenate([before[relevant], after[relevant]]))
    size, cells = len(thresholds) + 1, (stages + 1) * (len(thresholds) + 1)
    old, new = np.searchsorted(thresholds, before), np.searchsorted(thresholds, after)
    changes = np.bincount(steps * size + new, minlength=cells)  # comes in as new
    changes -= np.bincount(steps * size + old, minlength=cells)  # goes out as aligned
    changes[:size] += np.bincount(old, minlength=size)  # all are aligned before the first stage
    counts = changes.reshape(stages + 1, size)[:stages].cumsum(axis=0)
    below = counts.cumsum(axis=1)  # items up to each threshold
    is_new = steps[relevant] <= np.arange(stages)[:, None]  # (stages, r)
    places = np.where(is_new, new[relevant], old[relevant])
    return np.sort(np.take_along_axis(below, places, axis=1), axis=1)
