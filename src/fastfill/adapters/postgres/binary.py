"""Vectors and batches in PostgreSQL's binary form: what the adapter reads and copies in."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Matrix
from fastfill.gallery import Marks, Rows


def as_matrix(values: Sequence[bytes | None], dim: int) -> Matrix:
    """Vectors in pgvector's binary form (dim, unused, float4 …) as (n, d), NaN where null."""
    if all(value is None for value in values):  # as before a start
        return np.broadcast_to(np.float32("nan"), (len(values), dim))
    width = 4 + 4 * dim
    empty = b"\x7f\xc0\x00\x00" * (dim + 1)  # NaN throughout
    data = b"".join(value if value is not None else empty for value in values)
    numbers = np.frombuffer(data, dtype=">f4").reshape(len(values), width // 4)
    return numbers[:, 1:].astype(np.float32)


def dim_of(value: bytes) -> int:
    """The dimensions of a vector in pgvector's binary form.

    >>> dim_of(vector_bytes(np.zeros((1, 3), np.float32))[0])
    3
    """
    return len(value) // 4 - 1


def as_seen(
    marks: Sequence[bytes | None],
    versions: Sequence[str],
    vectors: Sequence[bytes | None],
    inputs: Sequence[str | bytes | None],
) -> NDArray[np.object_]:
    """(n, 2): the fingerprint and the version of each row as it was read.

    Fingerprints that the marks do not tell are computed here, from the bytes of vector and input:
    the same as PostgreSQL computes them, and several times faster.
    """
    seen = np.empty((len(marks), 2), dtype=object)
    seen[:, 0] = [
        fingerprint(vector, content) if mark is None else mark
        for mark, vector, content in zip(marks, vectors, inputs, strict=True)
    ]
    seen[:, 1] = [version.encode() for version in versions]
    return seen


def fingerprint(vector: bytes | None, content: str | bytes | None) -> bytes:
    """What `sql.fingerprint` says in SQL."""
    data = content.encode() if isinstance(content, str) else content
    left = b"\0" if vector is None else b"\1" + vector
    right = b"\0" if data is None else b"\1" + data
    return sha256(left + right).digest()[:16]


def copy_stream(rows: Rows, vectors: Matrix | None, marks: Marks) -> bytes:
    """A binary COPY of id, seen, version, generation, model, vector, variance, priority."""
    count = len(rows)
    encoded = [None] * count if vectors is None else vector_bytes(vectors)
    numbers = [_real_bytes(values, count) for values in (marks.variance, marks.priority)]
    chunks = [b"PGCOPY\n\xff\r\n\x00" + bytes(8)]
    texts = [
        [None if value is None else str(value).encode() for value in values]
        for values in (rows.ids, rows.generation, rows.model)
    ]
    seen = (rows.seen[:, 0], rows.seen[:, 1])
    columns = (texts[0], *seen, texts[1], texts[2], encoded, *numbers)
    pack = struct.Struct(">i").pack
    fields = struct.pack(">h", len(columns))
    null = pack(-1)
    for record in zip(*columns, strict=True):
        chunks.append(fields)
        for value in record:
            chunks.append(null if value is None else pack(len(value)) + value)
    chunks.append(struct.pack(">h", -1))
    return b"".join(chunks)


def vector_bytes(vectors: Matrix) -> list[bytes]:
    """(n, d) in pgvector's binary form, one by one."""
    count, dim = vectors.shape
    raw = np.zeros((count, 4 + 4 * dim), dtype=np.uint8)
    raw[:, :4] = np.frombuffer(struct.pack(">hh", dim, 0), dtype=np.uint8)
    raw[:, 4:] = np.ascontiguousarray(vectors, dtype=">f4").view(np.uint8).reshape(count, 4 * dim)
    data, width = raw.tobytes(), 4 + 4 * dim
    return [data[start : start + width] for start in range(0, len(data), width)]


def _real_bytes(values: NDArray[np.float32] | None, count: int) -> Sequence[bytes | None]:
    if values is None:
        return [None] * count
    data = np.ascontiguousarray(values, dtype=">f4").tobytes()
    return [data[start : start + 4] for start in range(0, len(data), 4)]
