"""A backfill that teaches, played through: every re-embedded item is one more pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fastfill.align import Aligned, FitOptions, Fusion, Reference
from fastfill.errors import InputError
from fastfill.evaluate.curve_builder import CurveBuilder
from fastfill.evaluate.refits import LearnedMap, Refits, map_learner
from fastfill.evaluate.search_vectors import SearchVectors
from fastfill.evaluate.simulation import backfilled_counts
from fastfill.features import Array, Ints, Matrix
from fastfill.order import Order, Policy, PolicyInput, arrange, policy_name

GROWTH = 1.25  # the map is learned again when there are so many times the pairs of the last time


class SimulatedBackfill:
    """A gallery of which some rows are new, and what is known of the others.

    `head` and `shown` are for policies that look at them.
    """

    def __init__(
        self, vectors: SearchVectors, refits: Refits, policy: str | Policy, seed: int,
        head: Matrix | None = None, shown: Array | None = None,
    ) -> None:  # fmt: skip
        old, items = vectors.old, len(vectors.new)
        if old is None:
            raise InputError("Maps are learned from the old vectors of the gallery: give them.")
        if not 0 < refits.pairs < items:
            raise InputError(
                f"pairs must be from 1 to {items - 1}, below the gallery, got {refits.pairs}."
            )
        fit = replace(refits.fit or FitOptions(), seed=seed)
        self._vectors, self._old, self._again = vectors, old, refits.again
        self._policy, self._head, self._shown, self._seed = policy, head, shown, seed
        self._learn = refits.learn or map_learner(
            old, vectors.new, vectors.distance, fit, refits.pairs
        )
        self._first = np.random.default_rng(seed).permutation(items)[: refits.pairs]
        self._done: list[Ints] = []
        self._is_new = np.zeros(items, dtype=bool)
        self._learned = 0  # pairs that the present map has learned from
        self._fusion: Fusion | None = None

    def measure(
        self,
        builder: CurveBuilder,
        device: str | None = None,
        tick: Callable[[int, int], None] | None = None,
    ) -> None:
        """Play it through, and measure at every point."""
        counts = backfilled_counts(builder.fractions, len(self._is_new))
        for point, count in enumerate(counts):
            self._backfill(int(count))
            if self._is_due(point):
                self._align(fused="both" in builder.servings)
            added, new = self._added, self._is_new
            for task, way in builder.measured:
                if way.serving != "old" or point == 0:
                    fusion = way.fused_by(self._fusion)
                    scores = task.now(way.serving, fusion, added, new, device=device)
                    builder.add(task, way, scores)
            if tick is not None:
                tick(point + 1, len(counts))

    @property
    def pairs(self) -> Ints:
        """The rows under both models, in the order in which they became so."""
        done = np.concatenate([self._first[:0], *self._done])
        return done if len(done) >= len(self._first) else self._first

    @property
    def order(self) -> Order:
        """In which the rows became new; those that are not yet come last."""
        rest = np.flatnonzero(~self._is_new)
        positions = np.concatenate([*self._done, rest])
        return Order(positions, name=policy_name(self._policy))

    def _backfill(self, count: int) -> None:
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
        """The rows that are not new yet, as the policy would take them."""
        rest = np.flatnonzero(~self._is_new)
        inputs = PolicyInput(
            self._aligned.take(rest),
            old=self._old[rest],
            pairs_old=self._old[self.pairs],
            head=self._head,
            shown=None if self._shown is None else self._shown[rest],
            new=self._vectors.new[rest],
            distance=self._vectors.distance,
            seed=self._seed + int(self._is_new.sum()),
        )
        return rest[arrange(self._policy, inputs, evaluating=True).positions]

    def _is_due(self, point: int) -> bool:
        """Are there enough pairs that the map has not learned from?"""
        enough = len(self.pairs) >= GROWTH * self._learned and not self._is_new.all()
        return point == 0 or (self._again and enough)

    def _align(self, fused: bool) -> None:
        """Learn the map from all pairs so far, and the fusion where both models serve."""
        made = self._learn(self.pairs)
        learned = LearnedMap(made) if isinstance(made, Aligned) else made
        self._aligned, self._learned = learned.aligned, len(self.pairs)
        if fused:
            self._fusion = learn_fusion(learned.reference, self._vectors)

    @property
    def _added(self) -> Matrix:
        """The added column: new vectors where there are some, else aligned ones."""
        return np.where(self._is_new[:, None], self._vectors.new, self._aligned.vectors)


def learn_fusion(reference: Reference | None, vectors: SearchVectors) -> Fusion:
    """The fusion of both models' scores, from reference pairs and the vectors of the queries."""
    if reference is None:
        raise InputError(
            "Serving 'both' needs reference pairs, which this map does not hand over: return a "
            "LearnedMap with them, or learn the alignment again."
        )
    queries = None
    if not vectors.same and vectors.queries_old is not None:
        queries = (vectors.queries_old, vectors.queries)
    return Fusion.learn(reference, queries, distance=vectors.distance, items=len(vectors.new))
