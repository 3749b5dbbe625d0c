"""A small gallery with a toy model upgrade, for every test of the job."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfill.features import Matrix

OLD, NEW = 6, 8
MIX = np.random.default_rng(5).standard_normal((OLD, NEW)).astype(np.float32)


def old_vector(text: str) -> list[float]:
    """What the old model made of a text."""
    return (
        np.random.default_rng(zlib.crc32(text.encode()))
        .standard_normal(OLD)
        .astype(np.float32)
        .tolist()
    )


def new_vector(text: str) -> Matrix:
    """What the new model makes of it: near a linear map of the old one, but not on it."""
    old = np.array(old_vector(text), dtype=np.float32)
    return np.asarray(old @ MIX + 0.3 * np.sin(3 * (old @ MIX)), dtype=np.float32)


def encode(texts: Sequence[Any]) -> Matrix:
    """The new model."""
    return np.stack([new_vector(str(text)) for text in texts])


def other_encode(texts: Sequence[Any]) -> Matrix:
    """Another new model, of the same dimensions."""
    return -2 * encode(texts)


def wide_encode(texts: Sequence[Any]) -> Matrix:
    """Another new model, of more dimensions."""
    vectors = encode(texts)
    return np.concatenate([vectors, vectors], axis=1)


def gallery_values(rows: int, first: int = 0) -> dict[str, list[Any]]:
    """Columns of a gallery."""
    numbers = range(first, first + rows)
    texts = [f"{n:05d} text" for n in numbers]
    return {
        "id": [f"item {n}" for n in numbers],
        "text": texts,
        "album": [n % 3 for n in numbers],
        "vector": [old_vector(text) for text in texts],
    }


def serving(store: Any) -> dict[Any, tuple[Any, Any, Matrix]]:
    """By id: text, generation and added vector."""
    found = {}
    for rows in store.scan(None, batch=1_000, new=True):
        for position, key in enumerate(rows.ids):
            found[key] = (rows.inputs[position], rows.generation[position], rows.new[position])
    return found
