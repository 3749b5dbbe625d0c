"""Curves in NumPy alone, where Numba is not installed: query after query, with the same ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Ints, Matrix
from fastfill.metrics.names import Metric
from fastfill.metrics.relevance import Relevance, ideal_gains
from fastfill.metrics.space import Column, GallerySide, Space, exact_distances
from fastfill.metrics.stages import Stages

_PRODUCTS = 1 << 22  # numbers of a block of products: 16 MiB


def plain_scores(
    space: Space,
    stages: Stages,
    relevance: Relevance,
    kept: Ints,
    metrics: Sequence[Metric],
    tick: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Scores (metrics, kept queries, stages)."""
    scores = np.empty((len(metrics), len(kept), len(stages)))
    sides = (space.before, space.after)
    centred = [np.ascontiguousarray((side.vectors - space.centre).T) for side in sides]  # (d, n)
    step = max(1, _PRODUCTS // relevance.items)
    for start in range(0, len(kept), step):
        rows = kept[start : start + step]
        queries = space.centred(rows)
        products = [queries @ side for side in centred]  # (Q, n)
        ideals = ideal_gains(relevance, rows, metrics)
        for i, query in enumerate(rows):
            values = [product[i] for product in products]
            ranked = _ranked(space, stages, relevance, int(query), values)
            scores[:, start + i] = _scored(*ranked, metrics, ideals[:, i])
        if tick is not None:
            tick(start + len(rows), len(kept))
    return scores


def _ranked(
    space: Space, stages: Stages, relevance: Relevance, query: int, products: Sequence[Matrix]
) -> tuple[Ints, Column, Column]:
    """Of one query at each stage, its relevant items from the nearest on: ranks, gains, precision.

    Each is (stages, r). The distances of the relevant items, aligned and new, are thresholds; every
    item is counted at its place among them, where it goes out as aligned and comes in as new.
    """
    relevant, own = relevance.of(query), relevance.own[query]
    sides = (space.before, space.after)
    near = [_distances(space, query, side, relevant) for side in sides]
    gains = np.tile(relevance.gains_of(query), 2)
    order = np.lexsort((gains, np.concatenate(near)))
    thresholds = np.concatenate(near)[order]  # (2r,)
    steps = np.tile(stages.steps[relevant], 2)[order]
    fresh = order >= len(relevant)
    aligned, new = (
        _buckets(space, query, side, product, thresholds)
        for side, product in zip(sides, products, strict=True)
    )
    counts = _counts(stages, aligned, new, len(thresholds) + 1)
    if own >= 0:  # it was counted like any item
        counts -= _counts(stages, aligned[[own]], new[[own]], len(thresholds) + 1, [own])
    everything = counts.cumsum(axis=1)
    holds = (steps <= np.arange(len(stages))[:, None]) == fresh  # (stages, 2r), r in each row
    active = np.nonzero(holds)[1].reshape(len(stages), len(relevant))
    below = np.take_along_axis(everything, active, axis=1)
    through = _through(thresholds[active])
    ranks = np.arange(1, len(relevant) + 1) + below - through
    return ranks, gains[order][active], through / below


def _distances(space: Space, query: int, side: GallerySide, rows: Ints) -> Column:
    """In float64, (k,)."""
    asked = np.broadcast_to(space.queries[query], (len(rows), space.dim))
    return exact_distances(asked, side.vectors[rows], space.squared)


def _buckets(
    space: Space, query: int, side: GallerySide, product: Matrix, thresholds: Column
) -> Ints:
    """The first threshold that each item is not beyond, (n,): by product, in float64 if unsure."""
    a, b, c = space.error
    values = side.offsets + np.float32(space.slope) * product + space.shifts[query]
    slack = a * space.norms[query] * side.norms + b * side.norms**2 + c
    slack += 4 * np.finfo(np.float64).eps * (np.abs(values) + abs(space.shifts[query]))
    buckets: Ints = np.searchsorted(thresholds, values - slack)
    unsure = np.flatnonzero(buckets != np.searchsorted(thresholds, values + slack, side="right"))
    buckets[unsure] = np.searchsorted(thresholds, _distances(space, query, side, unsure))
    return buckets


def _counts(
    stages: Stages, aligned: Ints, new: Ints, size: int, rows: Sequence[int] | slice = slice(None)
) -> Ints:
    """Items in each bucket at each stage, (stages, size)."""
    steps, lines = stages.steps[rows], len(stages) + 1
    first = np.bincount(aligned, minlength=size)  # all are aligned before the first stage
    gone = np.bincount(steps * size + aligned, minlength=lines * size)
    come = np.bincount(steps * size + new, minlength=lines * size)
    changes = (come - gone).reshape(lines, size)[:-1]  # what never becomes new does not change
    return np.asarray(first + changes.cumsum(axis=0), dtype=np.int64)


def _through(distances: Column) -> Ints:
    """In rising rows, how many are not beyond each: where its group of equals ends."""
    size = distances.shape[1]
    ends = np.full(distances.shape, size)
    ends[:, :-1] = np.where(np.diff(distances, axis=1) > 0, np.arange(1, size), size)
    return np.asarray(np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1])


def _scored(
    ranks: Ints, gains: Column, precision: Column, metrics: Sequence[Metric], ideals: Column
) -> NDArray[np.float64]:
    """Every metric at every stage, (metrics, stages): see `names`."""
    best = ranks[:, 0]
    found = []
    for metric, ideal in zip(metrics, ideals, strict=True):
        cut = metric.k or np.inf
        if metric.family == "map":
            found.append(precision.mean(axis=1))
        elif metric.family == "cmc":
            found.append((best <= cut).astype(np.float64))
        elif metric.family == "mrr":
            found.append(np.where(best <= cut, 1 / best, 0))
        elif metric.family == "ndcg":
            discounted = np.where(ranks <= cut, gains / np.log2(1 + ranks), 0)
            found.append(discounted.sum(axis=1) / ideal)
        else:
            found.append((ranks <= cut).mean(axis=1))
    return np.stack(found)
