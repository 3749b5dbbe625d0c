"""What goes into a method and what comes out of it: scaled pairs, and the arrays of a map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastfill.align.losses import LossSpec
from fastfill.align.scaling import Scaling
from fastfill.errors import ZeroVectorError
from fastfill.features import Ints, Matrix, PairView, PairViews, normalised

if TYPE_CHECKING:
    from fastfill.align.options import FitOptions


Look = tuple[Matrix, Matrix]  # scaled inputs (n, d_old + d_side) and targets (n, d_new)


@dataclass(frozen=True, eq=False)
class ScaledViews:
    """The views of the pairs in the units of learning."""

    views: PairViews
    scaling: Scaling
    side: Matrix | None  # (n, d_side): the plain look's, for views without their own
    name: str  # of the old vectors, in errors

    @property
    def count(self) -> int:
        """How many views there are."""
        return self.views.count

    def look(self, number: int) -> Look:
        """Inputs and targets of one view; the numbers go round."""
        return self.scaled(self.views.look(number), number)

    def scaled(self, view: PairView, number: int) -> Look:
        """Inputs and targets of a view that has been made."""
        old, new, side = view.on_host()
        name = f"{self.name}, view {number % self.count}"
        try:
            inputs = self.scaling.inputs(old, self.side if side is None else side, name)
        except ZeroVectorError:
            normalised(self.views.whole(number).on_host()[0], name)  # names the rows of the file
            raise
        return inputs, self.scaling.targets(new)

    def take(self, rows: Ints) -> ScaledViews:
        """All views of some of the items."""
        side = None if self.side is None else self.side[rows]
        return replace(self, views=self.views.take(rows), side=side)


@dataclass(frozen=True)
class Task:
    """Scaled pairs, and how a map is to be learned from them.

    x and y are the plain look at the pairs. Where there are views, maps are learned from these,
    and x and y are what they are measured on.
    """

    x: Matrix  # (n, d_old + d_side), scaled
    y: Matrix  # (n, d_new), scaled
    old_dim: int
    labels: NDArray[np.int64] | None
    head: Matrix | None  # (classes, d_new), for vectors in scaled units
    loss: LossSpec
    options: FitOptions
    views: ScaledViews | None = None

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Ints) -> Task:
        """The same task on some of the pairs."""
        labels = None if self.labels is None else self.labels[rows]
        views = None if self.views is None else self.views.take(rows)
        return replace(self, x=self.x[rows], y=self.y[rows], labels=labels, views=views)

    def looks(self) -> Iterator[Look]:
        """What a map is learned from: every view, or the plain look where there are none."""
        if self.views is None:
            yield self.x, self.y
            return
        for number in range(self.views.count):
            yield self.views.look(number)


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
