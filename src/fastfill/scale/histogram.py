"""Global ranks without a global sort: counts of scores in buckets, which add up over pieces.

A bucket holds the scores that agree in sign, exponent and the first 12 bits of their float64
mantissa, so it is at most 2⁻¹² (0.024 %) of its scores wide, and is the same in every piece. The
rank of a row is the number of rows in higher buckets, plus those of its own bucket in pieces before
its own, plus those of its own bucket and piece that score higher. Hence

- every rank from 0 to n − 1 is given once;
- rows of different buckets are in the order of the exact sort, and so is every piece by itself;
- a row is less than the size of its bucket away from its place in the exact sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import OrderError, some
from fastfill.features import Ints

DROPPED_BITS = np.uint64(40)  # of 64: 1 of sign, 11 of exponent and 12 of mantissa are left
_SIGN = np.uint64(1 << 63)

Buckets = NDArray[np.uint64]


def bucket_of(scores: NDArray[np.float64]) -> Buckets:
    """The bucket of each score; it never falls where scores rise.

    >>> bucket_of(np.array([-2.0, 0.0, 1.0, 1.0001, 1.001])).tolist()
    [4194303, 8388608, 12578816, 12578816, 12578820]
    """
    bits = (scores + 0.0).view(np.uint64)  # −0 becomes 0
    rising = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return rising >> DROPPED_BITS


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """How many scores there are in each bucket that has any; those of several pieces add up.

    >>> one = ScoreHistogram.of(np.array([0.5, 0.9])); two = ScoreHistogram.of(np.array([0.9]))
    >>> (one + two).counts.tolist()
    [1, 2]
    """

    buckets: Buckets  # rising
    counts: Ints

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> ScoreHistogram:
        """Count the scores of a piece."""
        bad = np.flatnonzero(~np.isfinite(scores))
        if len(bad):
            raise OrderError(f"The scores of rows {some(bad)} are NaN or infinite.")
        buckets, counts = np.unique(bucket_of(scores), return_counts=True)
        return cls(buckets, counts.astype(np.int64))

    def __add__(self, other: ScoreHistogram) -> ScoreHistogram:
        buckets = np.union1d(self.buckets, other.buckets)
        counts = np.zeros(len(buckets), dtype=np.int64)
        for part in (self, other):
            counts[np.searchsorted(buckets, part.buckets)] += part.counts
        return ScoreHistogram(buckets, counts)

    @property
    def rows(self) -> int:
        """The number of scores."""
        return int(self.counts.sum())


def first_ranks(histograms: Sequence[ScoreHistogram]) -> list[Ints]:
    """For every piece, the rank of its first row in each of its buckets, highest score first.

    >>> parts = [ScoreHistogram.of(np.array(s)) for s in ([0.1, 0.9], [0.9, 0.5])]
    >>> [ranks.tolist() for ranks in first_ranks(parts)]
    [[3, 0], [2, 1]]
    """
    buckets = np.unique(np.concatenate([part.buckets for part in histograms]))
    places = [np.searchsorted(buckets, part.buckets) for part in histograms]
    counts = np.zeros(len(buckets), dtype=np.int64)
    for place, part in zip(places, histograms, strict=True):
        counts[place] += part.counts
    following = counts[::-1].cumsum()[::-1] - counts  # rows in higher buckets
    ranks = []
    for place, part in zip(places, histograms, strict=True):
        ranks.append(following[place])
        following[place] += part.counts
    return ranks


def ranks_in_piece(scores: NDArray[np.float64], first: Ints) -> Ints:
    """The global rank of each row of a piece, from the first rank in each of its buckets.

    >>> ranks_in_piece(np.array([0.1, 0.9]), np.array([3, 0])).tolist()
    [3, 0]
    """
    order = np.argsort(-scores, kind="stable")
    falling = bucket_of(scores[order]).astype(np.int64)  # 24 bits are left
    buckets = np.unique(falling)
    which = np.searchsorted(buckets, falling)
    begins = np.searchsorted(-falling, -buckets)  # place of the first row of each bucket
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[order] = first[which] + np.arange(len(scores)) - begins[which]
    return ranks
