"""Metrics with labels, rehearsed on the real gallery: distances known where they are, else sampled.

Aligned items are at distances that are known exactly; the new vector of a backfilled item is known
only if it is a pair. For all others the distance is sampled (see `sampled_distances`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import LabelError
from fastfill.evaluate.progress import ticking
from fastfill.evaluate.simulation import as_fractions, backfilled_counts
from fastfill.features import Ints
from fastfill.forecast.band import POINTS, QueryCurves, labelled_width
from fastfill.forecast.known_gallery import KnownGallery, QueryView
from fastfill.forecast.query_weights import balanced, label_weights, sampled_precision
from fastfill.forecast.sampled_distances import DistanceSamplers
from fastfill.forecast.served_ranking import QueryRanking, ServedRanking
from fastfill.metrics import Metric, Relevance, gallery_scores
from fastfill.order import PolicyInput, arrange

OPINION = 1 / 2  # weight of the pairs alone at the end of a curve of mAP
USUAL = 5_000  # other items, at most, that show how hard queries are

Column = NDArray[np.float64]


class _Played(NamedTuple):
    """One query played through the backfill."""

    asked: int  # the item that it is; −1: a user's
    scores: Column  # (p,)
    half: Column | None  # (p,) on half of the gallery, where only some of that is known


@dataclass(frozen=True, eq=False)
class LabelledRehearsal:
    """One metric along one policy, played by the pairs or by the queries of users."""

    gallery: KnownGallery
    views: list[QueryView]  # of the pairs
    metric: Metric
    policy: str
    seed: int
    users: QueryView | None = None  # who take the place of the pairs
    served: ServedRanking | None = None  # None: by the new model's queries

    def curves(self, progress: bool = False) -> QueryCurves:
        """The metric of each answerable query at each stage.

        Where only some of the gallery is known, the metric of that and of half of it show how it
        depends on the size; without any of it, the pairs that were held out together are the
        gallery.
        """
        played = list(self._all_played(progress))
        if not played:
            asked_by = (
                "query has the label of an" if self.users else "pair has the label of another"
            )
            raise LabelError(f"No {asked_by} item: nothing can be forecast.")
        values, uncertainty = self._of_whole_gallery(played)
        if self.users:
            return QueryCurves(values, np.ones(len(values)), uncertainty)
        asked = np.array([one.asked for one in played])
        weights = label_weights(np.asarray(self.gallery.labels), asked)
        if not self.gallery.pairs_only:
            values = balanced(values, *self._ease(asked), weights)
        return QueryCurves(values, weights, uncertainty)

    def _all_played(self, progress: bool) -> Iterator[_Played]:
        samplers = DistanceSamplers(self.gallery, self.views)
        rng = np.random.default_rng([self.seed, 5])
        total = len(self.users.asked if self.users else self.gallery.pairs)
        views = [self.users] if self.users else self.views
        every = (played for view in views for played in self._play(view, samplers, rng))
        with ticking(progress, f"rehearsing {self.metric.name}") as tick:
            for done, played in enumerate(every, start=1):
                yield played
                if tick is not None:
                    tick(done, total)

    def _play(
        self, view: QueryView, samplers: DistanceSamplers, rng: np.random.Generator
    ) -> Iterator[_Played]:
        """The queries of one view that have an answer."""
        gallery, fractions = self.gallery, as_fractions(POINTS)
        alone = gallery.pairs_only and not self.users
        rows = np.sort(view.held) if alone else np.arange(len(gallery.old))
        steps = backfill_steps(gallery, view, rows, self.policy, self.seed)
        half = rng.permutation(len(rows))[: len(rows) // 2]
        for query, asked in enumerate(view.asked):
            sampled = samplers.distances(gallery, view, query, rng)
            ranking = QueryRanking()
            if self.served is not None:
                number = query if self.users else int(asked)
                ranking = self.served.of_query(number, rooted=True)
            scores = self._score(view, query, rows, steps, sampled, ranking)
            if scores is None:
                continue
            if self.metric.family == "map" and len(rows) == len(gallery.old):
                scores = _second_opinion(gallery, view, query, scores, fractions, rng, ranking)
            less = None
            if len(rows) < gallery.items:
                less = self._score(view, query, rows[half], steps[half], sampled, ranking)
                less = scores if less is None else less
            yield _Played(int(asked), scores, less)

    def _score(
        self, view: QueryView, query: int, rows: Ints, steps: Ints, sampled: Column,
        ranking: QueryRanking,
    ) -> Column | None:  # fmt: skip
        """The metric of one query at each stage; None where nothing is relevant to it."""
        from fastfill.forecast.staged_ranks import staged_ranks

        others = rows != view.asked[query]
        rows, steps = rows[others], steps[others]
        labels = np.asarray(self.gallery.labels)
        relevant = np.flatnonzero(labels[rows] == np.asarray(view.labels)[query])
        if not len(relevant):
            return None
        before = ranking.of_aligned(rows, view.near[query, rows].astype(np.float64))
        after = ranking.of_new(rows, sampled[rows])
        ranks: Ints = staged_ranks(before, after, steps, relevant, POINTS)
        return score_ranks(self.metric, ranks)

    def _of_whole_gallery(self, played: list[_Played]) -> tuple[NDArray[np.float64], Column]:
        """Scores (q, p) as on a gallery of the real size, and how far they may be off (p,)."""
        gallery, fractions = self.gallery, as_fractions(POINTS)
        values = np.stack([one.scores for one in played])
        second_opinion = self.metric.family == "map"
        uncertainty = labelled_width(fractions, len(gallery.pairs), second_opinion)
        halves = [one.half for one in played if one.half is not None]
        if not halves:
            return values, uncertainty
        alone = gallery.pairs_only and not self.users
        size = len(self.views[0].held) if alone else len(gallery.old)
        # The error of a size falls with its inverse.
        further = (values - np.stack(halves)) * (1 - size / gallery.items)
        return values + further, uncertainty + np.abs(further.mean(axis=0))

    def _ease(self, asked: Ints) -> tuple[Column, float]:
        """How well each query's aligned vector finds its like among aligned ones; and usually.

        A few hundred queries are easier or harder than all items by chance. This says by how much.
        """
        gallery, metric = self.gallery, self.metric
        labels = np.asarray(gallery.labels)
        ease = np.zeros(len(gallery.pairs))
        for view in self.views:
            for query, pair in enumerate(view.asked):
                others = np.arange(len(labels)) != pair
                relevant = np.flatnonzero(labels[others] == labels[pair])
                if len(relevant):
                    distances = view.as_aligned[query, others].astype(np.float64)
                    ease[pair] = _at_once(metric, distances, relevant)
        return ease[asked], self._usual_ease(Relevance.from_labels(labels))

    def _usual_ease(self, relevance: Relevance) -> float:
        """The same of other items, a share of them through each map."""
        gallery, views = self.gallery, self.views
        rest = np.arange(len(gallery.pairs), len(gallery.old))
        step = -(-len(rest) * len(views) // USUAL)
        usual = []
        for number, view in enumerate(views):
            rows, vectors = rest[number * step // len(views) :: step], view.aligned.vectors
            scores = gallery_scores(
                vectors[rows], vectors, relevance.take(rows), [self.metric],
                distance=gallery.distance,
            )  # fmt: skip
            usual.append(scores.values[self.metric.name][:, 0])
        return float(np.concatenate(usual).mean())


def backfill_steps(
    gallery: KnownGallery, view: QueryView, rows: Ints, policy: str, seed: int
) -> Ints:
    """The stage at which each of the rows becomes new: the pairs first, then by the policy."""
    inputs = PolicyInput(
        view.aligned.take(rows), old=gallery.old[rows],
        pairs_old=gallery.pairs.old.vectors[view.kept], distance=gallery.distance, seed=seed,
    )  # fmt: skip
    order = arrange(policy, inputs).positions
    others = gallery.done[rows]
    first = np.concatenate([np.flatnonzero(others), np.flatnonzero(rows < len(gallery.pairs))])
    # A sample of the gallery has as few pairs, and as many other new items.
    share = max(len(gallery.pairs) / gallery.items, float(others.mean()))
    first = first[: round(share * len(rows))] if len(rows) < gallery.items else first
    order = np.concatenate([first, order[~np.isin(order, first)]])
    counts = backfilled_counts(as_fractions(POINTS), len(rows))
    steps = np.empty(len(rows), dtype=np.int64)
    steps[order] = np.searchsorted(counts, np.arange(len(rows)), side="right")
    return steps


def _second_opinion(
    gallery: KnownGallery,
    view: QueryView,
    query: int,
    scores: Column,
    fractions: Column,
    rng: np.random.Generator,
    ranking: QueryRanking,
) -> Column:
    """The end moved towards what the known distances among the pairs alone say.

    Distances that are sampled one by one scatter more than real ones and make the end too good; the
    pairs alone are right in the mean, and noisy.
    """
    own = view.asked[query]
    match = np.asarray(gallery.labels) == np.asarray(view.labels)[query]
    mine = np.flatnonzero(match[: len(gallery.pairs)])
    mine = mine[mine != own]
    others = np.flatnonzero(~match[: len(gallery.pairs)])
    if not len(mine) or not len(others):
        return scores
    counts = (int(match.sum()) - int(own >= 0), int((~match).sum()))
    true = ranking.of_new(np.arange(len(gallery.pairs)), view.true[query].astype(np.float64))
    end = sampled_precision(true[mine], true[others], counts, rng)
    return np.asarray(scores + OPINION * fractions * (end - scores[-1]))


def _at_once(metric: Metric, distances: Column, relevant: Ints) -> float:
    """A metric of one query, whose distances do not change."""
    from fastfill.forecast.staged_ranks import staged_ranks

    ranks = staged_ranks(distances, distances, np.zeros(len(distances), np.int64), relevant, 1)
    return float(score_ranks(metric, ranks)[0])


def score_ranks(metric: Metric, ranks: NDArray[np.int64]) -> Column:
    """A metric from the rising ranks (stages, r) of the relevant items, (stages,).

    >>> from fastfill.metrics import as_metric
    >>> score_ranks(as_metric("map"), np.array([[1, 2], [2, 4]]))
    array([1. , 0.5])
    """
    r = ranks.shape[1]
    if metric.family == "map":
        return np.asarray((np.arange(1, r + 1) / ranks).mean(axis=1))
    if metric.family == "cmc":
        return np.asarray(ranks[:, 0] <= metric.k, dtype=np.float64)
    if metric.family == "mrr":
        reached = ranks[:, 0] <= metric.k if metric.k else True
        return np.asarray(np.where(reached, 1 / ranks[:, 0], 0.0))
    if metric.family == "ndcg":
        gains = np.where(ranks <= metric.k, 1 / np.log2(1 + ranks), 0).sum(axis=1)
        return np.asarray(gains / (1 / np.log2(2 + np.arange(min(r, metric.k)))).sum())
    return np.asarray((ranks <= metric.k).mean(axis=1))
