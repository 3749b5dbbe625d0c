"""Curves of galleries in the host's memory, which pass through a card in shards of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastfill.features import Array, Ints, Matrix
from fastfill.metrics.cuda_counting import QUERIES, GalleryRows, NearCurve, query_bytes
from fastfill.metrics.cuda_device import free_bytes, has_kernels
from fastfill.metrics.cuda_operands import SPAN, TorchSpace, item_operand
from fastfill.metrics.cuda_plain import near_pairs
from fastfill.metrics.names import Metric
from fastfill.metrics.relevance import Relevance
from fastfill.metrics.space import Space
from fastfill.metrics.stages import Stages, query_blocks

WORTH = 1 << 35  # pairs of queries and items from which on compiling the kernels pays
NEAR = 0.2  # share of the pairs that may be looked at twice; beyond, `cuda` looks at all of them
SHARE = 0.5  # of the free memory of a card that queries, thresholds and tables may take
CPU_BYTES = 1 << 31  # what is taken to be free on a CPU
CELLS = 1 << 28  # most numbers in the tables of a block

_SAMPLE = 256, 4096  # queries and items on which the share of near pairs is estimated

HostShard = tuple[Matrix, Matrix, Ints]  # aligned vectors, new vectors, steps


def pays(
    space: Space, stages: Stages, relevance: Relevance, kept: Ints, device: torch.device
) -> bool:
    """Whether passing over far items is the faster way, on this device and for these data."""
    return (
        has_kernels(device)
        and len(kept) * len(stages.positions) >= WORTH
        and near_share(space, stages, relevance, kept, device) <= NEAR
    )


def near_share(
    space: Space, stages: Stages, relevance: Relevance, kept: Ints, device: torch.device
) -> float:
    """The share of the items that are about as near as the farthest relevant one, by a sample."""
    rng = np.random.default_rng(0)
    source = _HostGallery(space, stages, relevance, device)
    curve = source.curve(())
    source.ask(curve, rng.choice(kept, min(_SAMPLE[0], len(kept)), replace=False))
    size = len(stages.positions)
    some = source.fetch(rng.choice(size, min(_SAMPLE[1], size), replace=False))
    queries = curve.blocks[0].operand
    share = 0.0
    for vectors in (some.before, some.after):
        items = item_operand(curve.space, vectors, some.steps)
        near = near_pairs(queries, items, slice(0, len(items)))[: len(queries)]
        share += float(near.double().mean()) / 2
    return share


def near_scores(
    space: Space,
    stages: Stages,
    relevance: Relevance,
    kept: Ints,
    metrics: Sequence[Metric],
    device: torch.device,
    tick: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Scores (metrics, kept queries, stages); the gallery passes by once for as many queries as
    the card has room for."""
    source = _HostGallery(space, stages, relevance, device)
    scores = np.empty((len(metrics), len(kept), len(stages)))
    order = asking_order(relevance, kept)
    done = 0
    for group in source.groups(kept[order]):
        curve = source.curve(metrics)
        for rows in group:
            source.ask(curve, rows)
        asked = sum(map(len, group))
        for i, shard in enumerate(uploaded(source.shards(), device)):
            curve.show(shard)
            if tick is not None:
                seen = min((i + 1) * SPAN / len(stages.positions), 1.0)
                tick(done + int(asked * seen), len(kept))
        for block in curve.blocks:
            places = order[done : done + len(block.rows)]
            scores[:, places] = curve.scores(block).cpu().numpy()
            done += len(places)
    return scores


def asking_order(relevance: Relevance, kept: Ints) -> Ints:
    """Queries with as many relevant items come together, and those with the same ones: a block has
    little padding then, and few items to fetch."""
    return np.lexsort((relevance.which[kept], relevance.counts[kept]))


class _HostGallery:
    """A gallery in the host's memory, and what of it is wanted on the card."""

    def __init__(
        self, space: Space, stages: Stages, relevance: Relevance, device: torch.device
    ) -> None:
        self.host, self.stages, self.relevance, self.device = space, stages, relevance, device
        largest = max(float(space.queries.max()), -float(space.queries.min()))
        centre = torch.tensor(space.centre, device=device)
        self.space = TorchSpace.of(largest, centre, space.squared)

    def curve(self, metrics: Sequence[Metric]) -> NearCurve:
        """One without queries yet."""
        return NearCurve(self.space, self.relevance, len(self.stages), metrics)

    def ask(self, curve: NearCurve, rows: Ints) -> None:
        """Add queries to a curve."""
        curve.ask(rows, torch.tensor(self.host.queries[rows], device=self.device), self.fetch)

    def fetch(self, rows: Ints) -> GalleryRows:
        """Some rows of the gallery, on the device."""
        before, after = self.host.before.vectors, self.host.after.vectors
        shard = before[rows], after[rows], self.stages.steps[rows]
        return GalleryRows(*(torch.tensor(part, device=self.device) for part in shard))

    def groups(self, rows: Ints) -> Iterator[list[Ints]]:
        """Queries in blocks, as many blocks together as there is room for."""
        room = SHARE * free_bytes(self.device, CPU_BYTES)
        group: list[Ints] = []
        taken = 0
        for block in query_blocks(self.relevance, rows, len(self.stages), CELLS, QUERIES):
            most = int(self.relevance.counts[block].max())
            size = len(block) * query_bytes(self.space.dim, len(self.stages), most)
            if group and taken + size > room:
                yield group
                group, taken = [], 0
            group.append(block)
            taken += size
        yield group

    def shards(self) -> Iterator[HostShard]:
        """All rows, a span at a time."""
        before, after, steps = (
            self.host.before.vectors,
            self.host.after.vectors,
            self.stages.steps,
        )
        for start in range(0, len(steps), SPAN):
            rows = slice(start, start + SPAN)
            yield before[rows], after[rows], steps[rows]


def uploaded(shards: Iterable[HostShard], device: torch.device) -> Iterator[GalleryRows]:
    """Shards on the device: while one is worked on, the next is on its way."""
    if device.type != "cuda":
        for shard in shards:
            yield GalleryRows(*map(torch.tensor, shard))
        return
    lane = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    arrived: tuple[GalleryRows, torch.cuda.Event] | None = None
    for shard in shards:
        with torch.cuda.stream(lane):
            sent = GalleryRows(*(_send(part, device) for part in shard)), lane.record_event()
        if arrived is not None:
            yield _received(*arrived)
        arrived = sent
    if arrived is not None:
        yield _received(*arrived)


def _send(array: Array, device: torch.device) -> Tensor:
    """A copy through pinned memory, which torch keeps until it is made."""
    pinned = torch.empty(array.shape, dtype=_dtype(array), pin_memory=True)
    np.copyto(pinned.numpy(), array)
    return pinned.to(device, non_blocking=True)


def _dtype(array: Array) -> torch.dtype:
    return torch.float32 if array.dtype == np.float32 else torch.int64


def _received(shard: GalleryRows, event: torch.cuda.Event) -> GalleryRows:
    """The shard, for the stream that works with it."""
    stream = torch.cuda.current_stream(shard.steps.device)
    stream.wait_event(event)
    for part in (shard.before, shard.after, shard.steps):
        part.record_stream(stream)
    return shard
