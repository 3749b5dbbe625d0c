"""The distance penalty: aligned vectors moved away from all queries by their predicted error.

The squared distance of a query to the new vector n of an item is not known, only h, an estimate of
n. What is to be expected of it is ‖q − h‖² and the error of h: an aligned vector stands nearer to
every query than the new one will, so that an uncertain item crowds out a sure one. A store ranks by
distance alone, so a share of the error is put into the vector itself: h + t·u, where u is a
direction that the new model hardly uses. Queries have next to nothing along u, so every squared
distance grows by t² and nothing else changes.

t² is a share of the predicted squared error; where a classifier is known, of the mean error times
the classifier's uncertainty, because what harms retrieval is an item between two classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.align.heads import log_probabilities, small_margin
from fastfill.align.scaling import Scaling
from fastfill.align.values import Aligned
from fastfill.errors import InputError
from fastfill.features import Matrix

SHARE = 0.15  # of the predicted error
SHARE_BY_HEAD = 0.5  # of the mean error, for an item that may as well be of another class
KEY = "setback"  # in artefacts, as version 0.1.0 wrote it
MOST_USED = 0.002  # of the squared length of new vectors, along a direction that is hardly used

Errors = NDArray[np.floating[Any]]  # (n,)


@dataclass(frozen=True, eq=False)
class Penalty:
    """How far aligned vectors are moved away from all queries, and in which direction.

    >>> penalty = Penalty(np.float32([0, 1]), share=0.5)
    >>> penalty(np.float32([[3, 0], [4, 0]]), errors=np.float32([8, 0]))
    array([[3., 2.],
           [4., 0.]], dtype=float32)
    """

    direction: Matrix  # (d_new,), of unit length
    share: float
    error: float | None = None  # the mean squared error; with it, the classifier says of which item
    unit: bool = False  # vectors are of unit length, and stay so

    @classmethod
    def of(
        cls, new: Matrix, *, share: float | None = None, head: Matrix | None = None,
        error: float | None = None, unit: bool = False,
    ) -> Penalty | None:  # fmt: skip
        """From new vectors, and the classifier and the mean error where they are known.

        None where the share is 0, or where the new model uses all directions.
        """
        check_share(share)
        by_head = head is not None and error is not None
        if share is None:
            share = SHARE_BY_HEAD if by_head else SHARE
        if share == 0 or used_along(unused_direction(new[::2]), new[1::2]) > MOST_USED:
            return None
        direction = unused_direction(new, head)
        return cls(direction, float(share), error if by_head else None, unit)

    def errors(self, h: Matrix, variance: Errors, head: Matrix | None) -> Errors:
        """What is taken to be the squared error of each estimate."""
        if self.error is None or head is None:
            return variance
        return np.asarray(self.error * small_margin(log_probabilities(h, head)))

    def __call__(self, h: Matrix, errors: Errors) -> Matrix:
        """The vectors to serve."""
        t = np.sqrt(self.share * errors).astype(np.float32)
        moved = h + t[:, None] * self.direction
        if self.unit:
            moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        return np.asarray(moved)

    def to_json(self) -> dict[str, Any]:
        """Everything but the direction."""
        return {"share": self.share, "error": self.error, "unit": self.unit}


def penalised(
    penalty: Penalty | None, h: Matrix, variance: NDArray[np.float32], head: Matrix | None,
    seen: Matrix | None = None,
) -> Aligned:  # fmt: skip
    """What is served of the estimates h; the classifier may look at others, as `seen`."""
    if penalty is None:
        return Aligned(h, variance)
    errors = penalty.errors(h if seen is None else seen, variance, head)
    return Aligned(penalty(h, errors), variance, h)


def check_share(share: float | None) -> None:
    """Refuse a penalty that is no share of the error."""
    if share is not None and not 0 <= share <= 1:
        raise InputError(f"penalty is a share between 0 and 1, got {share}.")


def penalised_by_default(scaling: Scaling) -> bool:
    """Is there a penalty unless something else is asked for?

    An inner product is expected to be that with h: no error adds to it. And on the one text that
    was measured, of unit length under cosine, a penalty raised mAP and lowered top-1.
    """
    return scaling.short_is_near


def unused_direction(new: Matrix, head: Matrix | None = None) -> Matrix:
    """The direction along which new vectors, and the classifier's rows, have the least, (d_new,).

    >>> abs(unused_direction(np.float32([[3, 0.1, 1], [-2, 0, 2]])).round(1))
    array([0., 1., 0.], dtype=float32)
    """
    used = _moments(new)
    if head is not None:
        used += _moments(head)
    direction = np.linalg.eigh(used)[1][:, 0]
    largest = direction[np.argmax(np.abs(direction))]
    return np.asarray(direction * np.sign(largest), dtype=np.float32)


def used_along(direction: Matrix, new: Matrix) -> float:
    """The share of the squared lengths of new vectors that lies along a direction.

    >>> used_along(np.float32([0, 1]), np.float32([[3, 1], [3, -1]]))
    0.1
    """
    return round(float(np.square(new @ direction).sum() / np.square(new).sum()), 6)


def _moments(rows: Matrix) -> NDArray[np.float64]:
    """Σ x·xᵀ, of trace 1."""
    moments = np.asarray(rows.T @ rows, dtype=np.float64)
    return moments / max(float(np.trace(moments)), 1e-30)
