"""Agreement of neighbours on the pairs as a small gallery, seen through maps without some folds.

Both sides of that gallery are known: its items under the new model, and aligned by maps that have
seen neither the query nor the item. See `agreement` for what it says of the whole gallery.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.align import METHODS, Aligned, Alignment, FitOptions, fit_part
from fastfill.align.held_out import FOLDS as TRIALS
from fastfill.align.held_out import is_left_out_alone
from fastfill.features import Distance, Ints, Matrix, Pairs, normalised, pairwise
from fastfill.forecast.agreement import (
    Column,
    carry_over,
    effective,
    neighbour_counts,
    pair_steps,
    some_first,
)
from fastfill.forecast.band import BY_FOLDS, QueryCurves, agreement_width
from fastfill.forecast.training_pairs import TrainingPairs
from fastfill.order import PolicyInput, arrange

FOLDS = 5
FADING = 5  # how fast the correction of the start fades as items become new


class FoldedPairs:
    """The pairs, seen by every fold of them through maps that knew neither side."""

    def __init__(
        self, pairs: Pairs, like: Alignment, distance: Distance, fit: FitOptions,
        training: TrainingPairs | None = None, users: Matrix | None = None,
    ) -> None:  # fmt: skip
        training = training or TrainingPairs.of(pairs, None)
        self.pairs, self.like, self.distance, self.seed = pairs, like, distance, fit.seed
        order = np.random.default_rng([self.seed, 2]).permutation(len(pairs))
        self.folds: list[Ints] = [np.sort(part) for part in np.array_split(order, FOLDS)]
        self.trained: dict[tuple[int, int], Ints] = {}
        self.aligned: dict[tuple[int, int], Aligned] = {}
        for i, j in combinations(range(FOLDS), 2):
            out = np.concatenate([self.folds[i], self.folds[j]])
            self.trained[i, j] = np.setdiff1d(np.arange(len(pairs)), out)
            map_ = fit_part(training.pairs, training.without(out), like, fit, head=like.head)
            self.aligned[i, j] = map_(pairs.old)
        self.learned_from = len(training.pairs)
        self.asked = pairs.new.vectors if users is None else users  # (q, d_new)
        self.own: Ints = np.arange(len(pairs))  # (q,) the pairs that the queries are; −1: none
        self.askers = self.folds  # queries that see the pairs through maps without this fold
        if users is not None:
            self.own = np.full(len(users), -1)
            self.askers = np.array_split(np.arange(len(users)), FOLDS)

    def seen_by(self, fold: int, policy: str) -> tuple[Matrix, Column]:
        """The pairs aligned (m, d), and their scores (m,), for the queries of one fold."""
        h = np.empty_like(self.pairs.new.vectors)
        variance, scores = (np.empty(len(self.pairs)) for _ in range(2))
        for other in range(FOLDS):
            pair = (fold + 1) % FOLDS if other == fold else other
            key = (min(fold, pair), max(fold, pair))
            rows, aligned = self.folds[other], self.aligned[key]
            h[rows], variance[rows] = aligned.h[rows], aligned.variance[rows]
            scores[rows] = self.scores(key, rows, policy)
        return self.as_if_of_all(h, variance), scores

    def scores(self, key: tuple[int, int], rows: Ints, policy: str) -> Column:
        """What a policy thinks of some pairs, seen through one map."""
        inputs = PolicyInput(
            self.aligned[key].take(rows),
            old=self.pairs.old.vectors[rows],
            pairs_old=self.pairs.old.vectors[self.trained[key]],
            head=self.like.head,
            distance=self.distance,
            seed=self.seed,
        )
        scores = arrange(policy, inputs).scores
        return np.zeros(len(rows)) if scores is None else scores

    def watch(
        self, queries: Ints, rows: Ints, aligned: Matrix, steps: Ints, sizes: list[int], stages: int
    ) -> NDArray[np.float64]:
        """Share of the first few neighbours among `rows` that are found, (queries, stages, s)."""
        from fastfill.forecast.staged_ranks import staged_ranks

        asked, new = self.asked[queries], self.pairs.new.vectors[rows]
        near = pairwise(asked, aligned, self.distance).astype(np.float64)
        true = pairwise(asked, new, self.distance).astype(np.float64)
        shares = np.empty((len(queries), stages, len(sizes)))
        for i, own in enumerate(self.own[queries]):
            others = np.flatnonzero(rows != own)
            nearest = np.argsort(true[i, others], kind="stable")
            for j, size in enumerate(sizes):
                ranks = staged_ranks(
                    near[i, others], true[i, others], steps[others], nearest[:size], stages
                )
                shares[i, :, j] = (ranks <= size).mean(axis=1)
        return shares

    def as_if_of_all(self, h: Matrix, variance: NDArray[np.floating[Any]]) -> Matrix:
        """What would be served if the errors were those of a map of all pairs."""
        new = self.pairs.new.vectors
        moved = new + np.float32(self.shrinkage) * (h - new)
        length = 1.0 if self.like.scaling.unit else self.like.scaling.length
        if length is not None:
            moved = normalised(moved) * np.float32(length)
        less = (self.shrinkage**2 * variance).astype(np.float32)
        return self.like.penalised(np.asarray(moved), less).vectors

    @property
    def size(self) -> int:
        """Pairs that one map has not seen."""
        return len(self.pairs) * 2 // FOLDS

    @cached_property
    def shrinkage(self) -> float:
        """Error of a map of all pairs over that of a map of some, by a power law of their number.

        Its two points are the maps here and those that chose the method.
        """
        new, held_out, most = self.pairs.new.vectors, self.like.facts["held_out"], self.learned_from
        errors, rows = 0.0, 0
        for (i, j), aligned in self.aligned.items():
            out = np.concatenate([self.folds[i], self.folds[j]])
            errors += float(np.square(aligned.h[out] - new[out], dtype=np.float64).sum())
            rows += len(out)
        variance = float(np.square(new - new.mean(0), dtype=np.float64).sum(1).mean())
        ratio = max(1 - float(held_out["explained"]), 1e-6) * variance * rows / max(errors, 1e-30)
        share = 1 - 2 * len(new) / FOLDS / most
        more = self._trial_share(held_out["pairs"])
        if more <= share:  # with many more pairs a fold hardly counts
            return 1.0
        slope = np.clip(np.log(ratio) / np.log(more / share), -1.0, 0.0)
        return float(np.sqrt((1 / share) ** slope))

    def _trial_share(self, held: int) -> float:
        """The share of all pairs that the maps were learned from which chose the method."""
        most = self.learned_from
        if is_left_out_alone(METHODS[self.like.method], self.distance):
            return 1 - 1 / most
        return 1 - held / most if held < most else 1 - 1 / TRIALS


def folded_agreement(
    folded: FoldedPairs, items: int, k: int, fractions: Column, policy: str
) -> QueryCurves:
    """Agreement@k of a gallery of `items` items, from galleries of a few pairs.

    Two kinds of small gallery know different things. All pairs together are the finer one, but
    mapped by several maps, which do not agree with each other as one map does with itself: too
    little agreement where most items are aligned. The pairs of two folds are mapped by one map, but
    are fewer. Where those are enough for k, they are all that is needed; else they correct the
    start.
    """
    m = len(folded.pairs)
    halves = neighbour_counts(k * folded.size / items, folded.size)
    one = _one_map(folded, m / items, halves, fractions, policy)  # (q, p, s)
    method = agreement_width(fractions, BY_FOLDS)
    if effective(np.ones(1), np.zeros(1))[0, 0] * items / folded.size <= k:
        weights = carry_over(halves, k * folded.size / items, fractions)
        return _curves((one * weights).sum(axis=2), method)
    sizes = neighbour_counts(k * m / items, m)
    many = _many_maps(folded, m / items, sizes, fractions, policy)
    middle = (many * carry_over(sizes, k * m / items, fractions)).sum(axis=2)
    first, second = effective(np.array([1.0, 2.0]), np.zeros(1))[0]
    octave = np.log(second / first)
    slopes = [(side[:, 0, 1] - side[:, 0, 0]) / octave for side in (one, many)]
    ahead = np.log(k * folded.size / items / first)  # below 0
    start = one[:, 0, 0] + ahead * (slopes[0] + slopes[1]) / 2  # (q,)
    fading = (1 - fractions) ** FADING
    scores = middle + fading * (start - middle[:, 0])[:, None]
    off = abs(ahead * (slopes[0] - slopes[1]).mean() / 2) * fading
    return _curves(scores, np.hypot(off, method))


def _curves(scores: NDArray[np.float64], uncertainty: Column) -> QueryCurves:
    return QueryCurves(scores, np.ones(len(scores)), uncertainty)


def _many_maps(
    folded: FoldedPairs, share: float, sizes: list[int], fractions: Column, policy: str
) -> NDArray[np.float64]:
    """Agreement of each query with all pairs, aligned by maps that knew neither, (q, p, s)."""
    shares = np.empty((len(folded.asked), len(fractions), len(sizes)))
    everything = np.arange(len(folded.pairs))
    for fold, asks in enumerate(folded.askers):
        vectors, scores = folded.seen_by(fold, policy)
        first = some_first(len(scores), share, [folded.seed, 3, fold])
        steps = pair_steps(scores, first, fractions)
        shares[asks] = folded.watch(asks, everything, vectors, steps, sizes, len(fractions))
    return shares


def _one_map(
    folded: FoldedPairs, share: float, sizes: list[int], fractions: Column, policy: str
) -> NDArray[np.float64]:
    """Agreement of each query with pairs that one map has not seen either, (q, p, s)."""
    shares = np.zeros((len(folded.asked), len(fractions), len(sizes)))
    for key, aligned in folded.aligned.items():
        rows, asks = (
            np.concatenate([side[i] for i in key]) for side in (folded.folds, folded.askers)
        )
        vectors = folded.as_if_of_all(aligned.h, aligned.variance)
        scores = folded.scores(key, rows, policy)
        first = some_first(len(scores), share, [folded.seed, 4, *key])
        steps = pair_steps(scores, first, fractions)
        shares[asks] += folded.watch(asks, rows, vectors[rows], steps, sizes, len(fractions))
    return shares / (FOLDS - 1)
