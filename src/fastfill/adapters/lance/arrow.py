"""Arrow as the adapter needs it: vectors, columns that can be copied, rows that differ."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastfill.features import Array
from fastfill.gallery import objects
from fastfill.gallery.fingerprint import missing_vectors

MARK_TYPES = (pa.string(), pa.string(), pa.float32(), pa.float32(), pa.string())


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
    vectors = flat.to_numpy(zero_copy_only=False).reshape(len(array), dim)
    if array.null_count:
        vectors = vectors.copy()
        vectors[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return np.asarray(vectors)


def as_objects(table: Any, name: str) -> NDArray[np.object_]:
    """A column as Python objects (n,), None where it has no value or is not there."""
    if name not in table.column_names:
        return objects([None] * len(table))
    column = table[name]
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=object)
    return objects(column.to_pylist())


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
            broken = suspect[~missing_vectors(vectors[suspect])] if len(suspect) else suspect
            good[broken] = False
    return good


def differing(one: Any, other: Any, names: Sequence[str]) -> NDArray[np.bool_]:
    """(n,) rows of two tables of the same length that are not the same in these columns."""
    differ = np.zeros(len(one), dtype=bool)
    for name in names:
        if not one[name].equals(other[name]):
            both = zip(one[name].to_pylist(), other[name].to_pylist(), strict=True)
            differ |= np.fromiter((a != b for a, b in both), dtype=bool, count=len(one))
    return differ


def give_memory_back() -> None:
    """Return what was freed to the system.

    Lance and Arrow allocate and free whole batches in many threads; left alone the C library keeps
    ever more of it, in pieces.
    """
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
