"""Points as arrays, conditions of filters, and the signature of a vector."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qdrant_client import models

from fastfill.features import Matrix

UNNAMED = ""  # what Qdrant calls the vector of a collection that has just one
SAME = 5e-3  # signatures this close are of the same vector: Qdrant rounds what it normalises
DIRECTIONS = 4  # numbers of a signature


def vector_of(record: Any, name: str) -> Sequence[float] | None:
    """The vector of this name, or None."""
    vectors = record.vector
    if isinstance(vectors, dict):
        vector: Sequence[float] | None = vectors.get(name)
        return vector
    return vectors if name == UNNAMED else None


def as_matrix(
    records: Sequence[Any], name: str, dim: int, *, scaled: bool = False
) -> NDArray[np.float32]:
    """(n, dim) with NaN where a point has no such vector; `scaled`: each of length 1."""
    numbers = np.float64 if scaled else np.float32  # a length is computed before digits are lost
    matrix = np.full((len(records), max(dim, 1)), np.nan, dtype=numbers)
    for position, record in enumerate(records):
        vector = None if record is None else vector_of(record, name)
        if vector is not None:
            matrix[position] = vector
    if scaled:
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        matrix /= np.where(norms > 0, norms, 1)
    return matrix.astype(np.float32, copy=False)


def look_up(payload: Mapping[str, Any] | None, path: str) -> Any:
    """The value at a path of keys joined by dots, None where there is none.

    >>> look_up({"metadata": {"text": "a red bicycle"}}, "metadata.text")
    'a red bicycle'
    """
    value: Any = payload
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def payload_hash(payload: Mapping[str, Any] | None) -> str:
    """Changes when any value of the payload does.

    >>> payload_hash({"a": 1, "b": 2}) == payload_hash({"b": 2, "a": 1})
    True
    """
    text = json.dumps(payload or {}, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def signatures(vectors: Matrix) -> NDArray[np.float64]:
    """(n, 4) projections of the directions of `vectors`, NaN where there is none.

    Unlike a hash they bear the last digit, which Qdrant changes when it normalises.

    >>> vectors = np.float32([[3, 4], [4, 3]])
    >>> same_signature(signatures(vectors), signatures(2 * vectors)).tolist()
    [True, True]
    >>> same_signature(signatures(vectors), signatures(vectors[::-1])).tolist()
    [False, False]
    """
    rng = np.random.default_rng(20_230)
    directions = rng.standard_normal((vectors.shape[1], DIRECTIONS))
    projections = np.full((len(vectors), DIRECTIONS), np.nan)
    there = np.isfinite(vectors).all(axis=1)
    norms = np.linalg.norm(vectors[there], axis=1, keepdims=True)
    projections[there] = vectors[there] / np.where(norms > 0, norms, 1) @ directions
    return projections


def same_signature(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(n,) do both stand for the same vector, or both for none?"""
    near = (np.abs(one - other) < SAME).all(axis=1)
    return np.asarray(near | (np.isnan(one).all(axis=1) & np.isnan(other).all(axis=1)))


def equals(name: str, value: Any) -> Any:
    """The condition that a value of the payload, or the id, is this one."""
    if name == "id":
        return models.HasIdCondition(has_id=[value])
    if value is None:
        return is_empty(name)
    if isinstance(value, float | np.floating):
        return models.FieldCondition(
            key=name, range=models.Range(gte=float(value), lte=float(value))
        )
    plain = value.item() if isinstance(value, np.generic) else value
    return models.FieldCondition(key=name, match=models.MatchValue(value=plain))


def among(name: str, values: Iterable[str]) -> Any:
    """The condition that a value of the payload is one of these."""
    return models.FieldCondition(key=name, match=models.MatchAny(any=sorted(set(values))))


def is_empty(name: str) -> Any:
    """The condition that the payload has no such value."""
    return models.IsEmptyCondition(is_empty=models.PayloadField(key=name))


def has_vector(name: str) -> Any:
    """The condition that the point has this vector."""
    return models.HasVectorCondition(has_vector=name)


def all_of(*conditions: Any, but: Sequence[Any] = ()) -> Any:
    """A filter: all of these and none of `but`."""
    return models.Filter(must=list(conditions) or None, must_not=list(but) or None)
