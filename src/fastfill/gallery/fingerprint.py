"""The fingerprint of an item's content: its old vector and its input."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from fastfill.features import Array


def fingerprint(old: bytes | None, content: object) -> str:
    """32 hexadecimal digits that change when the old vector or the input changes.

    >>> fingerprint(b"1234", "a text") == fingerprint(b"1234", "another text")
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(b"-" if old is None else b"+" + old)
    if content is None:
        digest.update(b"-")
    else:
        digest.update(b"+" + (content if isinstance(content, bytes) else str(content).encode()))
    return digest.hexdigest()


def fingerprints(old: Array, present: Array, inputs: Iterable[object]) -> Iterator[str]:
    """One fingerprint per row of `old` (n, d); rows that are not present have no vector."""
    width = old.shape[1] * old.itemsize
    data = old.tobytes()
    for row, (there, content) in enumerate(zip(present, inputs, strict=True)):
        vector = data[row * width : (row + 1) * width] if there else None
        yield fingerprint(vector, content)
