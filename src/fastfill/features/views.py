"""`PairViews`: several looks at the same items, each look through both models.

Whoever owns the inputs can show each of them to both models several times, cropped or worded
differently. A view is one such look at all items. The same view goes through both models, so that
what a map has to learn stays the same: this old vector, that new vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fastfill.errors import InputError, ShapeError
from fastfill.features.values import Array, Ints, Matrix, as_matrix, check_positive


class DeviceArray(Protocol):
    """An array that lives on a device: a torch tensor, which this room does not import."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""

    def cpu(self) -> Any:
        """The same in the host's memory."""

    def __getitem__(self, rows: Any) -> Any:
        """Some of its rows."""


ViewArray = Matrix | DeviceArray


@dataclass(frozen=True, eq=False)
class PairView:
    """One look at all items: their vectors under both models, and under a third where it is used.

    Vectors on a device (torch tensors, also of half precision) stay there as they are, until a
    network is trained on them there or somebody asks for them `on_host`.

    >>> PairView([[1.0], [2.0]], [[3.0, 4.0], [5.0, 6.0]]).new.shape
    (2, 2)
    """

    old: ViewArray  # (n, d_old)
    new: ViewArray  # (n, d_new)
    side: ViewArray | None = None  # (n, d_side)

    def __init__(self, old: Any, new: Any, side: Any = None) -> None:
        rows = None
        for name, values in (("old", old), ("new", new), ("side", side)):
            array = None if values is None else _as_rows(values, f"{name} vectors of a view")
            object.__setattr__(self, name, array)
            if array is None:
                continue
            rows = rows or array.shape[0]
            if array.shape[0] != rows:
                raise ShapeError(
                    f"A view has {rows:,} old and {array.shape[0]:,} {name} vectors: "
                    "it is one look at the same items."
                )

    def take(self, rows: Ints) -> PairView:
        """The same look at some of the items."""
        side = None if self.side is None else self.side[rows]
        return PairView(self.old[rows], self.new[rows], side)

    def on_host(self) -> tuple[Matrix, Matrix, Matrix | None]:
        """Old and new vectors and side-information as NumPy arrays.

        >>> [None if part is None else part.shape for part in PairView([[1]], [[2, 3]]).on_host()]
        [(1, 1), (1, 2), None]
        """
        side = None if self.side is None else _to_host(self.side, "side vectors of a view")
        old = _to_host(self.old, "old vectors of a view")
        return old, _to_host(self.new, "new vectors of a view"), side


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
    like: ViewShape | None = None  # what a made view has to be; None: nothing is known of it

    def __post_init__(self) -> None:
        check_positive(self.count, "The number of views")

    @classmethod
    def generated(cls, count: int, make: MakeView) -> PairViews:
        """Views that a function makes from their number, 0 to count − 1, whenever one is needed."""
        return cls(count, make)

    @classmethod
    def of_arrays(
        cls, old: ArrayLike | DeviceArray, new: ArrayLike | DeviceArray,
        side: ArrayLike | DeviceArray | None = None,
        names: Sequence[str] = ("old views", "new views", "side-information"),
    ) -> PairViews:  # fmt: skip
        """Views in arrays (views, n, dimensions), which may be mapped files or torch tensors.

        >>> PairViews.of_arrays(np.ones((5, 2, 3)), np.ones((5, 2, 4))).look(4).new.shape
        (2, 4)
        """
        given = [old, new] if side is None else [old, new, side]
        arrays = [_stacked(each, name) for each, name in zip(given, names, strict=False)]
        for array, name in zip(arrays[1:], names[1:], strict=False):
            _check_same_items(arrays[0].shape, array.shape, names[0], name)

        def make(number: int) -> PairView:
            return PairView(*(array[number] for array in arrays))

        return cls(arrays[0].shape[0], make)

    def look(self, number: int) -> PairView:
        """The view of that number, counted on from the start where there are no more."""
        view = self.whole(number)
        return view if self.rows is None else view.take(self.rows)

    def whole(self, number: int) -> PairView:
        """The same view of all items that were shown, also where these are views of some."""
        number %= self.count
        view = self.make(number)
        if not isinstance(view, PairView):
            raise InputError(
                f"View {number} is a {type(view).__name__}: let the function that makes views "
                "return PairView(old, new)."
            )
        if self.like is not None:
            self.like.check(view, number)
        return view

    def take(self, rows: ArrayLike) -> PairViews:
        """The same views of some of the items, in the order given."""
        index = np.asarray(rows)
        return replace(self, rows=index if self.rows is None else self.rows[index])

    def checked(self, like: ViewShape) -> PairViews:
        """Views that are refused, whenever one is made, if they are not of this shape."""
        views = replace(self, like=like)
        views.whole(0)
        return views


@dataclass(frozen=True)
class ViewShape:
    """How many items a view has to show, and in how many dimensions."""

    rows: int
    old: int
    new: int
    side: int | None  # None: there is no side-information

    def check(self, view: PairView, number: int) -> None:
        """Refuse a view of other items or by other models."""
        if view.side is not None and self.side is None:
            raise InputError(
                "The views have side-information and the pairs have none: give it for both."
            )
        wanted = {"old": (view.old, self.old), "new": (view.new, self.new)}
        if view.side is not None and self.side is not None:
            wanted["side"] = (view.side, self.side)
        for name, (matrix, dim) in wanted.items():
            shape = tuple(matrix.shape)
            if shape != (self.rows, dim):
                raise ShapeError(
                    f"View {number} has {name} vectors of shape {shape} where {(self.rows, dim)} "
                    "is expected: views are of the same items by the same models as the pairs."
                )


def is_on_device(values: Any) -> bool:
    """Is it a tensor, to be left where it is?"""
    return hasattr(values, "cpu") and hasattr(values, "shape")


def _as_rows(values: Any, name: str) -> ViewArray:
    """A tensor as it is, anything else as a finite matrix."""
    if not is_on_device(values):
        return as_matrix(values, name)
    if len(values.shape) != 2:
        raise ShapeError(
            f"{name}: expected a 2-D array (rows, dimensions), got shape {tuple(values.shape)}."
        )
    rows: DeviceArray = values
    return rows


def _to_host(values: ViewArray, name: str) -> Matrix:
    host: Any = values if isinstance(values, np.ndarray) else values.cpu().float().numpy()
    return as_matrix(host, name)


def _stacked(values: Any, name: str) -> Array | DeviceArray:
    """A finite array (views, n, dimensions); the numbers of a tensor are not looked at."""
    array: Any = values if is_on_device(values) else np.asanyarray(values)
    if len(array.shape) != 3:
        raise ShapeError(
            f"{name}: expected views as a 3-D array (views, rows, dimensions), "
            f"got shape {tuple(array.shape)}."
        )
    if not is_on_device(array):
        for number, view in enumerate(array):
            as_matrix(view, f"{name}, view {number}")
    stacked: Array | DeviceArray = array
    return stacked


def _check_same_items(
    first: tuple[int, ...], other: tuple[int, ...], name: str, other_name: str
) -> None:
    if first[:2] != other[:2]:
        raise ShapeError(
            f"{name} has {first[0]:,} views of {first[1]:,} rows and {other_name} {other[0]:,} "
            f"of {other[1]:,}: give the same views of the same items under both models."
        )
