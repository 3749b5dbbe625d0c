"""Agreement with the new model where the old one answers too, on the gallery as it is known.

The old and the aligned score of every item are known exactly. How the new score follows from those
two is learned from the scores of the pairs, where they are highest, and sampled for all others. So
the neighbours by the new model are sampled, and each way to serve shows how many of them it finds.
Scores are standardised per query, as those of a `Fusion` are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.align import QueryScale
from fastfill.features import Ints
from fastfill.forecast.band import BY_BOTH, BY_OLD, POINTS, QueryCurves
from fastfill.forecast.known_gallery import KnownGallery, QueryView
from fastfill.forecast.labelled import backfill_steps
from fastfill.forecast.sampled_distances import DistanceSampler
from fastfill.forecast.served_ranking import ServedRanking

TAIL, LEAST = 0.02, 200  # share of the comparisons, the highest, and least number, to learn from

Column = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """Standardised scores of the same comparisons: higher is nearer."""

    old: Column
    aligned: Column
    new: Column


class NewScoreSampler:
    """How the new score follows from the old and the aligned one, by example.

    >>> rng = np.random.default_rng(0); old, aligned = rng.normal(size=(2, 1000))
    >>> sampler = NewScoreSampler(Scores(old, aligned, old + 2 * aligned))
    >>> sampler.sample(np.array([3.0]), np.array([2.0]), rng).round(3)
    array([7.])
    """

    def __init__(self, known: Scores) -> None:
        total = known.old + known.aligned
        share = min(max(TAIL, LEAST / len(total)), 1.0)
        tail = total >= np.quantile(total, 1 - share)
        columns = _columns(known.old, known.aligned)
        self.weights = np.linalg.lstsq(columns[tail], known.new[tail], rcond=1e-6)[0]
        self.examples = DistanceSampler(columns @ self.weights, known.new)

    def sample(self, old: Column, aligned: Column, rng: np.random.Generator) -> Column:
        """A new score for each item."""
        return self.examples.sample(_columns(old, aligned) @ self.weights, rng)


def _columns(old: Column, aligned: Column) -> NDArray[np.float64]:
    return np.stack([old, aligned, np.ones_like(old)], axis=1)


@dataclass(frozen=True, eq=False)
class ServedAgreement:
    """One way to serve along one policy, asked by the pairs or by the queries of users."""

    gallery: KnownGallery
    views: list[QueryView]  # of the pairs; or one of the users
    served: ServedRanking
    policy: str
    seed: int

    def curves(self, k: int) -> QueryCurves:
        """Share of each query's k nearest by the new model that are found, at each stage.

        Of a sample of the gallery, as many fewer are nearest.
        """
        gallery, rng = self.gallery, np.random.default_rng([self.seed, 12])
        sampler = NewScoreSampler(self._examples())
        fewer = max(1, round(k * len(gallery.old) / gallery.items))
        scores = np.stack(
            [one for view in self.views for one in self._play(view, sampler, fewer, rng)]
        )
        method = BY_OLD if self.served.fusion is None else BY_BOTH
        return QueryCurves(scores, np.ones(len(scores)), np.full(POINTS, method))

    def _play(
        self, view: QueryView, sampler: NewScoreSampler, k: int, rng: np.random.Generator
    ) -> Iterator[Column]:
        from fastfill.forecast.staged_ranks import staged_ranks

        gallery, pairs = self.gallery, len(self.gallery.pairs)
        every = np.arange(len(gallery.old))
        steps = backfill_steps(gallery, view, every, self.policy, self.seed)
        for query, own in enumerate(view.asked):
            ranking = self.served.of_query(self._number(view, query))
            scale, near = ranking.scale, self._plain(view.near[query])
            z_old = _standardised(np.asarray(ranking.old), scale.old_mean, scale.old_spread)
            z_near = _standardised(near, scale.new_mean, scale.new_spread)
            sampled = sampler.sample(z_old, z_near, rng)
            true = -(sampled * scale.new_spread + scale.new_mean)
            true[:pairs] = self._plain(view.true[query])
            others = every[every != own]
            nearest = np.argsort(true[others], kind="stable")[:k]
            ranks: Ints = staged_ranks(
                ranking.of_aligned(others, near[others]), ranking.of_new(others, true[others]),
                steps[others], nearest, POINTS,
            )  # fmt: skip
            yield (ranks <= k).mean(axis=1)

    def _examples(self) -> Scores:
        """Comparisons of queries with pairs that were aligned by maps without them."""
        parts = [
            self._compared(view, query) for view in self.views for query in range(len(view.asked))
        ]
        sides = (np.concatenate(side) for side in zip(*parts, strict=True))
        return Scores(*sides)

    def _compared(self, view: QueryView, query: int) -> tuple[Column, Column, Column]:
        number = self._number(view, query)
        scale, served = self.served.scale(number), self.served
        if view.asked[query] < 0:
            reference = served.reference
            old = served.distances(served.old[number], reference.old)
            near, true = (
                served.distances(served.new[number], side)
                for side in (reference.aligned, reference.new)
            )
        else:
            others = view.held != view.asked[query]
            held = view.held[others]
            old = served.distances(served.old[number], served.items[held])
            near, true = (
                self._plain(view.together[query, others]),
                self._plain(view.true[query, held]),
            )
        return _all_standardised(scale, old, near, true)

    def _number(self, view: QueryView, query: int) -> int:
        """Of the query among all queries."""
        own = int(view.asked[query])
        return query if own < 0 else own

    def _plain(self, distances: NDArray[np.float32]) -> Column:
        """Distances of a view, which are roots, as those that scores are made of."""
        wide = distances.astype(np.float64)
        return wide if self.gallery.distance == "ip" else np.square(wide)


def _all_standardised(
    scale: QueryScale, old: Column, near: Column, true: Column
) -> tuple[Column, Column, Column]:
    return (
        _standardised(old, scale.old_mean, scale.old_spread),
        _standardised(near, scale.new_mean, scale.new_spread),
        _standardised(true, scale.new_mean, scale.new_spread),
    )


def _standardised(distances: Column, mean: float, spread: float) -> Column:
    return np.asarray((-distances - mean) / spread)
