"""Probes: numbers that stand for the vectors of points, so that sweeps need not be sent them.

The probe of a vector is its score against one fixed direction, which the server computes exactly
for points that are named by their ids. Where a vector changes, so does its score; where the score
is another one, for whatever reason, the vector itself is read and compared.

The score of an old vector is compared with what the server itself said of it. That of an added
vector must be known before the vector is there, or one that an application writes at the same time
would be taken for ours: it is computed here, and a server may be off by what rounding makes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Distance, Matrix

ROUNDED = 3e-6  # share of the largest possible score that a sum of float32 may be off
LENGTH = 10.0  # of the direction: near that of most vectors, where a distance says most


class Probe(NamedTuple):
    """What a server said of an old vector, and must say of the added one; None: there is none.

    >>> Probe(0.25, 0.5, 1e-6).fits(0.25, 0.5000001)
    True
    >>> Probe(0.25, 0.5, 1e-6).fits(0.2500001, 0.5), Probe(0.25, 0.5, 1e-6).fits(0.25, None)
    (False, False)
    """

    old: float | None
    new: float | None = None
    off: float = 0.0

    def fits(self, old: float | None, new: float | None) -> bool:
        """Do these scores stand for the same vectors?"""
        return self.same_old(old) and near(self.new, new, self.off)

    def same_old(self, old: float | None) -> bool:
        """The same number, of which a server's JSON may lose the last digit of twice as many."""
        if self.old is None or old is None:
            return self.old is old
        return bool(np.float32(self.old) == np.float32(old))


def near(one: float | None, other: float | None, off: float) -> bool:
    """Are both scores the same but for rounding, or both of no vector?"""
    if one is None or other is None:
        return one is other
    return abs(one - other) <= off


@cache
def direction(dim: int) -> NDArray[np.float32]:
    """(dim,) what all vectors of this size are compared with."""
    drawn = np.random.default_rng(20_230).standard_normal(dim)
    return (LENGTH * drawn / np.linalg.norm(drawn)).astype(np.float32)


def expected(vectors: Matrix, distance: Distance) -> list[tuple[float | None, float]]:
    """The score that a server will compute of each vector, and by how much it may be off.

    >>> [(score, _)] = expected(direction(4)[None, :], "cosine")
    >>> round(score, 6)
    1.0
    """
    rows = vectors.astype(np.float64)
    there = np.asarray(np.isfinite(rows).all(axis=1))
    fixed = direction(vectors.shape[1]).astype(np.float64)
    norms: NDArray[np.float64] = np.linalg.norm(rows, axis=1)
    scores, largest = rows @ fixed, norms * LENGTH
    if distance == "cosine":
        scores, largest = scores / np.where(norms > 0, largest, 1), np.ones_like(norms)
    elif distance == "l2":
        scores, largest = np.linalg.norm(rows - fixed, axis=1), norms + LENGTH
    pairs = zip(scores.tolist(), (ROUNDED * largest).tolist(), there.tolist(), strict=True)
    return [(score, off) if known else (None, 0.0) for score, off, known in pairs]


def read_probes(
    scores: Sequence[float | None], old: Matrix, distance: Distance
) -> list[Probe | None]:
    """Probes of old vectors that were read after their scores; None: these are of another one."""
    pairs = zip(scores, expected(old, distance), strict=True)
    return [Probe(said) if near(said, here, off) else None for said, (here, off) in pairs]
