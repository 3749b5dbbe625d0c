"""Curves over a gallery of any size on one card: the items pass by once, and counts stay.

A metric asks how many items are as near as each relevant one (see `names`). Almost all items of a
large gallery are farther than all of those, and change nothing: half-precision products, whose
error is bounded (`cuda_operands`), are enough to pass over them. What remains is counted by its
distance in float64. So the ranks are exactly those of a CPU, bit for bit.

The card holds the queries, their thresholds and tables, and a few spans of the gallery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fastfill.features import Ints
from fastfill.metrics import cuda_plain
from fastfill.metrics.cuda_device import has_kernels
from fastfill.metrics.cuda_operands import (
    ROWS,
    SPAN,
    ItemOperand,
    QueryOperand,
    TorchSpace,
    item_operand,
    padded_terms,
    query_operand,
)
from fastfill.metrics.cuda_thresholds import (
    ThresholdTensors,
    curve_scores,
    exact_distances,
    find_thresholds,
    relevant_lists,
    search_rows,
)
from fastfill.metrics.names import Metric
from fastfill.metrics.relevance import Relevance, ideal_gains
from fastfill.metrics.space import padded_dim

QUERIES = 66 * ROWS  # most queries of a block: with 16 passes of items, 8 × 132 programs

CountNear = Callable[[QueryOperand, Tensor, ItemOperand, Tensor, bool], None]


@dataclass(frozen=True, eq=False)
class GalleryRows:
    """Some rows of the gallery on the device, as aligned and as new vectors."""

    before: Tensor  # (k, d)
    after: Tensor  # (k, d)
    steps: Tensor  # (k,) the first stage at which a row is new; the number of stages: never

    def __len__(self) -> int:
        return len(self.steps)


Fetch = Callable[[Ints], GalleryRows]  # rows of the gallery by their numbers


@dataclass(frozen=True, eq=False)
class _Block:
    """Queries that are worked on together."""

    rows: Ints  # (Q,) their numbers
    operand: QueryOperand
    thresholds: ThresholdTensors
    table: Tensor  # (Q, stages + 2, m) int32: see `cuda_plain.count_near`


def near_counter(device: torch.device) -> CountNear:
    """The kernels where they run, else plain torch."""
    if has_kernels(device):
        from fastfill.metrics.cuda_kernels import count_near

        return count_near
    return cuda_plain.count_near


class NearCurve:
    """The curve of some queries: ask for all of them, show every row of the gallery, and score."""

    def __init__(
        self,
        space: TorchSpace,
        relevance: Relevance,
        stages: int,
        metrics: Sequence[Metric],
        count: CountNear | None = None,
    ) -> None:
        self.space, self.relevance, self.metrics = space, relevance, metrics
        self.stages = stages
        self.device = space.centre.device
        self.blocks: list[_Block] = []
        self._count = count or near_counter(self.device)

    def ask(self, rows: Ints, queries: Tensor, fetch: Fetch) -> None:
        """Add queries by their numbers and vectors (Q, d): their relevant items are fetched."""
        items, gains = relevant_lists(self.relevance, rows)
        own = self.relevance.own[rows]
        wanted = np.unique(np.concatenate([items[items >= 0], own[own >= 0]]))
        known = fetch(wanted)
        thresholds = find_thresholds(
            queries,
            known.before,
            known.after,
            torch.as_tensor(_places(wanted, items), device=self.device),
            torch.as_tensor(gains, device=self.device),
            known.steps,
            self.stages,
            self.space.squared,
        )
        finite = thresholds.exact.isfinite()
        farthest = thresholds.exact.where(finite, -torch.inf).amax(dim=1)
        shape = (len(rows), self.stages + 2, thresholds.exact.shape[1])
        table = torch.zeros(shape, dtype=torch.int32, device=self.device)
        places = torch.as_tensor(_places(wanted, own), device=self.device)
        self._remove_own(queries, places, known, thresholds.exact, table)
        operand = query_operand(self.space, queries, farthest)
        self.blocks.append(_Block(rows, operand, thresholds, table))

    def show(self, shard: GalleryRows) -> None:
        """Count some rows of the gallery."""
        for start in range(0, len(shard), SPAN):
            span = slice(start, start + SPAN)
            steps = shard.steps[span]
            for vectors, seen, fresh in (
                (shard.before[span], steps > 0, False),
                (shard.after[span], steps < self.stages, True),
            ):
                if bool(seen.any()):
                    self.count(item_operand(self.space, vectors[seen], steps[seen]), fresh)

    def count(self, items: ItemOperand, fresh: bool) -> None:
        """Count some items of one side of the gallery."""
        for block in self.blocks:
            self._count(block.operand, block.thresholds.exact, items, block.table, fresh)

    def scores(self, block: _Block) -> Tensor:
        """Scores (metrics, Q, stages) of a block of queries."""
        ideals = ideal_gains(self.relevance, block.rows, self.metrics)
        return curve_scores(
            block.thresholds,
            block.table[:, -1],
            block.table[:, : self.stages],
            self.metrics,
            torch.as_tensor(ideals, device=self.device),
        )

    def _remove_own(
        self, queries: Tensor, own: Tensor, known: GalleryRows, exact: Tensor, table: Tensor
    ) -> None:
        """A query that is itself in the gallery will be counted like any item: less one."""
        mine = (own >= 0).nonzero()[:, 0]
        own = own[mine]
        steps = known.steps[own].long()
        for side, seen, sign in (
            (known.before, steps > 0, 1),
            (known.after, steps < self.stages, -1),
        ):
            which, items = mine[seen], side[own[seen]]
            distances = exact_distances(queries[which], items, self.space.squared)
            buckets = search_rows(exact, which, distances)
            inside = buckets < exact.shape[1]
            which, buckets = which[inside], buckets[inside]
            table[which, steps[seen][inside], buckets] += sign
            if sign > 0:
                table[which, -1, buckets] -= 1


def query_bytes(dim: int, stages: int, relevant: int) -> int:
    """Memory that a query takes: its vectors, thresholds and table.

    >>> query_bytes(256, 11, 10)
    3248
    """
    thresholds = 2 * relevant
    return 2 * padded_terms(dim) + 4 * padded_dim(dim) + thresholds * (33 + 4 * (stages + 2)) + 12


def _places(wanted: Ints, rows: Ints) -> Ints:
    """Where rows are among the wanted ones, which rise; −1 stays."""
    return np.where(rows >= 0, np.searchsorted(wanted, rows), -1)
