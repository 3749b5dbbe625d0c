"""What goes into a method and what comes out of it: scaled pairs, and the arrays of a map."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastfill.align.losses import LossSpec
from fastfill.features import Ints, Matrix

if TYPE_CHECKING:
    from fastfill.align.options import FitOptions


@dataclass(frozen=True)
class Task:
    """Scaled pairs, and how a map is to be learned from them."""

    x: Matrix  # (n, d_old + d_side), scaled
    y: Matrix  # (n, d_new), scaled
    old_dim: int
    labels: NDArray[np.int64] | None
    head: Matrix | None  # (classes, d_new), for vectors in scaled units
    loss: LossSpec
    options: FitOptions

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Ints) -> Task:
        """The same task on some of the pairs."""
        labels = None if self.labels is None else self.labels[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], labels=labels)


@dataclass(frozen=True)
class HeldOut:
    """What a method predicts for pairs by fits without them, in the units of learning."""

    rows: Ints
    h: Matrix
    doubt: NDArray[np.float64]  # the raw scores of the expected error

    def take(self, rows: Ints) -> HeldOut:
        """The predictions for these rows of the pairs, in their order."""
        place = np.full(int(max(self.rows.max(), rows.max())) + 1, -1)
        place[self.rows] = np.arange(len(self.rows))
        return HeldOut(rows, self.h[place[rows]], self.doubt[place[rows]])


@dataclass(frozen=True)
class Fitted:
    """The arrays of a map, and facts about its training."""

    arrays: dict[str, Matrix]
    facts: dict[str, Any]
    held_out: HeldOut | None = None  # where the method knows it without further fits
