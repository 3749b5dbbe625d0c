"""`PairViews`: several looks at the same items, each look through both models.

Whoever owns the inputs can show each of them to both models several times, cropped or worded
differently. A view is one such look at all items. The same view goes through both models, so that
what a map has to learn stays the same: this old vector, that new vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fastfill.errors import InputError, ShapeError
from fastfill.features.values import Array, Ints, Matrix, as_matrix, check_positive


@dataclass(frozen=True, eq=False)
class PairView:
    """One look at all items: their vectors under both models, and under a third where it is used.

    >>> PairView([[1.0], [2.0]], [[3.0, 4.0], [5.0, 6.0]]).new.shape
    (2, 2)
    """

    old: Matrix  # (n, d_old)
    new: Matrix  # (n, d_new)
    side: Matrix | None = None  # (n, d_side)

    def __init__(self, old: ArrayLike, new: ArrayLike, side: ArrayLike | None = None) -> None:
        object.__setattr__(self, "old", as_matrix(old, "old vectors of a view"))
        object.__setattr__(self, "new", as_matrix(new, "new vectors of a view"))
        extra = None if side is None else as_matrix(side, "side-information of a view")
        object.__setattr__(self, "side", extra)
        for name, rows in (("new", self.new), ("side", extra)):
            if rows is not None and len(rows) != len(self.old):
                raise ShapeError(
                    f"A view has {len(self.old):,} old and {len(rows):,} {name} vectors: "
                    "it is one look at the same items."
                )


MakeView = Callable[[int], PairView]  # from the number of a view


@dataclass(frozen=True, eq=False)
class PairViews:
    """So many views of the same items, made or read one at a time.

    >>> views = PairViews.generated(3, lambda number: PairView([[number]], [[-number]]))
    >>> views.look(2).new
    array([[-2.]], dtype=float32)
    """

    count: int
    make: MakeView
    rows: Ints | None = None  # which items of a made view; None: all of them

    def __post_init__(self) -> None:
        check_positive(self.count, "The number of views")

    @classmethod
    def generated(cls, count: int, make: MakeView) -> PairViews:
        """Views that a function makes from their number, 0 to count − 1, whenever one is needed."""
        return cls(count, make)

    @classmethod
    def of_arrays(
        cls, old: ArrayLike, new: ArrayLike, side: ArrayLike | None = None,
        names: Sequence[str] = ("old views", "new views", "side-information"),
    ) -> PairViews:  # fmt: skip
        """Views in arrays (views, n, dimensions), which may be mapped files.

        >>> PairViews.of_arrays(np.ones((5, 2, 3)), np.ones((5, 2, 4))).look(4).new.shape
        (2, 4)
        """
        given = [old, new] if side is None else [old, new, side]
        arrays = [_stacked(each, name) for each, name in zip(given, names, strict=False)]
        for array, name in zip(arrays[1:], names[1:], strict=False):
            _check_same_items(arrays[0].shape, array.shape, names[0], name)

        def make(number: int) -> PairView:
            return PairView(*(array[number] for array in arrays))

        return cls(len(arrays[0]), make)

    def look(self, number: int) -> PairView:
        """The view of that number, counted on from the start where there are no more."""
        view = self.make(number % self.count)
        if self.rows is None:
            return view
        side = None if view.side is None else view.side[self.rows]
        return PairView(view.old[self.rows], view.new[self.rows], side)

    def take(self, rows: ArrayLike) -> PairViews:
        """The same views of some of the items, in the order given."""
        index = np.asarray(rows)
        return PairViews(self.count, self.make, index if self.rows is None else self.rows[index])

    def check_like(self, rows: int, old_dim: int, new_dim: int, side_dim: int | None) -> None:
        """Refuse views of other items or other models; the first one speaks for all."""
        first = self.look(0)
        shapes = {"old": (first.old, old_dim), "new": (first.new, new_dim)}
        if first.side is not None:
            if side_dim is None:
                raise InputError(
                    "The views have side-information and the pairs have none: give it for both."
                )
            shapes["side"] = (first.side, side_dim)
        for name, (matrix, dim) in shapes.items():
            if matrix.shape != (rows, dim):
                raise ShapeError(
                    f"A view has {name} vectors of shape {matrix.shape} where {(rows, dim)} is "
                    "expected: views are of the same items by the same models as the pairs."
                )


def _stacked(values: ArrayLike, name: str) -> Array:
    """A finite array (views, n, dimensions)."""
    array = np.asanyarray(values)
    if array.ndim != 3:
        raise ShapeError(
            f"{name}: expected views as a 3-D array (views, rows, dimensions), "
            f"got shape {array.shape}."
        )
    for number, view in enumerate(array):
        as_matrix(view, f"{name}, view {number}")
    return array


def _check_same_items(
    first: tuple[int, ...], other: tuple[int, ...], name: str, other_name: str
) -> None:
    if first[:2] != other[:2]:
        raise ShapeError(
            f"{name} has {first[0]:,} views of {first[1]:,} rows and {other_name} {other[0]:,} "
            f"of {other[1]:,}: give the same views of the same items under both models."
        )
