"""A curve over a gallery in shards on one card: what `shards` counts on CPUs, counted there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from fastfill.errors import IdError, InputError, LabelError, some
from fastfill.features import Distance, Ints, Matrix, check_distance, normalised
from fastfill.metrics.cuda_counting import QUERIES, GalleryRows, NearCurve, query_bytes
from fastfill.metrics.cuda_device import free_bytes, full_precision, torch_device
from fastfill.metrics.cuda_operands import TorchSpace
from fastfill.metrics.cuda_streaming import CELLS, CPU_BYTES, HostShard, asking_order, uploaded
from fastfill.metrics.names import Metric
from fastfill.metrics.relevance import Relevance
from fastfill.metrics.scores import QueryScores
from fastfill.metrics.space import safe_scale
from fastfill.metrics.stages import query_blocks

if TYPE_CHECKING:
    from fastfill.metrics.shards import GalleryShard


@dataclass(frozen=True, eq=False)
class CudaShardedCurve:
    """Queries, relevant items, and when items become new: as in `shards.ShardedCurve`.

    The card holds the queries, their thresholds and tables, and one shard after the other.

    >>> from fastfill.metrics import as_metrics
    >>> from fastfill.metrics.shards import GalleryShard
    >>> new = np.float32([[0], [1], [4], [5]]); aligned = np.float32([[0], [4], [1], [5]])
    >>> gallery = [GalleryShard(np.array(r), aligned[r], new[r]) for r in ([0, 1], [2, 3])]
    >>> curve = CudaShardedCurve(new, GalleryShard(np.arange(4), aligned, new),
    ...     Relevance.from_labels([0, 0, 1, 1]), np.array([1, 0, 0, 1]), 1, as_metrics("cmc@1"),
    ...     device="cpu")
    >>> curve.scores(gallery).values["cmc@1"].mean()
    np.float64(1.0)
    """

    queries: Matrix  # (q, d)
    relevant: GalleryShard  # every item that is relevant to a query, or is one, by rising row
    relevance: Relevance  # of the whole gallery
    steps: Ints  # (n,) the first stage at which a row is new; the number of stages: never
    stages: int
    metrics: Sequence[Metric]
    distance: Distance = "l2"
    device: str = "cuda"

    def __post_init__(self) -> None:
        check_distance(self.distance)
        own = self.relevance.own
        missing = np.setdiff1d(np.append(self.relevance.rows, own[own >= 0]), self.relevant.rows)
        if len(missing):
            raise IdError(
                f"The vectors of the items {some(missing)}, which are relevant to a query or are "
                "one, were not given."
            )
        if not len(self._kept):
            raise LabelError("No query has a relevant item in the gallery: nothing to measure.")

    def scores(
        self, shards: Iterable[GalleryShard], tick: Callable[[int], None] | None = None
    ) -> QueryScores:
        """The metrics of all stages, from shards that hold every row once; `tick` hears of rows."""
        kept = self._kept
        order = asking_order(self.relevance, kept)
        values = np.empty((len(self.metrics), len(kept), self.stages))
        device = torch_device(self.device)
        with full_precision(), torch.inference_mode():
            curve = self._ask(kept[order], device)
            for rows in uploaded(map(self._host_shard, shards), device):
                curve.show(rows)
                if tick is not None:
                    tick(len(rows))
            done = 0
            for block in curve.blocks:
                values[:, order[done : done + len(block.rows)]] = curve.scores(block).cpu().numpy()
                done += len(block.rows)
        named = {metric.name: values[i] for i, metric in enumerate(self.metrics)}
        return QueryScores(kept, len(self.relevance) - len(kept), named)

    @cached_property
    def _kept(self) -> Ints:
        return np.flatnonzero(self.relevance.counts)

    @cached_property
    def _scale(self) -> np.float32:
        known = self.relevant
        if self.distance == "cosine":
            return np.float32(1)
        return safe_scale(self.queries, known.before, known.after)

    def _directed(self, vectors: Matrix, name: str) -> Matrix:
        """As `space` prepares them: normalised under cosine, huge and tiny ones scaled."""
        if self.distance == "cosine":
            return normalised(vectors, name)
        return vectors if self._scale == 1 else vectors * self._scale

    def _host_shard(self, shard: GalleryShard) -> HostShard:
        before = self._directed(shard.before, "aligned gallery")
        after = self._directed(shard.after, "new gallery")
        return before, after, self.steps[shard.rows]

    def _ask(self, rows: Ints, device: torch.device) -> NearCurve:
        """All queries on the device."""
        queries = self._directed(self.queries, "queries")
        before, after, steps = self._host_shard(self.relevant)
        means = [side.mean(axis=0, dtype=np.float64) for side in (before, after)]
        centre = torch.tensor(sum(means) / 2, dtype=torch.float32, device=device)
        largest = max(float(queries.max()), -float(queries.min()))
        space = TorchSpace.of(largest, centre, self.distance == "l2")

        def fetch(wanted: Ints) -> GalleryRows:
            at = np.searchsorted(self.relevant.rows, wanted)
            known = before[at], after[at], steps[at]
            return GalleryRows(*(torch.tensor(part, device=device) for part in known))

        curve = NearCurve(space, self.relevance, self.stages, self.metrics)
        for block in self._blocks(rows, device):
            curve.ask(block, torch.tensor(queries[block], device=device), fetch)
        return curve

    def _blocks(self, rows: Ints, device: torch.device) -> list[Ints]:
        """Queries in blocks, if there is room for all of them."""
        dim, counts = self.queries.shape[1], self.relevance.counts
        blocks = list(query_blocks(self.relevance, rows, self.stages, CELLS, QUERIES))
        needed = sum(
            len(block) * query_bytes(dim, self.stages, int(counts[block].max())) for block in blocks
        )
        free = free_bytes(device, CPU_BYTES)
        if needed > free:
            raise InputError(
                f"{len(rows):,} queries and their tables need {needed / 1e9:.1f} GB, and {device} "
                f"has {free / 1e9:.1f} GB free: measure some of the queries at a time."
            )
        return blocks
