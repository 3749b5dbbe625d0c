"""A made-up gallery that is never anywhere as a whole: any part of it is made again from its seed.

Every class has one query and one item in each copy of the class list: row = copy · classes + class.
Class centres are normal, queries and new vectors scatter around them, and aligned vectors around
the new ones, each item by an error of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fastfill.features import Ints
from fastfill.metrics import QueryScores, Relevance
from fastfill.metrics.cuda_counting import GalleryRows
from fastfill.metrics.cuda_operands import TorchSpace

SCATTER = 1.1  # of queries and new vectors, in standard deviations of the centres
ERROR = 0.5  # of aligned vectors, times 0.5 to 1.5

CENTRES, QUERIES, NEW, ALIGNED, SIZES, STEPS = range(6)  # what is random, each with its own seed


@dataclass(frozen=True, eq=False)
class MadeShards:
    """`copies` shards of `classes` items each, made in parts of `part` classes."""

    classes: int
    copies: int
    dim: int
    stages: int
    part: int
    device: torch.device

    def __len__(self) -> int:
        return self.classes * self.copies

    @property
    def parts(self) -> range:
        """The numbers of all parts."""
        return range(-(-self.classes // self.part))

    def rows(self, part: int) -> Ints:
        """The queries of a part, which bear the numbers of their classes."""
        return np.arange(part * self.part, min((part + 1) * self.part, self.classes))

    @cached_property
    def relevance(self) -> Relevance:
        """All items of the class."""
        classes = np.arange(self.classes)
        return Relevance(
            items=len(self),
            which=classes,
            starts=np.arange(self.classes + 1) * self.copies,
            rows=(classes[:, None] + self.classes * np.arange(self.copies)).ravel(),
            gains=np.ones(len(self)),
            own=np.full(self.classes, -1),
        )

    @cached_property
    def space(self) -> TorchSpace:
        """Around the origin: nothing normal is beyond 8 standard deviations."""
        centre = torch.zeros(self.dim, device=self.device)
        return TorchSpace.of(8.0 * (1 + SCATTER), centre, squared=True)

    def queries(self, part: int) -> Tensor:
        """The queries of a part, (Q, d)."""
        return self._normal(CENTRES, part) + SCATTER * self._normal(QUERIES, part)

    def items(self, copy: int, part: int) -> GalleryRows:
        """The items of a part in one shard."""
        after = self._normal(CENTRES, part) + SCATTER * self._normal(NEW, part, copy)
        sizes = ERROR * (0.5 + self._uniform(SIZES, part, copy))
        before = after + sizes[:, None] * self._normal(ALIGNED, part, copy)
        draws = self._uniform(STEPS, part, copy)
        steps = 1 + (draws * (self.stages - 1)).long().clamp(max=self.stages - 2)
        return GalleryRows(before, after, steps)

    def shard(self, copy: int) -> GalleryRows:
        """All items of one shard."""
        return joined([self.items(copy, part) for part in self.parts])

    def relevant(self, part: int) -> GalleryRows:
        """The items of a part in all shards, by rising row: all that its queries ask for."""
        return joined([self.items(copy, part) for copy in range(self.copies)])

    def _normal(self, kind: int, part: int, copy: int = 0) -> Tensor:
        shape = len(self.rows(part)), self.dim
        generator = self._generator(kind, part, copy)
        return torch.randn(shape, generator=generator, device=self.device)

    def _uniform(self, kind: int, part: int, copy: int) -> Tensor:
        generator = self._generator(kind, part, copy)
        return torch.rand(len(self.rows(part)), generator=generator, device=self.device)

    def _generator(self, kind: int, part: int, copy: int) -> torch.Generator:
        seed = (kind * 1000 + copy) * 100_000 + part
        return torch.Generator(self.device).manual_seed(seed)


def joined(parts: list[GalleryRows]) -> GalleryRows:
    """Parts of a gallery behind each other."""
    return GalleryRows(
        torch.cat([part.before for part in parts]),
        torch.cat([part.after for part in parts]),
        torch.cat([part.steps for part in parts]),
    )


def worst_difference(made: MadeShards, scores: QueryScores, asked: int = 20) -> float:
    """The first queries, from all distances in float64, at three stages, the obvious way."""
    queries = made.queries(0)[:asked].double()
    before, after, steps = [], [], []
    for copy in range(made.copies):
        for part in made.parts:
            items = made.items(copy, part)
            before.append(_distances(queries, items.before))
            after.append(_distances(queries, items.after))
            steps.append(items.steps)
    sides, step = (torch.cat(before, dim=1), torch.cat(after, dim=1)), torch.cat(steps)
    worst = 0.0
    for stage in (0, made.stages // 2, made.stages - 1):
        gallery = torch.where(step <= stage, sides[1], sides[0])  # (asked, n)
        for query in range(len(queries)):
            values = _obvious(gallery[query], gallery[query, query :: made.classes])
            for name, value in values.items():
                worst = max(worst, abs(float(scores.values[name][query, stage]) - value))
    return worst


def _distances(queries: Tensor, items: Tensor) -> Tensor:
    return torch.stack([(items.double() - query).square().sum(dim=1) for query in queries])


def _obvious(distances: Tensor, relevant: Tensor) -> dict[str, float]:
    """Metrics of one query from all distances and those of its relevant items."""
    nearer = torch.stack([(distances <= one).sum() for one in relevant.sort().values]).double()
    ranks = torch.arange(1, len(relevant) + 1, device=nearer.device)
    first = int(nearer[0])
    return {
        "map": float((ranks / nearer).mean()),
        "cmc@1": float(first <= 1),
        "cmc@10": float(first <= 10),
    }
