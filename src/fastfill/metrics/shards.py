"""A curve over a gallery in shards: ranks are counts, and counts add up.

What a query needs of the whole gallery is the distances of its relevant items; with these at hand,
each shard counts its own items between them. The sum of the counts is that of the whole gallery in
one piece, so the curve is exactly the same.

Numba counts: it is imported late, since whoever only aligns pieces does without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fastfill.errors import IdError, LabelError, some
from fastfill.features import Distance, Ints, Matrix
from fastfill.metrics.names import Metric
from fastfill.metrics.relevance import Relevance
from fastfill.metrics.scores import QueryScores
from fastfill.metrics.space import make_space
from fastfill.metrics.stages import Stages, query_blocks

if TYPE_CHECKING:
    from fastfill.metrics.cpu import BlockScorer

ShardCounts = list[tuple[Ints, Ints]]  # of each block of queries: tables and bases, which add up


@dataclass(frozen=True, eq=False)
class GalleryShard:
    """Some rows of the gallery, as aligned and as new vectors."""

    rows: Ints  # (s,) their numbers in the whole gallery
    before: Matrix  # (s, d)
    after: Matrix  # (s, d)


@dataclass(frozen=True, eq=False)
class _ShardStages(Stages):
    """The stages of a shard's own rows; behind them are rows that are not counted."""

    others: Ints  # (r,) the steps of those

    @cached_property
    def steps(self) -> Ints:
        """Of the shard's rows and of the others, (s + r,)."""
        own = np.empty(len(self.positions), dtype=np.int64)
        places = np.arange(len(own))
        own[self.positions] = np.searchsorted(self.counts, places, side="right")
        return np.concatenate([own, self.others])


@dataclass(frozen=True, eq=False)
class ShardedCurve:
    """What all shards must know to count: queries, relevant items, and when items become new.

    >>> from fastfill.metrics import as_metrics
    >>> new = np.float32([[0], [1], [4], [5]]); aligned = np.float32([[0], [4], [1], [5]])
    >>> gallery = [GalleryShard(np.array(r), aligned[r], new[r]) for r in ([0, 1], [2, 3])]
    >>> curve = ShardedCurve(new, GalleryShard(np.arange(4), aligned, new),
    ...     Relevance.from_labels([0, 0, 1, 1]), np.array([1, 0, 0, 1]), 1, as_metrics("cmc@1"))
    >>> curve.scores(curve.count(shard) for shard in gallery).values["cmc@1"].mean()
    np.float64(1.0)
    """

    queries: Matrix  # (q, d)
    relevant: GalleryShard  # every item that is relevant to a query, by rising row
    relevance: Relevance  # of the whole gallery
    steps: Ints  # (n,) the first stage at which a row is new; the number of stages: never
    stages: int
    metrics: Sequence[Metric]
    distance: Distance = "l2"

    def __post_init__(self) -> None:
        missing = np.setdiff1d(self.relevance.rows, self.relevant.rows)
        if len(missing):
            raise IdError(f"The vectors of the relevant items {some(missing)} were not given.")
        if not len(self._kept):
            raise LabelError("No query has a relevant item in the gallery: nothing to measure.")

    @cached_property
    def _kept(self) -> Ints:
        return np.flatnonzero(self.relevance.counts)

    def _blocks(self) -> Iterator[Ints]:
        from fastfill.metrics.cpu import QUERIES, TABLES

        return query_blocks(self.relevance, self._kept, self.stages, TABLES, QUERIES)

    def _scorer(self, shard: GalleryShard) -> BlockScorer:
        """For a gallery of the shard's rows and, behind them, the relevant items."""
        from fastfill.metrics.cpu import BlockScorer

        size, known = len(shard.rows), self.relevant
        before = np.concatenate([shard.before, known.before])
        after = np.concatenate([shard.after, known.after])
        steps = self.steps[shard.rows]
        positions = np.argsort(steps, kind="stable")
        counts = np.searchsorted(steps[positions], np.arange(self.stages), side="right")
        relevance = replace(
            self.relevance,
            items=size + len(known.rows),
            rows=size + np.searchsorted(known.rows, self.relevance.rows),
            own=_places(self.relevance.own, known.rows, size),
        )
        space = make_space(self.queries, before, after, self.distance)
        stages = _ShardStages(positions, counts, self.steps[known.rows])
        return BlockScorer(space, stages, relevance, self.metrics)

    def count(self, shard: GalleryShard) -> ShardCounts:
        """Count the items of a shard between the relevant items of each query."""
        from fastfill.metrics.kernels import counting

        scorer = self._scorer(shard)
        own = _places(self.relevance.own, shard.rows, 0)
        before, after = scorer.space.before.vectors, scorer.space.after.vectors
        counted: ShardCounts = []
        for rows in self._blocks():
            block = scorer.block(rows)
            thresholds, counts = scorer.count(rows, block)
            counting.remove_own(block._replace(own=own[rows]), before, after, thresholds, counts)
            counted.append((counts.tables, counts.bases))
        return counted

    def scores(self, shards: Iterator[ShardCounts]) -> QueryScores:
        """The metrics of all stages, from the counts of all shards."""
        from fastfill.metrics.cpu import empty_counts
        from fastfill.metrics.kernels.values import BucketCounts

        total = next(shards)
        for counted in shards:
            total = [(t + u, b + c) for (t, b), (u, c) in zip(total, counted, strict=True)]
        none = np.empty((0, self.queries.shape[1]), dtype=np.float32)
        scorer = self._scorer(GalleryShard(np.zeros(0, dtype=np.int64), none, none))
        parts = []
        for rows, (tables, bases) in zip(self._blocks(), total, strict=True):
            block = scorer.block(rows)
            thresholds, _ = scorer.thresholds(rows, block)
            starts = empty_counts(thresholds, self.stages).starts
            counts = BucketCounts(starts, tables, bases)
            parts.append(scorer.score(rows, block, thresholds, counts))
        scores = np.concatenate(parts, axis=1)
        values = {metric.name: scores[i] for i, metric in enumerate(self.metrics)}
        return QueryScores(self._kept, len(self.relevance) - len(self._kept), values)


def _places(wanted: Ints, rows: Ints, first: int) -> Ints:
    """Where rows of the whole gallery are in a part of it, counted from `first`; −1: nowhere."""
    if not len(rows):
        return np.full(len(wanted), -1)
    order = np.argsort(rows, kind="stable")
    at = np.minimum(np.searchsorted(rows, wanted, sorter=order), len(rows) - 1)
    places = order[at]
    return np.where(rows[places] == wanted, first + places, -1)
