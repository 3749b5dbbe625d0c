"""The fingerprint of an item's content: its old vector and its input."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Array

_BLOCK = 4_096  # rows whose words are multiplied together: bounds the memory
_NONE = "-" * 16


def fingerprints(old: Array, present: Array, inputs: Iterable[object]) -> list[str]:
    """32 characters per row of `old` (n, d) that change when the vector or the input changes.

    Rows that are not `present` have no vector.

    >>> old = np.ones((2, 3), np.float32)
    >>> one, other = fingerprints(old, np.array([True, True]), ["a text", "another text"])
    >>> one[:16] == other[:16], one == other
    (True, False)
    """
    vectors = _vector_hashes(old).tolist()
    return [
        (f"{vector:016x}" if there else _NONE) + _input_hash(content)
        for vector, there, content in zip(vectors, present, inputs, strict=True)
    ]


def _input_hash(content: object) -> str:
    if content is None:
        return _NONE
    data = content if isinstance(content, bytes) else str(content).encode()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _vector_hashes(vectors: Array) -> NDArray[np.uint64]:
    """Multilinear hashing of the bits, (n,): Σ aᵢ·xᵢ mod 2⁶⁴ with odd random aᵢ.

    An odd factor is invertible, so a change in one number never goes unseen, and a change in
    several does with a chance of the order of 2⁻⁶⁴.
    """
    width = vectors.shape[1] * vectors.dtype.itemsize
    size = 8 if width % 8 == 0 else vectors.dtype.itemsize  # fewer words are faster
    words = np.ascontiguousarray(vectors).view(np.dtype(f"u{size}"))  # (n, words)
    rng = np.random.default_rng(20_230)
    factors = rng.integers(0, 2**64, size=words.shape[1], dtype=np.uint64) | np.uint64(1)
    hashes = np.empty(len(words), dtype=np.uint64)
    for start in range(0, len(words), _BLOCK):
        block = words[start : start + _BLOCK].astype(np.uint64, copy=False)
        hashes[start : start + _BLOCK] = (block * factors).sum(axis=1, dtype=np.uint64)
    return hashes
