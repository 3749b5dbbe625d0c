"""`Features`: a validated, frozen value; and the checks of what others are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.errors import IdError, InputError, LabelError, NonFiniteError, ShapeError, some

Matrix = NDArray[np.float32]
Ints = NDArray[np.int64]
Array = NDArray[Any]

_BLOCK = 1 << 16  # rows looked at together when checking: bounds the memory of a check


def as_matrix(values: ArrayLike, name: str = "vectors") -> Matrix:
    """A finite, non-empty (n, d) float32 matrix, or an error that says what is wrong with it.

    A float32 array (also a memory-mapped one) is used as it is, without a copy.

    >>> as_matrix([[1, 2], [3, 4]]).dtype
    dtype('float32')
    """
    try:
        array = np.asanyarray(values)
    except ValueError:
        raise ShapeError(f"{name}: rows of different lengths. Give vectors of one model.") from None
    check_layout(array.shape, array.dtype, name)
    with np.errstate(over="ignore"):  # float64 beyond float32: found as infinite below
        matrix = array if array.dtype == np.float32 else array.astype(np.float32)
    check_finite(matrix, name)
    return matrix


def check_layout(shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> None:
    """Refuse what cannot be a matrix of numbers, before anything of it is read."""
    if dtype.kind not in "fiub":
        raise ShapeError(
            f"{name}: expected numbers in a (rows, dimensions) array, got dtype {dtype}. "
            "Save the vectors as float16, float32 or float64."
        )
    if len(shape) != 2:
        hints = {
            1: " Reshape a single vector to (1, dimensions).",
            3: " Views (views, rows, dimensions) belong to pairs; give the plain look here.",
        }
        hint = hints.get(len(shape), "")
        raise ShapeError(
            f"{name}: expected a 2-D array (rows, dimensions), got shape {shape}.{hint}"
        )
    if 0 in shape:
        raise ShapeError(f"{name}: is empty, shape {shape}. Give at least one vector.")


def check_finite(matrix: Matrix, name: str, first_row: int = 0) -> None:
    """Refuse NaN and infinite numbers, naming the rows."""
    bad: list[int] = []
    for start in range(0, len(matrix), _BLOCK):
        block = matrix[start : start + _BLOCK]
        with np.errstate(invalid="ignore", over="ignore"):  # ∞ − ∞; a sum beyond float32
            total = block.sum()
        if not np.isfinite(total):  # one cheap pass when all is well, a close look otherwise
            rows = np.flatnonzero(~np.isfinite(block).all(axis=1))
            bad.extend((rows + start + first_row).tolist())
    if bad:
        raise NonFiniteError(
            f"{name}: NaN or infinite numbers in rows {some(bad)}. "
            "Remove those rows or embed their items again."
        )


def as_column(values: ArrayLike, rows: int, name: str) -> Array:
    """A 1-D array with one entry per row: ids, labels or groups."""
    array = np.asanyarray(values)
    if array.ndim != 1:
        raise ShapeError(f"{name}: expected one entry per row, got shape {array.shape}.")
    if len(array) != rows:
        raise ShapeError(f"{name}: {len(array):,} entries for {rows:,} vectors. Give one for each.")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all() or (array != np.round(array)).any():
            raise LabelError(f"{name}: expected whole numbers or texts, got dtype {array.dtype}.")
        array = array.astype(np.int64)
    if array.dtype == object:
        missing = [row for row, value in enumerate(array) if value is None or value is np.nan]
        if missing:
            raise LabelError(f"{name}: nothing in rows {some(missing)}. Give one for each vector.")
        array = np.array([str(value) for value in array])
    if array.dtype.kind not in "iubU":
        raise LabelError(f"{name}: expected whole numbers or texts, got dtype {array.dtype}.")
    return array


def frozen(array: Array) -> Array:
    """The same numbers, not to be written to."""
    view = array.view(np.ndarray)[...] if not isinstance(array, np.memmap) else array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, eq=False)
class Features:
    """Items embedded by one model: ids and vectors, with labels and groups where they are known.

    >>> Features([[1.0, 0.0], [0.0, 1.0]], labels=[7, 9])
    Features(2 × 2, labels)
    """

    vectors: Matrix
    ids: Array
    labels: Array | None
    groups: Array | None
    name: str
    ids_given: bool  # False: they are the numbers of the rows

    def __init__(
        self,
        vectors: ArrayLike,
        ids: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        name: str = "features",
    ) -> None:
        matrix = as_matrix(vectors, name)
        rows = len(matrix)
        keys = np.arange(rows) if ids is None else as_column(ids, rows, f"{name}: ids")
        if ids is not None:
            _check_unique(keys, name)
        columns = {
            "vectors": matrix,
            "ids": keys,
            "labels": None if labels is None else as_column(labels, rows, f"{name}: labels"),
            "groups": None if groups is None else as_column(groups, rows, f"{name}: groups"),
        }
        for key, value in columns.items():
            object.__setattr__(self, key, None if value is None else frozen(value))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "ids_given", ids is not None)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """Length of each vector."""
        return int(self.vectors.shape[1])

    def __repr__(self) -> str:
        extras = [key for key in ("labels", "groups") if getattr(self, key) is not None]
        return f"Features({', '.join([f'{len(self):,} × {self.dim}', *extras])})"

    def with_vectors(self, vectors: ArrayLike) -> Features:
        """The same items under other vectors.

        >>> Features([[0.0], [2.0]], labels=[7, 9]).with_vectors([[1.0], [2.0]]).labels.tolist()
        [7, 9]
        """
        ids = self.ids if self.ids_given else None
        return Features(vectors, ids, self.labels, self.groups, self.name)

    def take(self, rows: ArrayLike) -> Features:
        """Some of the rows, in the order given.

        >>> Features([[1.0], [2.0], [3.0]]).take([2, 0]).ids.tolist()
        [2, 0]
        """
        index = np.asarray(rows)
        return Features(
            self.vectors[index],
            self.ids[index],
            None if self.labels is None else self.labels[index],
            None if self.groups is None else self.groups[index],
            self.name,
        )


def _check_unique(ids: Array, name: str) -> None:
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise IdError(
            f"{name}: duplicate ids {some(values[counts > 1])}. Every item needs an id of its own."
        )


def check_classes(labels: Array, classes: int, name: str = "labels") -> Ints:
    """Labels as row numbers of a classifier head, or an error that names those that are not."""
    if labels.dtype.kind not in "iub":
        raise LabelError(
            f"{name}: a classifier head needs labels 0 to {classes - 1}, got {labels.dtype}. "
            "Number the classes in the order of the head's rows."
        )
    bad = np.unique(labels[(labels < 0) | (labels >= classes)])
    if len(bad):
        raise LabelError(
            f"{name}: labels {some(bad)} are outside the head's classes 0 to {classes - 1}. "
            "Number the classes in the order of the head's rows."
        )
    return labels.astype(np.int64)


def check_rows(rows: int, expected: int, name: str) -> None:
    """Refuse a set that should have as many rows as another one and has not."""
    if rows != expected:
        raise ShapeError(f"{name}: {rows:,} rows where {expected:,} are expected.")


def check_positive(value: int, name: str) -> int:
    """Refuse a count that is not a positive whole number."""
    if value < 1:
        raise InputError(f"{name} must be at least 1, got {value}.")
    return value
