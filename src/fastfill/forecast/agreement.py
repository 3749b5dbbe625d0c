"""Agreement of neighbours in a large gallery, read off a small one: the pairs as a sample of it.

The k nearest of n items are the k·m/n nearest of m. Where that is less than one, the agreement of
the first few neighbours is extended along the logarithm of k, on which it lies nearly on a line.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Ints

LEAST = 4  # numbers of neighbours that a line is laid through
DISCRETE = (0.25, 1.0)  # see `effective`

Column = NDArray[np.float64]


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


def pair_steps(order: Column, first: Ints, fractions: Column) -> Ints:
    """The stage at which each pair would become new: some first, then by score."""
    m = len(order)
    ranked = np.argsort(-order, kind="stable")
    ranked = np.concatenate([first, ranked[~np.isin(ranked, first)]])
    steps = np.empty(m, dtype=np.int64)
    counts = np.floor(fractions * m + 1e-9 * m)
    steps[ranked] = np.searchsorted(counts, np.arange(m), side="right")
    return steps


def some_first(pairs: int, share: float, seed: list[int]) -> Ints:
    """The pairs that stand for those of the real gallery, which are new before all others."""
    return np.random.default_rng(seed).permutation(pairs)[: round(share * pairs)]
