"""Agreement of neighbours on the pairs, where single pairs can be left out in closed form.

Whether a pair is found among the first few neighbours of a query is a matter of comparisons: is any
other pair nearer? Each comparison is made by a map that has seen neither of the two nor the query,
and lacks no other pair, so that it is as in the real gallery. (Maps that have seen one of the two
put the other where that one is: they make rivals of neighbours.) See `agreement` for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.align.leave_one_out import LeaveOut
from fastfill.features import Distance, Ints, Matrix, Pairs, pairwise
from fastfill.forecast.agreement import (
    Column,
    carry_over,
    neighbour_counts,
    pair_steps,
    some_first,
)
from fastfill.forecast.band import LEAVE_ONE_OUT, QueryCurves, agreement_width
from fastfill.order import PolicyInput, arrange

RIVALS = 40  # nearest pairs, new and aligned, that may be nearer than one of the first neighbours
ORDERS = 16  # orders that the curve is the mean of: chance decides which pairs are new at first
LOST = (0.35, 0.25)  # see `effective`


@dataclass(frozen=True, eq=False)
class OrderSample:
    """Which pairs are new at each stage, and which stand for those that the real map has seen."""

    done: NDArray[np.bool_]  # (m, p)
    seen: NDArray[np.bool_]  # (m,)


@dataclass(frozen=True, eq=False)
class LeaveOneOutAgreement:
    """The pairs as a small gallery, and who asks."""

    leave: LeaveOut
    pairs: Pairs
    distance: Distance
    seed: int
    users: Matrix | None = None  # (u, d_new); None: the pairs ask each other

    def curves(self, items: int, k: int, fractions: Column, policy: str) -> QueryCurves:
        """Agreement@k of a gallery of `items` items."""
        m, stages = len(self.pairs), len(fractions)
        sizes = neighbour_counts(k * m / items, m)
        samples = [self._sample(m / items, fractions, policy, number) for number in range(ORDERS)]
        asked = self.pairs.new.vectors if self.users is None else self.users
        [seen] = self.leave.blocks(self.pairs.old.vectors, whole=True)
        shares = np.empty((len(asked), stages, len(sizes)))
        for row, query in enumerate(asked):
            left = np.array([row] if self.users is None else [], dtype=np.int64)
            before = self._distances(query, seen.without(*left))
            ranks = self._ranks(query, left, before, samples, max(sizes))  # (orders, places, p)
            for i, size in enumerate(sizes):
                shares[row, :, i] = (ranks[:, :size] <= size).mean(axis=(0, 1))
        scores = (shares * carry_over(sizes, k * m / items, fractions, LOST)).sum(axis=2)
        return QueryCurves(scores, np.ones(len(scores)), agreement_width(fractions, LEAVE_ONE_OUT))

    def _sample(self, share: float, fractions: Column, policy: str, number: int) -> OrderSample:
        m, seed = len(self.pairs), self.seed + number
        inputs = PolicyInput(
            self.leave.pairs.take(np.arange(m)), old=self.pairs.old.vectors,
            pairs_old=self.pairs.old.vectors, head=self.leave.alignment.head,
            distance=self.distance, seed=seed,
        )  # fmt: skip
        scores = np.empty(m)
        scores[arrange(policy, inputs).positions] = -np.arange(m)
        first = some_first(m, share, [self.seed, 3, number])
        done = pair_steps(scores, first, fractions)[:, None] <= np.arange(len(fractions))
        return OrderSample(done, np.isin(np.arange(m), first))

    def _ranks(
        self, query: Matrix, left: Ints, seen: Column, samples: list[OrderSample], places: int
    ) -> Ints:
        """Ranks of the first new neighbours of a query at each stage, (orders, places, p)."""
        m = len(self.pairs)
        true = self._distances(query, self.pairs.new.vectors)
        near = self._distances(query, self.leave.pairs.vectors[:m])
        true[left] = near[left] = np.inf
        nearest = np.argsort(true, kind="stable")
        rivals = np.union1d(nearest[:RIVALS], np.argsort(near)[:RIVALS])
        rivals = np.setdiff1d(rivals, left)
        ranks = []
        for one in nearest[:places]:
            others = rivals[rivals != one]
            mine, theirs = (
                self._distances(query, side) for side in self.leave.apart(left, int(one), others)
            )
            for sample in samples:
                ours = np.full(len(others), seen[one]) if sample.seen[one] else mine
                far = np.where(sample.done[one], true[one], ours[:, None])
                rest = np.where(sample.seen[others], seen[others], theirs)
                closer = np.where(sample.done[others], true[others, None], rest[:, None]) < far
                ranks.append(1 + closer.sum(axis=0))
        return np.stack(ranks).reshape(len(nearest[:places]), len(samples), -1).transpose(1, 0, 2)

    def _distances(self, query: Matrix, vectors: Matrix) -> Column:
        return np.asarray(pairwise(query[None], vectors, self.distance)[0], dtype=np.float64)
