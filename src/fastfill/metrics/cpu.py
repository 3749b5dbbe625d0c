"""The pass on a CPU: BLAS for the products, Numba threads for the counting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Matrix
from fastfill.metrics import kernels, scoring
from fastfill.metrics.names import Metric
from fastfill.metrics.relevance import Relevance, Rows, ideal_gains
from fastfill.metrics.space import Space, padded_dim
from fastfill.metrics.stages import Stages, query_blocks

QUERIES = 1 << 9  # most queries of a block
PRODUCTS = 1 << 22  # numbers of a block of products: 16 MiB, about what a processor caches
TABLES = 1 << 23  # numbers of a block of tables: 32 MiB

_CELLS_PER_THRESHOLD = 16  # of a lookup table: at most one cell in sixteen holds one

Share = Callable[..., None]


def cpu_scores(
    space: Space,
    stages: Stages,
    relevance: Relevance,
    kept: Rows,
    metrics: Sequence[Metric],
    tick: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Scores (metrics, kept queries, stages)."""
    scores = np.empty((len(metrics), len(kept), len(stages)))
    # Queries with the same relevant items come together: their vectors stay in the cache.
    order = np.argsort(relevance.which[kept], kind="stable")
    done = 0
    threads = thread_count()
    steps = stages.steps
    with ThreadPoolExecutor(threads) as pool:
        for rows in query_blocks(relevance, kept[order], len(stages), TABLES, QUERIES):

            def share(kernel: Callable[..., None], *args: Any, size: int = len(rows)) -> None:
                """Run a kernel on all queries of the block, a part in each thread."""
                ends = np.linspace(0, size, min(size, 4 * threads) + 1).astype(np.int64)
                list(pool.map(lambda a, b: kernel(a, b, *args), ends[:-1], ends[1:]))

            part = _block_scores(space, stages, steps, relevance, rows, metrics, share)
            scores[:, order[done : done + len(rows)]] = part
            done += len(rows)
            if tick is not None:
                tick(done, len(kept))
    return scores


def thread_count() -> int:
    """Threads to use: those that this process may run on, fewer where OMP_NUM_THREADS says so."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable or 1, int(wanted)) if wanted.isdigit() and int(wanted) else usable or 1


def _block_scores(
    space: Space,
    stages: Stages,
    steps: Rows,
    relevance: Relevance,
    rows: Rows,
    metrics: Sequence[Metric],
    share: Share,
) -> NDArray[np.float64]:
    block = _block(space, stages, steps, relevance, rows)
    thresholds, lookups = _empty_thresholds(relevance.counts[rows])
    centred = space.centred[rows]
    before, after = space.before.vectors, space.after.vectors
    share(kernels.prepare, block, before, after, thresholds, lookups)
    counts = _empty_counts(thresholds, len(stages))
    for columns in _columns(space, stages, centred, fresh=0):
        share(kernels.count, block, columns, thresholds, lookups, counts)
    share(kernels.turn, block, thresholds, counts)
    for columns in _columns(space, stages, centred, fresh=1):
        share(kernels.count, block, columns, thresholds, lookups, counts)
    codes = np.array([(metric.code, metric.k) for metric in metrics], dtype=np.int64)
    ideals = ideal_gains(relevance, rows, metrics)
    scores = np.empty((len(metrics), len(rows), len(stages)))
    share(kernels.leave_out_own, block, before, after, thresholds, counts)
    share(scoring.finish, len(stages), thresholds, counts, codes, ideals, scores)
    return scores


def _block(
    space: Space, stages: Stages, steps: Rows, relevance: Relevance, rows: Rows
) -> kernels.Block:
    which = relevance.which[rows]
    return kernels.Block(
        queries=space.queries[rows],
        norms=space.norms[rows],
        shifts=space.shifts[rows],
        own=relevance.own[rows],
        lists=np.stack([relevance.starts[which], relevance.starts[which + 1]], axis=1),
        rows=relevance.rows,
        gains=relevance.gains,
        steps=steps,
        stages=len(stages),
        squared=space.squared,
        width=padded_dim(space.dim),
        error=np.array([*space.error, space.largest]),
    )


def _empty_thresholds(relevant: Rows) -> tuple[kernels.Thresholds, kernels.Lookups]:
    starts = _starts(2 * relevant)
    size = starts[-1]
    thresholds = kernels.Thresholds(
        starts=starts,
        sizes=np.zeros(len(relevant), dtype=np.int64),
        exact=np.empty(size),
        values=np.empty(size),
        entries=np.empty(size, dtype=np.int64),
        steps=np.empty(size, dtype=np.int64),
        fresh=np.empty(size, dtype=np.bool_),
        gains=np.empty(size),
    )
    lookup_starts = _starts(2 * relevant * _CELLS_PER_THRESHOLD + 2 + kernels.SPREAD)
    lookups = kernels.Lookups(
        starts=lookup_starts,
        buckets=np.empty(lookup_starts[-1], dtype=np.uint32),
        ranges=np.empty((len(relevant), 3), dtype=np.float32),
    )
    return thresholds, lookups


def _empty_counts(thresholds: kernels.Thresholds, stages: int) -> kernels.Counts:
    starts = _starts((thresholds.sizes + kernels.SPREAD) * (stages + 1))
    return kernels.Counts(
        starts=starts,
        tables=np.zeros(starts[-1], dtype=np.int32),
        bases=np.zeros(thresholds.starts[-1], dtype=np.int32),
    )


def _starts(sizes: Rows) -> Rows:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _columns(
    space: Space, stages: Stages, queries: Matrix, fresh: int
) -> Iterator[kernels.Columns]:
    """One side of the gallery, as many columns at a time as a block of products holds.

    Items that are new at every stage are never seen aligned, those that never are never new.
    """
    edges = stages.edges
    side, first, last, skipped = (
        (space.after, 0, edges[-2], len(stages))
        if fresh
        else (space.before, edges[1], edges[-1], 0)
    )
    width = max(1, PRODUCTS // len(queries))
    buffer = np.empty(len(queries) * min(width, max(last - first, 1)), dtype=np.float32)
    for start in range(first, last, width):
        rows = stages.positions[start : min(start + width, last)]
        products = buffer[: len(queries) * len(rows)].reshape(len(queries), len(rows))
        items = side.vectors[rows]
        items -= space.centre
        np.matmul(queries, items.T, out=products)
        yield kernels.Columns(
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
