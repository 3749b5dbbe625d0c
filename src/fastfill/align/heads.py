"""What a classifier makes of vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import ShapeError
from fastfill.features import Matrix

Scores = NDArray[np.float64]


def log_probabilities(vectors: Matrix, head: Matrix) -> Scores:
    """Logarithms of the probabilities that a bias-free head gives to its classes, (n, classes)."""
    if vectors.shape[1] != head.shape[1]:
        raise ShapeError(
            f"The head is for vectors of {head.shape[1]} dimensions and the aligned ones have "
            f"{vectors.shape[1]}. Give the classifier of the new model."
        )
    logits = vectors.astype(np.float64) @ head.T.astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))


def small_margin(logs: Scores) -> Scores:
    """1 − (probability of the first class − that of the second), (n,).

    >>> small_margin(np.log([[0.7, 0.2, 0.1]])).round(3)
    array([0.5])
    """
    if logs.shape[1] == 1:
        return np.zeros(len(logs))
    two = np.exp(np.partition(logs, -2, axis=1)[:, -2:])
    return np.asarray(1 - (two[:, 1] - two[:, 0]))
