"""Values of SQLite as vectors, inputs and ids, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fastfill.features import Matrix
from fastfill.gallery import Id
from fastfill.gallery.fingerprint import content_fingerprints

PRINT = 32  # characters of a fingerprint


def as_matrix(values: Sequence[bytes | None], dim: int) -> Matrix:
    """(n, dim) with NaN where there is no vector, or one of another length.

    >>> as_matrix([np.float32([1, 2]).tobytes(), None], 2)
    array([[ 1.,  2.],
           [nan, nan]], dtype=float32)
    """
    good = [isinstance(value, bytes) and len(value) == 4 * dim for value in values]
    whole = bytearray().join([v for v, is_good in zip(values, good, strict=True) if is_good and v])
    vectors = np.frombuffer(whole, dtype="<f4").reshape(-1, max(dim, 1))
    if len(vectors) == len(values):
        return vectors
    matrix = np.full((len(values), max(dim, 1)), np.nan, dtype=np.float32)
    matrix[np.array(good, dtype=bool)] = vectors
    return matrix


def as_blob(vector: Any) -> bytes:
    """A vector as sqlite-vec stores it."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def as_blobs(vectors: Matrix) -> list[bytes]:
    """Vectors (n, d), each as sqlite-vec stores it.

    >>> as_blobs(np.ones((2, 1), np.float32)) == [as_blob([1.0])] * 2
    True
    """
    whole, size = as_blob(vectors), 4 * vectors.shape[1]
    return [whole[at : at + size] for at in range(0, len(whole), size)]


def content_of(value: Any) -> Any:
    """An input: text and bytes as they are, numbers as text."""
    return value if value is None or isinstance(value, str | bytes) else str(value)


def prints_of(old: Matrix, inputs: Sequence[Any]) -> list[str]:
    """Fingerprints of rows."""
    text = content_fingerprints(old, inputs).tobytes().decode()
    return [text[at : at + PRINT] for at in range(0, len(text), PRINT)]


def ids_as_json(ids: Iterable[Id]) -> str:
    """Ids as one parameter.

    >>> ids_as_json(["it's", np.int64(3)])
    '["it\\'s", 3]'
    """
    return json.dumps([each.item() if isinstance(each, np.generic) else each for each in ids])
