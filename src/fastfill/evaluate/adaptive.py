"""A backfill that teaches, played through: every re-embedded item is one more pair."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Aligned, FitOptions, fit_alignment
from fastfill.errors import InputError
from fastfill.evaluate.curves import Curve
from fastfill.evaluate.progress import ticking
from fastfill.evaluate.simulation import as_fractions, backfilled_counts, relevances
from fastfill.features import Distance, Features, Ints, Matrix, Pairs, as_matrix, check_rows
from fastfill.metrics import (
    LabelSets,
    Metric,
    QueryScores,
    Relevance,
    as_metrics,
    gallery_scores,
)
from fastfill.order import Policy, PolicyInput, arrange, policy_name

Learn = Callable[[Ints], Aligned]  # from the rows that are pairs so far, the whole gallery aligned

STEPS = 21  # points of the curve, and as many chances to learn again
GROWTH = 1.25  # the map is learned again when there are so many times the pairs of the last time


def adaptive_curves(
    old: Features | ArrayLike,
    new: Features | ArrayLike,
    labels: Relevance | ArrayLike | LabelSets | None = None,
    *,
    pairs: int,
    policy: str | Policy = "mixed",
    metrics: str | Iterable[str] = ("cmc@1", "cmc@5", "map"),
    refit: bool = True,
    points: int = STEPS,
    queries: ArrayLike | None = None,
    query_labels: ArrayLike | LabelSets | None = None,
    head: Matrix | None = None,
    distance: Distance = "l2",
    fit: FitOptions | None = None,
    seed: int | None = None,
    learn: Learn | None = None,
    device: str | None = None,
    progress: bool = False,
) -> dict[str, Curve]:
    """Curves of a migration that learns its map again on the way, by the name of the metric.

    `pairs` random rows of the gallery are embedded first and are what the first map learns from;
    at fraction 0 they too are aligned. Then `policy` (a name, or a function of your own) chooses
    what is backfilled up to the next point; when the pairs have grown by a quarter the map is
    learned again from all of them, and what is left is aligned and ordered anew. `refit=False`
    keeps the first map. The map is learned as the options `fit` say, whose first choice of a method
    is kept, or by a function of your own, `learn`. A `seed` goes before that of the options.

    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(200, 4)); new = np.tanh(old)
    >>> curves = adaptive_curves(old, new, np.arange(200) % 9, pairs=40, metrics="map", points=5)
    >>> curves["map"].values.shape
    (5,)
    """
    vectors, items = _matrix(old, "old gallery"), _matrix(new, "new gallery")
    check_rows(len(vectors), len(items), "old gallery")
    if not 0 < pairs < len(items):
        raise InputError(
            f"pairs must be from 1 to {len(items) - 1}, below the gallery, got {pairs}."
        )
    fit = fit or FitOptions()
    fit = fit if seed is None else replace(fit, seed=seed)
    asked = items if queries is None else as_matrix(queries, "queries")
    parts = relevances(metrics, labels, query_labels, asked, items, queries is None, distance)
    backfill = _SimulatedBackfill(vectors, items, pairs, policy, head, distance, fit.seed)
    learn = learn or _learner(vectors, items, distance, fit)
    measured = _CurvePoints(as_metrics(metrics), as_fractions(points), policy_name(policy))
    what = f"{policy_name(policy)}, {'learning again' if refit else 'one map'}"
    with ticking(progress, what) as tick:
        for point, count in enumerate(backfilled_counts(measured.fractions, len(items))):
            backfill.until(int(count))
            if point == 0 or (refit and backfill.taught and count < len(items)):
                backfill.align(learn(backfill.pairs))
            for relevance, named in parts:
                scores = gallery_scores(
                    asked, backfill.gallery, relevance, named, distance=distance, device=device
                )
                measured.add(scores, named)
            if tick is not None:
                tick(point + 1, points)
    return measured.curves()


class _SimulatedBackfill:
    """A gallery of which some rows are new, and what is known of the others."""

    def __init__(
        self, old: Matrix, new: Matrix, pairs: int, policy: str | Policy,
        head: Matrix | None, distance: Distance, seed: int,
    ) -> None:  # fmt: skip
        self._old, self._new, self._policy = old, new, policy
        self._head, self._distance, self._seed = head, distance, seed
        self._first = np.random.default_rng(seed).permutation(len(new))[:pairs]
        self._done: list[Ints] = []
        self._is_new = np.zeros(len(new), dtype=bool)
        self._learned = 0

    def until(self, count: int) -> None:
        """Make rows new until there are `count`: first the pairs, then by the policy."""
        have = int(self._is_new.sum())
        sample = self._first[have:count] if have < len(self._first) else self._first[:0]
        self._mark(sample)
        left = count - have - len(sample)
        if left > 0:
            self._mark(self._ordered()[:left])

    def _mark(self, rows: Ints) -> None:
        self._is_new[rows] = True
        self._done.append(rows)

    def _ordered(self) -> Ints:
        rest = np.flatnonzero(~self._is_new)
        inputs = PolicyInput(
            self._aligned.take(rest),
            old=self._old[rest],
            pairs_old=self._old[self.pairs],
            head=self._head,
            new=self._new[rest],
            distance=self._distance,
            seed=self._seed + int(self._is_new.sum()),
        )
        return rest[arrange(self._policy, inputs, evaluating=True).positions]

    def align(self, aligned: Aligned) -> None:
        """Take over the vectors and errors of a map learned from `pairs`."""
        self._aligned, self._learned = aligned, len(self.pairs)

    @property
    def pairs(self) -> Ints:
        """The rows under both models, in the order in which they became so."""
        done = np.concatenate([self._first[:0], *self._done])
        return done if len(done) >= len(self._first) else self._first

    @property
    def taught(self) -> bool:
        """Are there enough pairs that the map has not learned from?"""
        return len(self.pairs) >= GROWTH * self._learned

    @property
    def gallery(self) -> Matrix:
        """What is served."""
        return np.where(self._is_new[:, None], self._new, self._aligned.vectors)


class _CurvePoints:
    """The values of each query at each point so far, by metric."""

    def __init__(
        self, metrics: Iterable[Metric], fractions: NDArray[np.float64], policy: str
    ) -> None:
        self.fractions, self._policy = fractions, policy
        self._values: dict[str, list[NDArray[np.float32]]] = {m.name: [] for m in metrics}
        self._last: dict[str, QueryScores] = {}

    def add(self, scores: QueryScores, metrics: Iterable[Metric]) -> None:
        """What the gallery scored at one more point."""
        for metric in metrics:
            self._values[metric.name].append(scores.values[metric.name][:, 0].astype(np.float32))
            self._last[metric.name] = scores

    def curves(self) -> dict[str, Curve]:
        """All points together."""
        return {name: self._curve(name) for name in self._values}

    def _curve(self, metric: str) -> Curve:
        per_query = np.stack(self._values[metric], axis=1)
        scores = self._last[metric]
        return Curve(
            metric, self.fractions, per_query.mean(axis=0, dtype=np.float64), name=self._policy,
            per_query=per_query, queries=scores.queries, excluded=scores.excluded,
        )  # fmt: skip


def _learner(old: Matrix, new: Matrix, distance: Distance, fit: FitOptions) -> Learn:
    options = fit

    def learn(rows: Ints) -> Aligned:
        nonlocal options
        pairs = Pairs(Features(old[rows]), Features(new[rows]))
        alignment = fit_alignment(pairs, options, distance=distance)
        options = replace(options, method=alignment.method)
        return alignment(old)

    return learn


def _matrix(values: Features | ArrayLike, name: str) -> Matrix:
    return values.vectors if isinstance(values, Features) else as_matrix(values, name)
