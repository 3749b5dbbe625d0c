"""Curves in torch: on CUDA devices, and on CPUs where Numba is not installed.

The same counting as in `kernels`, a block at a time; ranks are the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastfill.features import Ints
from fastfill.metrics.cuda_device import free_bytes, full_precision, torch_device
from fastfill.metrics.cuda_streaming import near_scores, pays
from fastfill.metrics.cuda_thresholds import (
    ThresholdTensors,
    curve_scores,
    exact_distances,
    find_thresholds,
    picked_distances,
    relevant_lists,
    search_rows,
)
from fastfill.metrics.names import Metric
from fastfill.metrics.relevance import Relevance, ideal_gains
from fastfill.metrics.space import GallerySide, Space
from fastfill.metrics.stages import Stages, query_blocks

COLUMNS = 1 << 14  # most items of a block of products
QUERIES = 1 << 12  # most queries of a block
SHARE = 0.25  # of the free memory that a block may take
CPU_BYTES = 1 << 30  # what is taken to be free on a CPU

_BYTES = 48  # per number of a block of products: value, bounds, bucket, index, masks


@dataclass(frozen=True, eq=False)
class _SideTensors:
    """One side of the gallery on the device; all but `vectors` in the order of backfilling."""

    vectors: Tensor  # (n, d) as in the gallery
    centred: Tensor  # (n, d)
    norms: Tensor  # (n,)
    offsets: Tensor  # (n,)


@dataclass(frozen=True, eq=False)
class _CurveTensors:
    """What all blocks share."""

    space: Space
    stages: Stages
    relevance: Relevance
    metrics: Sequence[Metric]
    device: torch.device
    before: _SideTensors
    after: _SideTensors
    positions: Tensor  # (n,)
    steps: Tensor  # (n,) of the gallery's rows
    error: tuple[float, float, float]


def torch_scores(
    space: Space,
    stages: Stages,
    relevance: Relevance,
    kept: Ints,
    metrics: Sequence[Metric],
    device: str,
    tick: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Scores (metrics, kept queries, stages)."""
    place = torch_device(device)
    scores = np.empty((len(metrics), len(kept), len(stages)))
    order = np.argsort(relevance.counts[kept], kind="stable")  # little padding within a block
    done = 0
    with full_precision(), torch.inference_mode():
        if pays(space, stages, relevance, kept, place):
            return near_scores(space, stages, relevance, kept, metrics, place, tick)
        shared = _to_device(space, stages, relevance, metrics, place)
        cells, most = _block_limits(place, min(COLUMNS, len(stages.positions)))
        for rows in query_blocks(relevance, kept[order], 2 * len(stages), cells, most):
            part = _block_scores(shared, rows)
            scores[:, order[done : done + len(rows)]] = part.cpu().numpy()
            done += len(rows)
            if tick is not None:
                tick(done, len(kept))
    return scores


def _block_limits(device: torch.device, columns: int) -> tuple[int, int]:
    """How many numbers the tables of a block may hold, and how many queries it may have."""
    memory = int(SHARE * free_bytes(device, CPU_BYTES))
    return max(1, memory // 2 // 32), min(QUERIES, max(1, memory // 2 // (columns * _BYTES)))


def _to_device(
    space: Space,
    stages: Stages,
    relevance: Relevance,
    metrics: Sequence[Metric],
    device: torch.device,
) -> _CurveTensors:
    positions = torch.tensor(stages.positions, device=device)
    centre = torch.as_tensor(space.centre, device=device)

    def columns(side: GallerySide) -> _SideTensors:
        vectors = _tensor(side.vectors, device)
        return _SideTensors(
            vectors=vectors,
            centred=vectors[positions] - centre,
            norms=_tensor(side.norms.astype(np.float32), device)[positions],
            offsets=_tensor(side.offsets, device)[positions],
        )

    before = columns(space.before)
    return _CurveTensors(
        space=space,
        stages=stages,
        relevance=relevance,
        metrics=metrics,
        device=device,
        before=before,
        after=before if space.after is space.before else columns(space.after),
        positions=positions,
        steps=torch.as_tensor(stages.steps, device=device),
        error=space.error,
    )


def _tensor(array: NDArray[np.float32], device: torch.device) -> Tensor:
    """On the device; copied, since frozen arrays cannot be shared with torch."""
    return torch.tensor(array, device=device)


def _block_scores(shared: _CurveTensors, rows: Ints) -> Tensor:
    """Scores (metrics, Q, stages) of some queries."""
    space, stages = shared.space, len(shared.stages)
    queries = _tensor(space.queries[rows], shared.device)
    lists = relevant_lists(shared.relevance, rows)
    items, gains = (torch.as_tensor(a, device=shared.device) for a in lists)
    before, after = shared.before.vectors, shared.after.vectors
    thresholds = find_thresholds(
        queries, before, after, items, gains, shared.steps, stages, space.squared
    )
    old = _count(shared, rows, queries, thresholds, shared.before, first=1, last=stages + 1)
    new = _count(shared, rows, queries, thresholds, shared.after, first=0, last=stages)
    _remove_own(shared, rows, queries, thresholds, old, new)
    ideals = torch.tensor(ideal_gains(shared.relevance, rows, shared.metrics), device=shared.device)
    base, changes = old.sum(dim=1), (new - old)[:, :-1]  # at first everything is aligned
    return curve_scores(thresholds, base[:, :-1], changes[..., :-1], shared.metrics, ideals)


def _count(
    shared: _CurveTensors,
    rows: Ints,
    queries: Tensor,
    thresholds: ThresholdTensors,
    side: _SideTensors,
    first: int,
    last: int,
) -> Tensor:
    """Items of the steps `first` … `last` by step and bucket, (Q, stages + 1, m + 1)."""
    space, edges = shared.space, shared.stages.edges
    size = thresholds.exact.shape[1] + 1
    width = (len(shared.stages) + 1) * size
    table = torch.zeros((len(rows), width), dtype=torch.int32, device=shared.device)
    one = torch.ones((1, 1), dtype=torch.int32, device=shared.device)
    centred = _tensor(space.centred(rows), shared.device)
    norms = _tensor(space.norms[rows].astype(np.float32), shared.device)
    shifts = torch.tensor(space.shifts[rows], device=shared.device)
    infinite = thresholds.exact.new_full((len(rows), 1), torch.inf)
    exact = torch.cat([thresholds.exact, infinite], dim=1)
    values = (exact - shifts[:, None]).float()
    for start in range(int(edges[first]), int(edges[last]), COLUMNS):
        stop = min(start + COLUMNS, int(edges[last]))
        products = torch.addmm(
            side.offsets[start:stop], centred, side.centred[start:stop].T, alpha=space.slope
        )
        slack = _slack(shared.error, norms, side.norms[start:stop])
        buckets = torch.searchsorted(values, products - slack)
        unsure = values.gather(1, buckets) <= products.add_(slack)
        which, place = unsure.nonzero(as_tuple=True)
        items = shared.positions[start + place]
        distances = picked_distances(queries, which, side.vectors, items, space.squared)
        buckets[which, place] = search_rows(exact, which, distances)
        steps = shared.steps[shared.positions[start:stop]]
        index = buckets.add_(steps * size)
        table.scatter_add_(1, index, one.expand(index.shape))
    return table.view(len(rows), -1, size)


def _slack(error: tuple[float, float, float], norms: Tensor, others: Tensor) -> Tensor:
    """How far the value of a product may be off, (Q, c)."""
    a, b, c = error
    return torch.addcmul(b * others.square() + c, a * norms[:, None], others)


def _remove_own(
    shared: _CurveTensors,
    rows: Ints,
    queries: Tensor,
    thresholds: ThresholdTensors,
    old: Tensor,
    new: Tensor,
) -> None:
    """A query that is itself in the gallery was counted like any item: take it away again."""
    own = torch.as_tensor(shared.relevance.own[rows], device=shared.device)
    mine = (own >= 0).nonzero()[:, 0]
    own = own[mine]
    steps = shared.steps[own]
    for side, table, seen in (
        (shared.before, old, steps > 0),
        (shared.after, new, steps < len(shared.stages)),
    ):
        which = mine[seen]
        items = side.vectors[own[seen]]
        distances = exact_distances(queries[which], items, shared.space.squared)
        buckets = search_rows(thresholds.exact, which, distances)
        table[which, steps[seen], buckets] -= 1
