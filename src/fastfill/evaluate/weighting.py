"""Average precision in a gallery of which only a sample is known, each item standing for many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]


def sampled_precision(
    relevant: Column, others: Column, counts: tuple[int, int], rng: np.random.Generator
) -> float:
    """AP of a query, from the distances of a few relevant items and of a few others.

    `counts` are the numbers of both in the whole gallery. The r-th of the known relevant items has
    1 + (P − 1)·a relevant and N·b other items up to it, where a and b are the shares of the known.
    Shares of few items make it too large by what falls with their inverse number: a half of the
    others is off twice as much, and what it is off more is taken away.

    >>> near, far = np.array([1.0, 3.0]), np.array([2.0, 4.0, 5.0, 6.0])
    >>> sampled_precision(near, far[1:], (10, 90), np.random.default_rng(0))
    1.0
    """
    halves = [rng.permutation(others)[: max(1, len(others) // 2)] for _ in range(2)]
    half = np.mean([_precision(relevant, part, counts) for part in halves])
    return float(2 * _precision(relevant, others, counts) - half)


def _precision(relevant: Column, others: Column, counts: tuple[int, int]) -> float:
    ahead = np.searchsorted(np.sort(others), np.sort(relevant)) / len(others)
    known = len(relevant)
    share = np.arange(known) / (known - 1) if known > 1 else np.full(1, 0.5)
    right = 1 + (counts[0] - 1) * share
    return float((right / (right + counts[1] * ahead)).mean())
