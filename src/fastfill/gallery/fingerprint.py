"""The fingerprint of an item's content: its old vector and its input."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Array

_BLOCK = 4_096  # rows whose words are multiplied together: bounds the memory
_NONE = b"-" * 16


def fingerprints(old: Array, present: Array, inputs: Iterable[object]) -> NDArray[np.bytes_]:
    """(n,) 32 characters per row of `old` (n, d): others when the vector or the input changes.

    Rows that are not `present` have no vector.

    >>> old = np.ones((2, 3), np.float32)
    >>> one, other = fingerprints(old, np.array([True, True]), ["a text", "another text"])
    >>> one[:16] == other[:16], one == other
    (True, False)
    """
    if not len(old):
        return np.empty(0, dtype="S32")
    digests = [None if content is None else _input_hash(content) for content in inputs]
    both = np.empty((len(old), 2), dtype=">u8")
    both[:, 0] = _vector_hashes(old)
    both[:, 1] = np.frombuffer(b"".join(digest or bytes(8) for digest in digests), dtype=">u8")
    halves = np.frombuffer(both.tobytes().hex().encode(), dtype="S16").reshape(len(old), 2).copy()
    halves[~np.asarray(present), 0] = _NONE
    halves[np.array([digest is None for digest in digests]), 1] = _NONE
    return halves.view("S32")[:, 0]


def content_fingerprints(old: Array, inputs: Iterable[object]) -> NDArray[np.bytes_]:
    """(n,) the same, where rows of `old` that are NaN throughout have no vector."""
    return fingerprints(old, ~missing_vectors(old), inputs)


def missing_vectors(vectors: Array) -> NDArray[np.bool_]:
    """(n,) rows of (n, d) without a vector: NaN throughout, told by the first number nearly always.

    >>> missing_vectors(np.array([[np.nan, np.nan], [np.nan, 1.0], [0.0, 1.0]]))
    array([ True, False, False])
    """
    missing = np.isnan(vectors[:, 0])
    missing[missing] = np.isnan(vectors[missing]).all(axis=1)
    return np.asarray(missing)


def _input_hash(content: object) -> bytes:
    data = content if isinstance(content, bytes) else str(content).encode()
    return blake2b(data, digest_size=8).digest()


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
