"""A sample that stands for a gallery: how much each query counts, and what an item stands for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Array, Ints

FIRM = 2.0  # queries of a label that say as much about it as all queries do

Column = NDArray[np.float64]


def label_weights(labels: Array, asked: Ints) -> Column:
    """How much each query counts: more where its label has fewer queries than items, (q,).

    Queries are some of the items. How many of them have a label is chance, but how many items have
    it is known. A label of few queries is not trusted to say all about its items.

    >>> label_weights(np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 3])).round(2).tolist()
    [0.88, 0.88, 1.17]
    """
    _, kinds = np.unique(labels, return_inverse=True)
    items, queries = (np.bincount(kinds[rows], minlength=kinds.max() + 1)
                      for rows in (slice(None), asked))  # fmt: skip
    expected = items * len(asked) / items[queries > 0].sum()
    return np.asarray(((expected + FIRM) / (queries + FIRM))[kinds[asked]])


def balanced(
    values: NDArray[np.float64], ease: Column, usual: float, weights: Column
) -> NDArray[np.float64]:
    """Scores as those of queries that are as easy as usual: a regression on what is known of all.

    >>> scores, ease = np.array([[0.4], [0.6], [0.8]]), np.array([0.1, 0.2, 0.3])
    >>> round(float(balanced(scores, ease, usual=0.1, weights=np.ones(3)).mean()), 3)
    0.4
    """
    centred = ease - np.average(ease, weights=weights)
    spread = float(weights @ np.square(centred))
    slopes = (weights * centred) @ values / spread if spread > 0 else np.zeros(values.shape[1])
    return np.asarray(values - np.outer(ease - usual, slopes))


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
    count = len(relevant)
    share = np.arange(count) / (count - 1) if count > 1 else np.full(1, 0.5)
    right = 1 + (counts[0] - 1) * share
    return float((right / (right + counts[1] * ahead)).mean())
