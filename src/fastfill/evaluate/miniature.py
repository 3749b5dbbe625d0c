"""Agreement of neighbours, rehearsed on the pairs as a miniature of the gallery.

Both sides of a miniature are known: its items under the new model, and aligned by maps that have
seen neither the query nor the item. The k nearest of n items are the k·m/n nearest of m. Where that
is less than one, the agreement of the first few neighbours is extended along the logarithm of k, on
which it lies nearly on a line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Aligned, Alignment, fit_part
from fastfill.align.fitting import EXACT
from fastfill.align.fitting import FOLDS as TRIALS
from fastfill.evaluate.lessons import Lessons
from fastfill.features import Distance, Matrix, Pairs, normalised, pairwise
from fastfill.order import Known, arrange

FOLDS = 5
LEAST = 4  # numbers of neighbours that a line is laid through
DISCRETE = (0.25, 1.0)  # see `effective`
METHOD = 0.06  # half width for the method itself: it was off by so much on text
FADING = 5  # how fast the correction of the start fades as items become new

Column = NDArray[np.float64]
Rows = NDArray[np.int64]


class Miniature:
    """The pairs, seen by every fold of them through maps that knew neither side."""

    def __init__(
        self, pairs: Pairs, like: Alignment, distance: Distance, seed: int, options: dict[str, Any],
        lessons: Lessons | None = None, users: Matrix | None = None,
    ) -> None:  # fmt: skip
        lessons = lessons or Lessons.of(pairs, None)
        self.pairs, self.like, self.distance, self.seed = pairs, like, distance, seed
        order = np.random.default_rng([seed, 2]).permutation(len(pairs))
        self.folds: list[Rows] = [np.sort(part) for part in np.array_split(order, FOLDS)]
        self.trained: dict[tuple[int, int], Rows] = {}
        self.aligned: dict[tuple[int, int], Aligned] = {}
        for i, j in combinations(range(FOLDS), 2):
            out = np.concatenate([self.folds[i], self.folds[j]])
            kept = np.setdiff1d(np.arange(len(pairs)), out)
            self.trained[i, j] = kept
            rows = lessons.without(out)
            map_ = fit_part(lessons.pairs, rows, like, seed=seed, **options)
            self.aligned[i, j] = map_(pairs.old)
        self.learned_from = len(lessons.pairs)
        self.asked = pairs.new.vectors if users is None else users  # (q, d_new)
        self.own: Rows = np.arange(len(pairs))  # (q,) the pairs that the queries are; −1: none
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

    def scores(self, key: tuple[int, int], rows: Rows, policy: str) -> Column:
        """What a policy thinks of some pairs, seen through one map."""
        known = Known(
            self.aligned[key].take(rows),
            old=self.pairs.old.vectors[rows],
            pairs_old=self.pairs.old.vectors[self.trained[key]],
            head=self.like.head,
            distance=self.distance,
            seed=self.seed,
        )
        scores = arrange(policy, known).scores
        return np.zeros(len(rows)) if scores is None else scores

    def watch(
        self, queries: Rows, rows: Rows, aligned: Matrix, steps: Rows, sizes: list[int], stages: int
    ) -> NDArray[np.float64]:
        """Share of the first few neighbours among `rows` that are found, (queries, stages, s)."""
        from fastfill.evaluate.staging import staged_ranks

        asked, new = self.asked[queries], self.pairs.new.vectors[rows]
        near = pairwise(asked, aligned, self.distance).astype(np.float64)
        true = pairwise(asked, new, self.distance).astype(np.float64)
        found = np.empty((len(queries), stages, len(sizes)))
        for i, own in enumerate(self.own[queries]):
            others = np.flatnonzero(rows != own)
            nearest = np.argsort(true[i, others], kind="stable")
            for j, size in enumerate(sizes):
                ranks = staged_ranks(
                    near[i, others], true[i, others], steps[others], nearest[:size], stages
                )
                found[i, :, j] = (ranks <= size).mean(axis=1)
        return found

    def as_if_of_all(self, h: Matrix, variance: NDArray[np.floating[Any]]) -> Matrix:
        """What would be served if the errors were those of a map of all pairs."""
        new = self.pairs.new.vectors
        moved = new + np.float32(self.shrinkage) * (h - new)
        length = 1.0 if self.like.scaling.unit else self.like.scaling.length
        if length is not None:
            moved = normalised(moved) * np.float32(length)
        less = (self.shrinkage**2 * variance).astype(np.float32)
        return self.like.set_back(np.asarray(moved), less).vectors

    @property
    def size(self) -> int:
        """Pairs that one map has not seen."""
        return len(self.pairs) * 2 // FOLDS

    @cached_property
    def shrinkage(self) -> float:
        """Error of a map of all pairs over that of a map of some, by a power law of their number.

        Its two points are the maps here and those that chose the method.
        """
        new = self.pairs.new.vectors
        errors, rows = 0.0, 0
        for (i, j), aligned in self.aligned.items():
            out = np.concatenate([self.folds[i], self.folds[j]])
            errors += float(np.square(aligned.h[out] - new[out], dtype=np.float64).sum())
            rows += len(out)
        variance = float(np.square(new - new.mean(0), dtype=np.float64).sum(1).mean())
        facts = self.like.facts["held_out"]
        most = self.learned_from
        share = 1 - 2 * len(new) / FOLDS / most
        more = 1 - facts["pairs"] / most if facts["pairs"] < most else 1 - 1 / TRIALS
        if self.like.method in EXACT:  # every pair was left out alone
            more = 1 - 1 / most
        ratio = max(1 - float(facts["explained"]), 1e-6) * variance * rows / max(errors, 1e-30)
        if more <= share:  # with many more pairs a fold hardly counts
            return 1.0
        slope = np.clip(np.log(ratio) / np.log(more / share), -1.0, 0.0)
        return float(np.sqrt((1 / share) ** slope))


@dataclass(frozen=True, eq=False)
class Agreements:
    """Agreement as each query sees it at each fraction, and how far the start may be off."""

    scores: NDArray[np.float64]  # (q, p)
    doubt: Column  # (p,) half width, beside that of the sample


def agreements(mini: Miniature, items: int, k: int, fractions: Column, policy: str) -> Agreements:
    """Agreement@k of a gallery of `items` items, from galleries of a few pairs.

    Two kinds of miniature know different things. All pairs together are the finer one, but mapped
    by several maps, which do not agree with each other as one map does with itself: too little
    agreement where most items are aligned. The pairs of two folds are mapped by one map, but are
    fewer. Where those are enough for k, they are all that is needed; else they correct the start.
    """
    m = len(mini.pairs)
    halves = neighbour_counts(k * mini.size / items, mini.size)
    one = _one_map(mini, m / items, halves, fractions, policy)  # (q, p, s)
    if effective(np.ones(1), np.zeros(1))[0, 0] * items / mini.size <= k:
        weights = carry_over(halves, k * mini.size / items, fractions)
        return Agreements((one * weights).sum(axis=2), METHOD * np.sqrt(1 - fractions))
    sizes = neighbour_counts(k * m / items, m)
    many = _many_maps(mini, m / items, sizes, fractions, policy)
    middle = (many * carry_over(sizes, k * m / items, fractions)).sum(axis=2)
    first, second = effective(np.array([1.0, 2.0]), np.zeros(1))[0]
    octave = np.log(second / first)
    slopes = [(side[:, 0, 1] - side[:, 0, 0]) / octave for side in (one, many)]
    ahead = np.log(k * mini.size / items / first)  # below 0
    start = one[:, 0, 0] + ahead * (slopes[0] + slopes[1]) / 2  # (q,)
    fading = (1 - fractions) ** FADING
    scores = middle + fading * (start - middle[:, 0])[:, None]
    doubt = abs(ahead * (slopes[0] - slopes[1]).mean() / 2) * fading
    return Agreements(scores, np.hypot(doubt, METHOD * np.sqrt(1 - fractions)))


def _many_maps(
    mini: Miniature, share: float, sizes: list[int], fractions: Column, policy: str
) -> NDArray[np.float64]:
    """Agreement of each query with all pairs, aligned by maps that knew neither, (q, p, s)."""
    found = np.empty((len(mini.asked), len(fractions), len(sizes)))
    everything = np.arange(len(mini.pairs))
    for fold, asks in enumerate(mini.askers):
        vectors, scores = mini.seen_by(fold, policy)
        first = some_first(len(scores), share, [mini.seed, 3, fold])
        steps = pair_steps(scores, first, fractions)
        found[asks] = mini.watch(asks, everything, vectors, steps, sizes, len(fractions))
    return found


def _one_map(
    mini: Miniature, share: float, sizes: list[int], fractions: Column, policy: str
) -> NDArray[np.float64]:
    """Agreement of each query with pairs that one map has not seen either, (q, p, s)."""
    found = np.zeros((len(mini.asked), len(fractions), len(sizes)))
    for key, aligned in mini.aligned.items():
        rows, asks = (np.concatenate([side[i] for i in key]) for side in (mini.folds, mini.askers))
        vectors = mini.as_if_of_all(aligned.h, aligned.variance)
        scores = mini.scores(key, rows, policy)
        first = some_first(len(scores), share, [mini.seed, 4, *key])
        steps = pair_steps(scores, first, fractions)
        found[asks] += mini.watch(asks, rows, vectors[rows], steps, sizes, len(fractions))
    return found / (FOLDS - 1)


def neighbour_counts(wanted: float, most: int) -> list[int]:
    """Numbers of neighbours around the wanted one, 1 at least.

    >>> neighbour_counts(0.5, 500), neighbour_counts(4.0, 500)
    ([1, 2, 3, 4], [3, 4, 5, 6])
    """
    first = max(1, int(wanted) - 1)
    return [size for size in range(first, first + LEAST) if size < most]


def effective(
    sizes: NDArray[np.float64], fractions: Column, lost: tuple[float, float] = DISCRETE
) -> NDArray[np.float64]:
    """The k of a dense gallery that agrees as much as `sizes` neighbours of a sparse one, (p, s).

    The rim of a neighbourhood is blurred where items are few: a little less than k, and least
    where the gallery is half aligned and half new (found on random subsets of whole galleries).
    """
    constant, mixed = lost
    less = constant + mixed * fractions * (1 - fractions)
    return np.maximum(sizes[None, :] - less[:, None], 0.1)


def carry_over(
    sizes: list[int], wanted: float, fractions: Column, lost: tuple[float, float] = DISCRETE
) -> NDArray[np.float64]:
    """Weights (p, s) of a least-squares line over log k, read at the wanted k."""
    logs = np.log(effective(np.array(sizes, dtype=np.float64), fractions, lost))  # (p, s)
    centre = logs.mean(axis=1, keepdims=True)
    spread = np.square(logs - centre).sum(axis=1, keepdims=True)
    ahead = np.log(wanted) - centre
    return np.asarray(1 / len(sizes) + (logs - centre) * ahead / np.maximum(spread, 1e-12))


def pair_steps(order: Column, first: Rows, fractions: Column) -> Rows:
    """The stage at which each pair would become new: some first, then by score."""
    m = len(order)
    ranked = np.argsort(-order, kind="stable")
    ranked = np.concatenate([first, ranked[~np.isin(ranked, first)]])
    steps = np.empty(m, dtype=np.int64)
    counts = np.floor(fractions * m + 1e-9 * m)
    steps[ranked] = np.searchsorted(counts, np.arange(m), side="right")
    return steps


def some_first(pairs: int, share: float, seed: list[int]) -> Rows:
    """The pairs that stand for those of the real gallery, which are new before all others."""
    return np.random.default_rng(seed).permutation(pairs)[: round(share * pairs)]
