"""The migration rehearsed on the pairs, from which `Forecast.from_pairs` predicts the real one.

Each pair plays a query whose new vector is known, and searches what maps that have not seen it make
of the gallery: the real one for metrics with labels (see `drawing`), a miniature of it for the
agreement of neighbours, which asks for more detail than draws have (see `comparing`; `miniature`
for maps that cannot leave out single pairs).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Aligned, fit_alignment, fit_part
from fastfill.align.leaving import LeaveOut
from fastfill.errors import LabelError, ShapeError
from fastfill.evaluate.comparing import Comparing
from fastfill.evaluate.drawing import POINTS, Column, Part, Rows, World, labelled
from fastfill.evaluate.forecast import LEVEL, Forecast
from fastfill.evaluate.lessons import Lessons
from fastfill.evaluate.miniature import Agreements, Miniature, agreements
from fastfill.evaluate.simulation import as_fractions
from fastfill.features import Distance, Features, Matrix, Pairs
from fastfill.metrics import Metric, as_metric

FOLDS = 10
MOST_ALONE = 50_000_000  # distances of pairs to items that are found with each pair left out alone
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
        self._queries = None if queries is None else self._some(queries)
        self.alignment = fit_alignment(
            self.lessons.pairs, method=method, distance=distance, seed=seed, **options
        )

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
            found = self._agreements(measure.k, fractions, policy)
            scores, weights, doubt = found.scores, np.ones(len(found.scores)), found.doubt
        elif world.labels is None:
            raise LabelError(
                f"A forecast of {measure.name} needs the labels of the pairs and of the gallery. "
                "Without them forecast agreement@k, the share of the k new neighbours found."
            )
        else:
            scores, weights, doubt = labelled(
                world, self.parts, measure, policy, self.seed, progress, self._users()
            )
        forecast = _with_band(measure, world, fractions, scores, weights, doubt, self.seed)
        return _unbounded_above(forecast, min(refits)) if len(refits) else forecast

    @cached_property
    def leave(self) -> LeaveOut | None:
        """Maps without some of the pairs, where they can be had in closed form."""
        return LeaveOut.of(self.alignment, self.lessons.pairs)

    @cached_property
    def parts(self) -> list[Part]:
        """The gallery through maps that have not seen the pairs that ask."""
        world, pairs = self.world, len(self.world.pairs)
        others = len(world.old) > pairs  # else the pairs of a fold are the gallery
        if self.leave is not None and others and pairs * len(world.old) <= MOST_ALONE:
            return [self._each_alone(self.leave)]
        order = np.random.default_rng([self.seed, 1]).permutation(pairs)
        return [self._part(np.sort(held)) for held in np.array_split(order, FOLDS)]

    def _part(self, held: Rows) -> Part:
        world, pairs = self.world, self.world.pairs
        kept = np.setdiff1d(np.arange(len(pairs)), held)
        rows = self.lessons.without(held)
        map_ = fit_part(self.lessons.pairs, rows, self.alignment, seed=self.seed, **self.options)
        aligned, queries = map_(world.old), pairs.new.vectors[held]
        near = world.distances(queries, aligned.vectors)
        labels = None if world.labels is None else world.labels[held]
        true = world.distances(queries, pairs.new.vectors)
        known = world.distances(aligned.vectors[held], aligned.vectors)
        return Part(held, kept, aligned, near, true, held, labels, known, near[:, held])

    def _each_alone(self, leave: LeaveOut) -> Part:
        """Every pair as a query of its own map, which lacks no other pair."""
        world, alone = self.world, leave.pairs
        new, before = world.pairs.new.vectors, alone.vectors
        m, every = len(new), np.arange(len(new))
        near, known = (np.empty((m, len(world.old)), dtype=np.float32) for _ in range(2))
        for block in leave.blocks(world.old):
            for i in range(m):
                both = np.stack([new[i], before[i]])
                near[i, block.rows], known[i, block.rows] = world.distances(both, block.without(i))
        together = np.concatenate(
            [world.distances(new[i : i + 1], leave.together(i)[:m]) for i in range(m)]
        )
        whole = self.alignment(world.old)
        aligned = Aligned(
            np.concatenate([before[:m], whole.vectors[m:]]),
            np.concatenate([alone.variance[:m], whole.variance[m:]]),
        )
        true, labels = world.distances(new, new), world.pairs.labels
        return Part(every, every, aligned, near, true, every, labels, known, together)

    def _some(self, queries: Features) -> Features:
        """The queries of users that are played through: all, unless there are very many."""
        new = self.world.pairs.new.dim
        if queries.dim != new:
            raise ShapeError(
                f"{queries.name}: queries of {queries.dim} dimensions, but the new vectors of the "
                f"pairs have {new}. Embed the queries by the new model."
            )
        rng = np.random.default_rng([self.seed, 7])
        return queries.take(np.sort(rng.permutation(len(queries))[:QUERIES]))

    def _users(self) -> Part | None:
        """The queries of users, which no map has seen, on the gallery as it will be aligned."""
        asked, world, pairs = self._queries, self.world, self.world.pairs
        if asked is None:
            return None
        if asked.labels is None:
            raise LabelError(
                f"{asked.name}: the queries have no labels, which metrics with labels need. Give "
                "one for each, or forecast agreement@k."
            )
        if asked.labels.dtype.kind != np.asarray(world.labels).dtype.kind:
            raise LabelError(
                f"{asked.name}: the queries' labels are {asked.labels.dtype}, those of the items "
                f"{np.asarray(world.labels).dtype}. Give both as numbers or both as texts."
            )
        aligned = self.alignment(world.old)
        near = world.distances(asked.vectors, aligned.vectors)
        true = world.distances(asked.vectors, pairs.new.vectors)
        every, outside = np.arange(len(pairs)), np.full(len(asked), -1)
        none = every[:0]
        return Part(
            none, every, aligned, near, true, outside, asked.labels, near[:0], near[:, none]
        )

    def _agreements(self, k: int, fractions: Column, policy: str) -> Agreements:
        world = self.world
        if self.leave is None:
            return agreements(self.miniature, world.items, k, fractions, policy)
        users = None if self._queries is None else self._queries.vectors
        comparing = Comparing(self.leave, world.pairs, world.distance, self.seed, users)
        return comparing.agreements(world.items, k, fractions, policy)

    @cached_property
    def miniature(self) -> Miniature:
        """The pairs as a small gallery of their own."""
        world = self.world
        users = None if self._queries is None else self._queries.vectors
        return Miniature(
            world.pairs, self.alignment, world.distance, self.seed, self.options, self.lessons,
            users,
        )  # fmt: skip


def _with_band(
    metric: Metric,
    world: World,
    fractions: Column,
    scores: NDArray[np.float64],
    weights: Column,
    doubt: Column,
    seed: int,
) -> Forecast:
    """The mean over the queries; the band of other samples of them, and of the doubt."""
    rng = np.random.default_rng([seed, 6])
    values = np.average(scores, axis=0, weights=weights).clip(0, 1)
    chosen = rng.integers(len(scores), size=(DRAWS, len(scores)))
    draws = np.stack([np.average(scores[rows], axis=0, weights=weights[rows]) for rows in chosen])
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
