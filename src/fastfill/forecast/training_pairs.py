"""What a rehearsed map is learned from: pairs that play queries, and others to learn from alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Features, Pairs


@dataclass(frozen=True, eq=False)
class TrainingPairs:
    """The random pairs first, then those that an order has picked."""

    pairs: Pairs
    random: int  # how many play queries too

    @classmethod
    def of(cls, pairs: Pairs, taught: Pairs | None) -> TrainingPairs:
        """Both together; labels are for queries and are not learned from here."""
        if taught is None or not len(taught):
            return cls(pairs, len(pairs))
        old, new = (
            Features(np.concatenate([one.vectors, other.vectors]))
            for one, other in ((pairs.old, taught.old), (pairs.new, taught.new))
        )
        return cls(Pairs(old, new), len(pairs))

    def without(self, held: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ints of all pairs but for some of the random ones.

        >>> some = Pairs(Features(np.eye(3)), Features(np.eye(3)))
        >>> TrainingPairs.of(some, some).without(np.array([1]))
        array([0, 2, 3, 4, 5])
        """
        return np.setdiff1d(np.arange(len(self.pairs)), held)
