"""The paper's alignment losses per item (Section 4.2), in NumPy: what the oracle sorts by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastfill.align.heads import log_probabilities
from fastfill.errors import ShapeError
from fastfill.features import Array, Matrix, check_classes, check_rows

Losses = NDArray[np.float64]

_BLOCK = 1 << 14  # rows taken together: bounds the memory of a temporary


def l2_loss(aligned: Matrix, new: Matrix) -> Losses:
    """L_l2 = ‖φ_new(x) − h(φ_old(x))‖², (n,).

    >>> l2_loss(np.float32([[1, 2]]), np.float32([[1, 5]]))
    array([9.])
    """
    if aligned.shape != new.shape:
        raise ShapeError(
            f"The aligned vectors are {aligned.shape} and the new ones {new.shape}: the loss "
            "compares the same items in the same space."
        )
    losses = np.empty(len(new))
    for rows in _blocks(len(new)):
        error = aligned[rows].astype(np.float64) - new[rows]
        losses[rows] = np.einsum("ij,ij->i", error, error)
    return losses


def disc_loss(aligned: Matrix, labels: Array, head: Matrix, smoothing: float = 0.1) -> Losses:
    """L_disc: cross-entropy of the new head on the aligned vectors, labels smoothed, (n,).

    >>> head = np.float32([[10, 0], [0, 10]])
    >>> disc_loss(np.float32([[1, 0], [1, 0]]), np.array([0, 1]), head, smoothing=0).round(3)
    array([ 0., 10.])
    """
    check_rows(len(labels), len(aligned), "labels")
    classes = check_classes(np.asarray(labels), len(head))
    losses = np.empty(len(aligned))
    for rows in _blocks(len(aligned)):
        logs = log_probabilities(aligned[rows], head)
        right = np.take_along_axis(logs, classes[rows, None], axis=1)[:, 0]
        losses[rows] = -(1 - smoothing) * right - smoothing * logs.mean(axis=1)
    return losses


def l2_disc_loss(
    aligned: Matrix, new: Matrix, labels: Array, head: Matrix, smoothing: float = 0.1
) -> Losses:
    """L_l2+disc, the sum of the two (the paper's equation 3) in the balance of training, (n,).

    Maps are trained in units of the new space (see `align.scaling`): there L_l2 is the squared
    error over the mean squared length of the new vectors, about 1 for a map that knows nothing,
    and the sum does not depend on the scale of the features.

    >>> head = np.float32([[10, 0], [0, 10]])
    >>> l2_disc_loss(np.float32([[1, 0]]), np.float32([[1, 1]]), np.array([0]), head, 0).round(3)
    array([0.5])
    """
    length = np.einsum("ij,ij->", new, new, dtype=np.float64) / len(new)
    l2 = l2_loss(aligned, new) / (length or 1.0)
    return l2 + disc_loss(aligned, labels, head, smoothing)


def _blocks(rows: int) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, rows, _BLOCK)]
