"""The migration rehearsed on the pairs, from which `Forecast.from_pairs` predicts the real one.

Each pair plays a query whose new vector is known, and searches what maps that have not seen it make
of the gallery: the real one for metrics with labels (see `drawing`), a miniature of it for the
agreement of neighbours, which asks for more detail than draws have (see `miniature`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import fit_alignment, fit_part
from fastfill.errors import LabelError, ShapeError
from fastfill.evaluate.drawing import POINTS, Column, Part, Rows, World, labelled
from fastfill.evaluate.forecast import LEVEL, Forecast
from fastfill.evaluate.lessons import Lessons
from fastfill.evaluate.miniature import Miniature, agreements
from fastfill.evaluate.simulation import as_fractions
from fastfill.features import Distance, Features, Matrix, Pairs
from fastfill.metrics import Metric, as_metric

FOLDS = 10
DRAWS = 400  # curves that are as likely
QUERIES = 2_000  # of users, at most, that are played through
NORMAL = 1.645  # half the width of 90 % of a normal distribution, in standard deviations


class Rehearsal:
    """All that is fitted once, for forecasts of several metrics and policies.

    >>> rng = np.random.default_rng(0); old = rng.normal(size=(400, 6)).astype(np.float32)
    >>> new = np.tanh(old) + 0.2 * rng.normal(size=old.shape); kinds = (old[:, 0] > 0).astype(int)
    >>> from fastfill.features import Features
    >>> pairs = Pairs(Features(old[:100]), Features(new[:100], labels=kinds[:100]))
    >>> rehearsal = Rehearsal(pairs, 400, method="ridge", gallery=old[100:],
    ...                       gallery_labels=kinds[100:])
    >>> [rehearsal.forecast(metric).values.shape for metric in ("map", "agreement@10")]
    [(21,), (21,)]
    """

    def __init__(
        self,
        pairs: Pairs,
        items: int,
        *,
        distance: Distance = "l2",
        method: str = "auto",
        gallery: Matrix | None = None,
        gallery_labels: ArrayLike | None = None,
        taught: Pairs | None = None,
        done: ArrayLike | None = None,
        queries: Features | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self.world = World.of(pairs, items, gallery, gallery_labels, distance, done)
        self.lessons = Lessons.of(pairs, taught)
        self.seed, self.options = seed, options
        self.alignment = fit_alignment(
            self.lessons.pairs, method=method, distance=distance, seed=seed, **options
        )
        self._queries = queries
        self._parts: list[Part] = []
        self._miniature: Miniature | None = None

    def forecast(
        self,
        metric: str = "agreement@10",
        policy: str = "sigma",
        refits: Sequence[float] = (),
        progress: bool = False,
    ) -> Forecast:
        """The curve of one metric along one policy; see `Forecast.from_pairs`."""
        measure, world = as_metric(metric), self.world
        fractions = as_fractions(POINTS)
        if measure.family == "agreement":
            found = agreements(self.miniature, world.items, measure.k, fractions, policy)
            scores, doubt = found.scores, found.doubt
        elif world.labels is None:
            raise LabelError(
                f"A forecast of {measure.name} needs the labels of the pairs and of the gallery. "
                "Without them forecast agreement@k, the share of the k new neighbours found."
            )
        else:
            scores, doubt = labelled(
                world, self.parts, measure, policy, self.seed, progress, self._users()
            )
        forecast = _with_band(measure, world, fractions, scores, doubt, self.seed)
        return _unbounded_above(forecast, min(refits)) if len(refits) else forecast

    @property
    def parts(self) -> list[Part]:
        """The gallery through maps that each have not seen a fold of the pairs."""
        if not self._parts:
            order = np.random.default_rng([self.seed, 1]).permutation(len(self.world.pairs))
            for held in np.array_split(order, FOLDS):
                self._parts.append(self._part(np.sort(held)))
        return self._parts

    def _part(self, held: Rows) -> Part:
        world, pairs = self.world, self.world.pairs
        kept = np.setdiff1d(np.arange(len(pairs)), held)
        rows = self.lessons.without(held)
        map_ = fit_part(self.lessons.pairs, rows, self.alignment, seed=self.seed, **self.options)
        aligned, queries = map_(world.old), pairs.new.vectors[held]
        near = world.distances(queries, aligned.vectors)
        labels = None if world.labels is None else world.labels[held]
        true = world.distances(queries, pairs.new.vectors)
        return Part(held, kept, aligned, near, true, held, labels)

    def _users(self) -> Part | None:
        """The queries of users, which no map has seen, on the gallery as it will be aligned."""
        if self._queries is None:
            return None
        world, pairs = self.world, self.world.pairs
        if self._queries.labels is None:
            raise LabelError("The queries have no labels: give a Features with labels.")
        rng = np.random.default_rng([self.seed, 7])
        some = np.sort(rng.permutation(len(self._queries))[:QUERIES])
        vectors, labels = self._queries.vectors[some], self._queries.labels[some]
        if vectors.shape[1] != pairs.new.dim:
            raise ShapeError(
                f"{self._queries.name}: queries of {vectors.shape[1]} dimensions, but the new "
                f"vectors of the pairs have {pairs.new.dim}. Embed the queries by the new model."
            )
        aligned = self.alignment(world.old)
        near = world.distances(vectors, aligned.vectors)
        true = world.distances(vectors, pairs.new.vectors)
        everything, outside = np.arange(len(pairs)), np.full(len(some), -1)
        return Part(everything[:0], everything, aligned, near, true, outside, labels)

    @property
    def miniature(self) -> Miniature:
        """The pairs as a small gallery of their own."""
        if self._miniature is None:
            world = self.world
            self._miniature = Miniature(
                world.pairs, self.alignment, world.distance, self.seed, self.options, self.lessons
            )
        return self._miniature


def _with_band(
    metric: Metric,
    world: World,
    fractions: Column,
    scores: NDArray[np.float64],
    doubt: Column,
    seed: int,
) -> Forecast:
    """The mean over the queries; the band of other samples of them, and of the doubt."""
    rng = np.random.default_rng([seed, 6])
    values = scores.mean(axis=0).clip(0, 1)
    chosen = rng.integers(len(scores), size=(DRAWS, len(scores)))
    draws = np.stack([scores[rows].mean(axis=0) for rows in chosen])
    draws += rng.normal(size=(DRAWS, 1)) * doubt / NORMAL
    draws = draws.clip(0, 1)
    lower, upper = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return Forecast(
        metric.name, fractions, values, np.minimum(lower, values), np.maximum(upper, values),
        world.items, len(world.pairs), draws,
    )  # fmt: skip


def _unbounded_above(forecast: Forecast, first: float) -> Forecast:
    """With refits a fixed map is a lower estimate, and all new items are an upper one."""
    later = forecast.fractions >= first
    upper = np.where(later, np.maximum(forecast.upper, forecast.upper[-1]), forecast.upper)
    return Forecast(
        forecast.metric, forecast.fractions, forecast.values, forecast.lower, upper,
        forecast.items, forecast.pairs, forecast.draws,
    )  # fmt: skip
