"""Arrow and LanceDB's SQL as the adapter needs them: vectors, literals, rows that differ."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastfill.errors import StoreError
from fastfill.features import Array
from fastfill.gallery import objects

MARK_TYPES = (pa.string(), pa.string(), pa.float32(), pa.float32(), pa.string())


def quoted(name: str) -> str:
    """A column's name in LanceDB's SQL.

    >>> quoted("my column")
    '`my column`'
    """
    if "`" in name:
        raise StoreError(f"Column {name!r} has a backtick in its name, which LanceDB cannot quote.")
    return f"`{name}`"


def literal(value: object) -> str:
    """A value in LanceDB's SQL.

    >>> literal("it's"), literal(np.int64(3)), literal(True)
    ("'it''s'", '3', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | np.integer | np.floating):
        return repr(value.item() if isinstance(value, np.generic) else value)
    return "'" + str(value).replace("'", "''") + "'"


def one_of(name: str, values: Iterable[object]) -> str:
    """The condition that a column has one of some values.

    >>> one_of("id", ["a", "b"])
    "`id` IN ('a', 'b')"
    """
    return f"{quoted(name)} IN ({', '.join(map(literal, values))})"


def matrix(table: Any, name: str, dim: int) -> Array:
    """A column of vectors as (n, d), NaN where there is none."""
    if name not in table.column_names:
        return np.full((len(table), max(dim, 1)), np.nan, dtype=np.float32)
    array = table[name].combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    if array.null_count == len(array):  # as before a start: nothing to copy
        return np.broadcast_to(np.float32("nan"), (len(array), dim))
    flat = array.values.slice(array.offset * dim, len(array) * dim)
    found = flat.to_numpy(zero_copy_only=False).reshape(len(array), dim)
    if array.null_count:
        found = found.copy()
        found[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return np.asarray(found)


def as_objects(table: Any, name: str) -> NDArray[np.object_]:
    """A column as Python objects (n,), None where it has no value or is not there."""
    if name not in table.column_names:
        return objects([None] * len(table))
    column = table[name]
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=object)
    return objects(column.to_pylist())


def missing(vectors: Array) -> NDArray[np.bool_]:
    """(n,) rows of (n, d) without a vector: NaN throughout, told by the first number nearly always.

    >>> missing(np.array([[np.nan, np.nan], [np.nan, 1.0], [0.0, 1.0]]))
    array([ True, False, False])
    """
    found = np.isnan(vectors[:, 0])
    found[found] = np.isnan(vectors[found]).all(axis=1)
    return np.asarray(found)


def lists(vectors: Array, kind: Any) -> Any:
    """(n, d) → a column of vectors of the type `kind`."""
    flat = pa.array(np.ascontiguousarray(vectors).ravel()).cast(kind.value_type)
    return pa.FixedSizeListArray.from_arrays(flat, kind.list_size).cast(kind)


def copyable(field: Any) -> bool:
    """Can a column be read and written back by LanceDB's client without any change?

    Blobs are read as references, and lists of numbers that may be vectors are mended on the way.
    """
    kind = field.type
    if field.metadata and any(b"blob" in key for key in field.metadata):
        return False
    if pa.types.is_fixed_size_list(kind):
        return bool(pa.types.is_floating(kind.value_type))
    return not (pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType))


def copyable_columns(schema: Any, but: Sequence[str] = ()) -> list[str]:
    """The names of the columns that can be copied, without some."""
    return [field.name for field in schema if copyable(field) and field.name not in but]


def whole(table: Any) -> NDArray[np.bool_]:
    """(n,) rows without a NaN in any vector: LanceDB's client would write a null in its place."""
    good = np.ones(len(table), dtype=bool)
    for field in table.schema:
        if pa.types.is_fixed_size_list(field.type) and len(table):
            vectors = matrix(table, field.name, field.type.list_size)
            with np.errstate(all="ignore"):
                suspect = np.flatnonzero(np.isnan(vectors.sum(axis=1)))  # NaN where any number is
            broken = suspect[~missing(vectors[suspect])] if len(suspect) else suspect
            good[broken] = False
    return good


def differing(one: Any, other: Any, names: Sequence[str]) -> NDArray[np.bool_]:
    """(n,) rows of two tables of the same length that are not the same in these columns."""
    found = np.zeros(len(one), dtype=bool)
    for name in names:
        if not one[name].equals(other[name]):
            both = zip(one[name].to_pylist(), other[name].to_pylist(), strict=True)
            found |= np.fromiter((a != b for a, b in both), dtype=bool, count=len(one))
    return found


def give_memory_back() -> None:
    """Return what was freed to the system.

    Lance and Arrow allocate and free whole batches in many threads; left alone the C library keeps
    ever more of it, in pieces.
    """
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
