"""Aligned vectors set back by their doubt, so that an uncertain item does not crowd out a sure one.

The squared distance of a query to the new vector n of an item is not known, only h, an estimate of
n. What is to be expected of it is ‖q − h‖² and the error of h: an aligned vector stands nearer to
every query than the new one will. A store ranks by distance alone, so a share of the error is put
into the vector itself: h + t·u, where u is a direction that the new model hardly uses. Queries have
next to nothing along u, so every squared distance grows by t² and nothing else changes.

t² is a share of the predicted squared error; where a classifier is known, of the mean error times
the classifier's doubt, because what harms retrieval is an item between two classes.
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
SHARE_OF_DOUBT = 0.5  # of the mean error, for an item that may as well be of another class
MOST_USED = 0.002  # of the squared length of new vectors, along a direction that is hardly used

Doubt = NDArray[np.floating[Any]]  # (n,)


@dataclass(frozen=True, eq=False)
class Setback:
    """How far aligned vectors are set back, and in which direction.

    >>> setback = Setback(np.float32([0, 1]), share=0.5)
    >>> setback(np.float32([[3, 0], [4, 0]]), doubt=np.float32([8, 0]))
    array([[3., 2.],
           [4., 0.]], dtype=float32)
    """

    direction: Matrix  # (d_new,), of unit length
    share: float
    error: float | None = None  # the mean squared error; with it, doubt is the classifier's
    unit: bool = False  # vectors are of unit length, and stay so

    @classmethod
    def of(
        cls, new: Matrix, *, share: float | None = None, head: Matrix | None = None,
        error: float | None = None, unit: bool = False,
    ) -> Setback | None:  # fmt: skip
        """From new vectors, and the classifier and the mean error where they are known.

        None where the share is 0, or where the new model uses all directions.
        """
        doubted = head is not None and error is not None
        if share is None:
            share = SHARE_OF_DOUBT if doubted else SHARE
        if not 0 <= share <= 1:
            raise InputError(f"setback is a share between 0 and 1, got {share}.")
        if share == 0 or used_along(unused_direction(new[::2]), new[1::2]) > MOST_USED:
            return None
        direction = unused_direction(new, head)
        return cls(direction, float(share), error if doubted else None, unit)

    def doubt(self, h: Matrix, variance: Doubt, head: Matrix | None) -> Doubt:
        """Of each estimate, in squared units of the new space."""
        if self.error is None or head is None:
            return variance
        return np.asarray(self.error * small_margin(log_probabilities(h, head)))

    def __call__(self, h: Matrix, doubt: Doubt) -> Matrix:
        """The vectors to serve."""
        t = np.sqrt(self.share * doubt).astype(np.float32)
        back = h + t[:, None] * self.direction
        if self.unit:
            back /= np.linalg.norm(back, axis=1, keepdims=True)
        return np.asarray(back)

    def to_json(self) -> dict[str, Any]:
        """Everything but the direction."""
        return {"share": self.share, "error": self.error, "unit": self.unit}


def served(
    setback: Setback | None, h: Matrix, variance: NDArray[np.float32], head: Matrix | None,
    seen: Matrix | None = None,
) -> Aligned:  # fmt: skip
    """What is served of the estimates h; the classifier may look at others, as `seen`."""
    if setback is None:
        return Aligned(h, variance)
    doubt = setback.doubt(h if seen is None else seen, variance, head)
    return Aligned(setback(h, doubt), variance, h)


def sets_back(scaling: Scaling) -> bool:
    """Are vectors set back unless something else is asked for?

    An inner product is expected to be that with h: no error adds to it. And on the one text that
    was measured, of unit length under cosine, setting back raised mAP and lowered top-1.
    """
    return scaling.distance == "l2" and not scaling.unit


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
