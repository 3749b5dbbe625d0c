"""A backfill that teaches, played through: every re-embedded item is one more pair."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Aligned, fit_alignment
from fastfill.errors import InputError
from fastfill.evaluate.curves import Curve
from fastfill.evaluate.progress import ticking
from fastfill.evaluate.simulation import as_fractions, backfilled_counts, relevances
from fastfill.features import Distance, Features, Matrix, Pairs, as_matrix, check_rows
from fastfill.metrics import LabelSets, Relevance, as_metrics, gallery_scores
from fastfill.order import Known, Policy, arrange
from fastfill.order.policies import policy_name

Rows = NDArray[np.int64]
Learn = Callable[[Rows], Aligned]  # from the rows that are pairs so far, the whole gallery aligned

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
    seed: int = 0,
    learn: Learn | None = None,
    device: str | None = None,
    progress: bool = False,
    **options: Any,
) -> dict[str, Curve]:
    """Curves of a migration that learns its map again on the way, by the name of the metric.

    `pairs` random rows of the gallery are embedded first and are what the first map learns from;
    at fraction 0 they too are aligned. Then `policy` (a name, or a function of your own) chooses
    what is backfilled up to the next point; when the pairs have grown by a quarter the map is
    learned again from all of them, and what is left is aligned and ordered anew. `learn` says how
    (by default `fit_alignment` with the `options`, whose first choice of a method is kept);
    `refit=False` keeps the first map.

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
    asked = items if queries is None else as_matrix(queries, "queries")
    parts = relevances(metrics, labels, query_labels, asked, items, queries is None, distance)
    work = _Backfill(vectors, items, pairs, policy, head, distance, seed)
    learn = learn or _learner(vectors, items, distance, seed, options)
    fractions = as_fractions(points)
    found: dict[str, list[NDArray[np.float32]]] = {m.name: [] for m in as_metrics(metrics)}
    facts: dict[str, Any] = {}
    name = policy_name(policy)
    with ticking(progress, f"{name}, {'learning again' if refit else 'one map'}") as tick:
        for point, count in enumerate(backfilled_counts(fractions, len(items))):
            work.backfill(int(count))
            if point == 0 or (refit and work.taught and count < len(items)):
                work.align(learn(work.known))
            for relevance, named in parts:
                scores = gallery_scores(
                    asked, work.gallery, relevance, named, distance=distance, device=device
                )
                for metric in named:
                    found[metric.name].append(scores.values[metric.name][:, 0].astype(np.float32))
                    facts[metric.name] = (scores.queries, scores.excluded)
            if tick is not None:
                tick(point + 1, points)
    return {m: _curve(m, fractions, found[m], name, *facts[m]) for m in found}


class _Backfill:
    """A gallery of which some rows are new, and what is known of the others."""

    def __init__(
        self, old: Matrix, new: Matrix, pairs: int, policy: str | Policy,
        head: Matrix | None, distance: Distance, seed: int,
    ) -> None:  # fmt: skip
        self._old, self._new, self._policy = old, new, policy
        self._head, self._distance, self._seed = head, distance, seed
        self._first = np.random.default_rng(seed).permutation(len(new))[:pairs]
        self._done: list[Rows] = []
        self._is_new = np.zeros(len(new), dtype=bool)
        self._learned = 0

    def backfill(self, count: int) -> None:
        """Make rows new until there are `count`: first the pairs, then by the policy."""
        have = int(self._is_new.sum())
        sample = self._first[have:count] if have < len(self._first) else self._first[:0]
        self._mark(sample)
        left = count - have - len(sample)
        if left > 0:
            self._mark(self._ordered()[:left])

    def _mark(self, rows: Rows) -> None:
        self._is_new[rows] = True
        self._done.append(rows)

    def _ordered(self) -> Rows:
        rest = np.flatnonzero(~self._is_new)
        known = Known(
            self._aligned.take(rest),
            old=self._old[rest],
            pairs_old=self._old[self.known],
            head=self._head,
            new=self._new[rest],
            distance=self._distance,
            seed=self._seed + int(self._is_new.sum()),
        )
        return rest[arrange(self._policy, known, evaluating=True).positions]

    def align(self, aligned: Aligned) -> None:
        """Take over the vectors and errors of a map learned from `known`."""
        self._aligned, self._learned = aligned, len(self.known)

    @property
    def known(self) -> Rows:
        """The rows under both models, in the order in which they became so."""
        done = np.concatenate([self._first[:0], *self._done])
        return done if len(done) >= len(self._first) else self._first

    @property
    def taught(self) -> bool:
        """Are there enough pairs that the map has not learned from?"""
        return len(self.known) >= GROWTH * self._learned

    @property
    def gallery(self) -> Matrix:
        """What is served."""
        return np.where(self._is_new[:, None], self._new, self._aligned.vectors)


def _learner(
    old: Matrix, new: Matrix, distance: Distance, seed: int, options: dict[str, Any]
) -> Learn:
    method = options.pop("method", "auto")

    def learn(rows: Rows) -> Aligned:
        nonlocal method
        pairs = Pairs(Features(old[rows]), Features(new[rows]))
        alignment = fit_alignment(pairs, method=method, distance=distance, seed=seed, **options)
        method = alignment.method
        return alignment(old)

    return learn


def _matrix(values: Features | ArrayLike, name: str) -> Matrix:
    return values.vectors if isinstance(values, Features) else as_matrix(values, name)


def _curve(
    metric: str, fractions: NDArray[np.float64], points: list[NDArray[np.float32]], name: str,
    queries: NDArray[np.int64] | None, excluded: int,
) -> Curve:  # fmt: skip
    per_query = np.stack(points, axis=1)
    return Curve(
        metric, fractions, per_query.mean(axis=0, dtype=np.float64), name=name,
        per_query=per_query, queries=queries, excluded=excluded,
    )  # fmt: skip
