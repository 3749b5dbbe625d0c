"""The nearest neighbours of queries among new items, as relevance for `agreement@k`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Distance, Ints, Matrix, check_distance, check_positive
from fastfill.metrics.relevance import Relevance, from_lists
from fastfill.metrics.space import Space, exact_distances, make_space

_BLOCK = 1 << 23  # numbers of a block of products: 32 MiB
_TERMS = 1 << 22  # terms of float64 distances that are computed together


def neighbours(
    queries: Matrix, gallery: Matrix, k: int, *, distance: Distance = "l2", same: bool = False
) -> Relevance:
    """Relevant are the items than which at most k items, themselves included, are as near.

    Without ties those are the k nearest; a group of equally near items is in as a whole or not at
    all, so that nothing depends on the order of the gallery. Where `same`, queries and gallery are
    the same items and none is its own neighbour.

    >>> neighbours(np.float32([[0]]), np.float32([[3], [1], [-1], [2]]), 3).of(0)
    array([1, 2, 3])
    >>> neighbours(np.float32([[0]]), np.float32([[3], [1], [-1], [2]]), 1).of(0)
    array([], dtype=int64)
    """
    check_positive(k, "k")
    space = make_space(queries, gallery, gallery, check_distance(distance))
    own = np.arange(len(queries)) if same else np.full(len(queries), -1)
    lists: list[Ints] = []
    step = max(1, _BLOCK // len(gallery))
    centred = np.ascontiguousarray(space.before.vectors - space.centre).T  # (d, n)
    for start in range(0, len(queries), step):
        rows = np.arange(start, min(start + step, len(queries)))
        lists += _nearest(space, centred, rows, own[rows], k)
    gains = [np.ones(len(rows)) for rows in lists]
    return from_lists(len(gallery), np.arange(len(queries)), lists, gains, own)


def _nearest(space: Space, centred: Matrix, rows: Ints, own: Ints, k: int) -> list[Ints]:
    """The neighbours of some queries: candidates by product, then distances in float64."""
    values = space.before.offsets + np.float32(space.slope) * (space.centred(rows) @ centred)
    ranked = own >= 0
    values[np.flatnonzero(ranked), own[ranked]] = np.inf
    last = min(k, values.shape[1]) - 1
    a, b, c = space.error
    slack = a * space.norms[rows] * space.largest + b * space.largest**2 + c
    reach = np.partition(values, last, axis=1)[:, last] + 2 * slack
    which, items = np.nonzero((values <= reach[:, None]) & np.isfinite(values))
    distances = _picked_distances(space, rows[which], items)
    ends = np.searchsorted(which, np.arange(len(rows) + 1))
    return [
        _first(items[ends[i] : ends[i + 1]], distances[ends[i] : ends[i + 1]], k)
        for i in range(len(rows))
    ]


def _first(items: Ints, distances: NDArray[np.float64], k: int) -> Ints:
    """The items that at most k are as near as, rising."""
    as_near = np.searchsorted(np.sort(distances), distances, side="right")
    return np.asarray(items[as_near <= k], dtype=np.int64)


def _picked_distances(space: Space, queries: Ints, items: Ints) -> NDArray[np.float64]:
    """Float64 distances of some (query, item) pairs, in bounded memory."""
    distances = np.empty(len(items))
    step = max(1, _TERMS // space.dim)
    for start in range(0, len(items), step):
        part = slice(start, start + step)
        distances[part] = exact_distances(
            space.queries[queries[part]], space.before.vectors[items[part]], space.squared
        )
    return distances
