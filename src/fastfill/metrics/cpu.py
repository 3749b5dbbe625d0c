"""Curves on a CPU: every thread takes blocks of queries, and multiplies and counts them itself.

BLAS has one thread meanwhile: its own threads would wait for work on the cores that are counting.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Ints, Matrix
from fastfill.metrics.kernels import SPREAD, counting, scoring
from fastfill.metrics.kernels.values import (
    BucketCounts,
    ItemColumns,
    Lookups,
    QueryBlock,
    ThresholdLists,
)
from fastfill.metrics.names import Metric
from fastfill.metrics.relevance import Relevance, ideal_gains
from fastfill.metrics.space import Space, padded_dim
from fastfill.metrics.stages import Stages, query_blocks

QUERIES = 384  # most queries of a block
PRODUCTS = 1 << 21  # numbers of a block of products, and of the items in it: 8 MiB each
TABLES = 1 << 22  # numbers of a block of tables: 16 MiB

_CELLS_PER_THRESHOLD = 16  # of a lookup table: at most one cell in sixteen holds one
_BLOCKS_PER_THREAD = 4  # at least, so that no thread waits long for the last


def cpu_scores(
    space: Space,
    stages: Stages,
    relevance: Relevance,
    kept: Ints,
    metrics: Sequence[Metric],
    tick: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Scores (metrics, kept queries, stages)."""
    from threadpoolctl import threadpool_limits

    scores = np.empty((len(metrics), len(kept), len(stages)))
    # Queries with the same relevant items come together: their vectors stay in the cache.
    order = np.argsort(relevance.which[kept], kind="stable")
    threads = thread_count()
    most = min(QUERIES, -(-len(kept) // (threads * _BLOCKS_PER_THREAD)))
    blocks = list(query_blocks(relevance, kept[order], len(stages), TABLES, most))
    work = BlockScorer(space, stages, relevance, metrics)
    done = 0
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        for part in pool.map(work.scores, blocks):
            scores[:, order[done : done + part.shape[1]]] = part
            done += part.shape[1]
            if tick is not None:
                tick(done, len(kept))
    return scores


def thread_count() -> int:
    """Threads to use: those that this process may run on, fewer where OMP_NUM_THREADS says so."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable or 1, int(wanted)) if wanted.isdigit() and int(wanted) else usable or 1


class _Buffers(threading.local):
    """Memory that a thread uses again for each of its blocks."""

    def __init__(self, width: int, dim: int) -> None:
        self.products = np.empty(max(PRODUCTS, QUERIES), dtype=np.float32)
        self.items = np.empty((width, dim), dtype=np.float32)


class BlockScorer:
    """Scores one block of queries after the other; what all blocks share is kept here."""

    def __init__(
        self, space: Space, stages: Stages, relevance: Relevance, metrics: Sequence[Metric]
    ) -> None:
        self.space, self.stages, self.relevance, self.metrics = space, stages, relevance, metrics
        self.codes = np.array([(metric.code, metric.k) for metric in metrics], dtype=np.int64)
        self.width = max(1, min(PRODUCTS // space.dim, len(stages.positions)))
        self.buffers = _Buffers(self.width, space.dim)

    def scores(self, rows: Ints) -> NDArray[np.float64]:
        """Scores (metrics, rows, stages) of a block of queries."""
        block = self.block(rows)
        thresholds, counts = self.count(rows, block)
        before, after = self.space.before.vectors, self.space.after.vectors
        counting.remove_own(block, before, after, thresholds, counts)
        return self.score(rows, block, thresholds, counts)

    def count(self, rows: Ints, block: QueryBlock) -> tuple[ThresholdLists, BucketCounts]:
        """How many items there are between the relevant ones, the queries themselves among them."""
        thresholds, lookups = self.thresholds(rows, block)
        counts = empty_counts(thresholds, len(self.stages))
        centred = self.space.centred(rows)
        for columns in self._columns(centred, fresh=0):
            counting.count_items(block, columns, thresholds, lookups, counts)
        counting.start_from_aligned(block, thresholds, counts)
        for columns in self._columns(centred, fresh=1):
            counting.count_items(block, columns, thresholds, lookups, counts)
        return thresholds, counts

    def thresholds(self, rows: Ints, block: QueryBlock) -> tuple[ThresholdLists, Lookups]:
        """The distances of the relevant items of each query."""
        thresholds, lookups = _empty_thresholds(self.relevance.counts[rows])
        before, after = self.space.before.vectors, self.space.after.vectors
        counting.prepare_thresholds(block, before, after, thresholds, lookups)
        return thresholds, lookups

    def score(
        self, rows: Ints, block: QueryBlock, thresholds: ThresholdLists, counts: BucketCounts
    ) -> NDArray[np.float64]:
        """Scores (metrics, rows, stages) from the counts."""
        ideals = ideal_gains(self.relevance, rows, self.metrics)
        scores = np.empty((len(self.metrics), len(rows), len(self.stages)))
        scoring.score_queries(block, thresholds, counts, self.codes, ideals, scores)
        return scores

    def block(self, rows: Ints) -> QueryBlock:
        """Some queries as the kernels want them."""
        space, relevance = self.space, self.relevance
        which = relevance.which[rows]
        return QueryBlock(
            queries=space.queries[rows],
            norms=space.norms[rows],
            shifts=space.shifts[rows],
            own=relevance.own[rows],
            lists=np.stack([relevance.starts[which], relevance.starts[which + 1]], axis=1),
            rows=relevance.rows,
            gains=relevance.gains,
            steps=self.stages.steps,
            stages=len(self.stages),
            squared=space.squared,
            width=padded_dim(space.dim),
            error=np.array([*space.error, space.largest]),
        )

    def _columns(self, queries: Matrix, fresh: int) -> Iterator[ItemColumns]:
        """One side of the gallery, as many columns at a time as a block of products holds.

        Items that are new at every stage are never seen aligned, those that never are never new.
        """
        space, stages, buffers = self.space, self.stages, self.buffers
        edges = stages.edges
        side, first, last, skipped = (
            (space.after, 0, edges[-2], len(stages))
            if fresh
            else (space.before, edges[1], edges[-1], 0)
        )
        width = max(1, min(self.width, len(buffers.products) // len(queries)))
        for start in range(first, last, width):
            rows = stages.positions[start : min(start + width, last)]
            items = np.take(side.vectors, rows, axis=0, out=buffers.items[: len(rows)], mode="clip")
            items -= space.centre
            products = buffers.products[: len(queries) * len(rows)]
            products = products.reshape(len(queries), len(rows))
            np.matmul(queries, items.T, out=products)
            yield ItemColumns(
                products=products,
                start=int(start),
                rows=rows,
                norms=side.norms[rows],
                offsets=side.offsets[rows],
                slope=np.float32(space.slope),
                gallery=side.vectors,
                edges=edges,
                fresh=fresh,
                skipped=skipped,
            )


def _empty_thresholds(relevant: Ints) -> tuple[ThresholdLists, Lookups]:
    starts = _starts(2 * relevant)
    size = starts[-1]
    thresholds = ThresholdLists(
        starts=starts,
        sizes=np.zeros(len(relevant), dtype=np.int64),
        exact=np.empty(size),
        values=np.empty(size),
        entries=np.empty(size, dtype=np.int64),
        steps=np.empty(size, dtype=np.int64),
        fresh=np.empty(size, dtype=np.bool_),
        gains=np.empty(size),
    )
    lookup_starts = _starts(2 * relevant * _CELLS_PER_THRESHOLD + 2 + SPREAD)
    short = 2 * (2 * relevant.max() + SPREAD) < 1 << 16
    lookups = Lookups(
        starts=lookup_starts,
        buckets=np.empty(lookup_starts[-1], dtype=np.uint16 if short else np.uint32),
        ranges=np.empty((len(relevant), 3), dtype=np.float32),
    )
    return thresholds, lookups


def empty_counts(thresholds: ThresholdLists, stages: int) -> BucketCounts:
    """Tables in which nothing has been counted yet."""
    starts = _starts((thresholds.sizes + SPREAD) * (stages + 1))
    return BucketCounts(
        starts=starts,
        tables=np.zeros(starts[-1], dtype=np.int32),
        bases=np.zeros(thresholds.starts[-1], dtype=np.int32),
    )


def _starts(sizes: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
