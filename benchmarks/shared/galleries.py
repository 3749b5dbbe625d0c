"""Made-up galleries for benchmarks of speed: classes, an aligned and a new side, an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Matrix
from fastfill.metrics import Metric, QueryScores, Relevance, curve_scores


@dataclass(frozen=True, eq=False)
class MadeGallery:
    """A gallery that is its own query set."""

    aligned: Matrix  # (n, d)
    new: Matrix  # (n, d)
    labels: NDArray[np.int64]  # (n,)
    positions: NDArray[np.int64]  # (n,) the order of backfilling

    @property
    def relevance(self) -> Relevance:
        """The other items of the same class."""
        return Relevance.from_labels(self.labels)

    def curve(
        self,
        points: int,
        metrics: Sequence[Metric],
        device: str | None = None,
        queries: slice = slice(None),
    ) -> QueryScores:
        """The whole curve, of all queries or of some."""
        return curve_scores(
            self.new[queries],
            self.aligned,
            self.new,
            self.positions,
            self.counts(points),
            self.relevance.take(np.arange(len(self.new))[queries]),
            metrics,
            device=device,
        )

    def two_products(self, queries: slice = slice(None), rows: int = 1024) -> None:
        """The inner products with both sides of the gallery, and nothing else."""
        buffer = np.empty((rows, len(self.new)), dtype=np.float32)
        for start in range(0, len(self.new[queries]), rows):
            block = self.new[queries][start : start + rows]
            for side in (self.aligned, self.new):
                np.matmul(block, side.T, out=buffer[: len(block)])

    def counts(self, points: int) -> NDArray[np.int64]:
        """Items that are new at evenly spaced fractions."""
        return np.linspace(0, len(self.new), points).astype(np.int64)


def make_gallery(items: int, per_class: int, dim: int = 128, seed: int = 0) -> MadeGallery:
    """Features after a ReLU, with classes that overlap, as hard to tell apart as real ones.

    Rounded to 1/32, so that float32 distances are exact and there are ties: another way of
    computing must come to the same figures, not to similar ones.
    """
    rng = np.random.default_rng(seed)
    labels = np.minimum(np.arange(items), items // per_class * per_class - 1) // per_class
    centres = rng.normal(size=(labels.max() + 1, dim)).astype(np.float32)
    new = np.maximum(0.6 * centres[labels] + rng.standard_normal((items, dim), np.float32), 0)
    aligned = np.maximum(new + 0.5 * rng.standard_normal((items, dim), np.float32), 0)
    shuffled = rng.permutation(items)
    return MadeGallery(
        aligned=(np.round(aligned * 32) / 32).astype(np.float32)[shuffled],
        new=(np.round(new * 32) / 32).astype(np.float32)[shuffled],
        labels=labels[shuffled],
        positions=rng.permutation(items),
    )
