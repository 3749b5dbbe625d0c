"""The alignments that a migration keeps in its store, by the tags that rows carry."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Alignment
from fastfill.errors import MigrationError
from fastfill.features import Pairs
from fastfill.gallery import Store

BYTES, LEARNED_FROM = "alignment/", "learned-from/"  # names of the two documents of each

Hashes = NDArray[np.uint64]


class Alignments:
    """Saved and read by tag; the one that was read last is kept in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._latest: tuple[str, Alignment] | None = None

    def load(self, tag: str) -> Alignment:
        """An alignment by the tag that rows carry."""
        if self._latest is None or self._latest[0] != tag:
            document = self._store.load(f"{BYTES}{tag}")
            if document is None:
                raise MigrationError(
                    f"{self._store.name}: the alignment {tag} is missing from the store."
                )
            self._latest = (tag, Alignment.from_bytes(document.value, self._store.name))
        return self._latest[1]

    def save(self, alignment: Alignment, pairs: Pairs | None) -> str:
        """Save the bytes, and of which pairs it was learned, before any state names its tag."""
        tag = alignment_tag(alignment)
        hashes = b"" if pairs is None else np.sort(id_hashes(pairs.old.ids)).tobytes()
        for name, value in zip(_documents(tag), (alignment.to_bytes(), hashes), strict=True):
            if self._store.load(name) is None:
                self._store.save(name, value, 0)
        return tag

    def learned_from(self, tag: str | None) -> Hashes:
        """Hashes of the ids of the pairs that it was learned from; none if it came from a file."""
        document = None if tag is None else self._store.load(f"{LEARNED_FROM}{tag}")
        return np.frombuffer(b"" if document is None else document.value, dtype=np.uint64)

    def remove(self, tags: Iterable[str]) -> None:
        """Forget these."""
        self._store.remove([name for tag in tags for name in _documents(tag)])

    def remove_all(self, keep: str | None = None) -> None:
        """Forget all but one."""
        kept = () if keep is None else _documents(keep)
        names = [*self._store.names(BYTES), *self._store.names(LEARNED_FROM)]
        self._store.remove([name for name in names if name not in kept])


def _documents(tag: str) -> tuple[str, str]:
    return f"{BYTES}{tag}", f"{LEARNED_FROM}{tag}"


def alignment_tag(alignment: Alignment) -> str:
    """The short mark of an alignment on the rows that it has aligned."""
    return alignment.fingerprint[:12]


def id_hashes(ids: Iterable[object]) -> Hashes:
    """64 bits of each id: enough to tell which pairs a map has seen.

    >>> id_hashes(["a", "b"]) == id_hashes(["a", "c"])
    array([ True, False])
    """
    digests = [hashlib.blake2b(str(key).encode(), digest_size=8).digest() for key in ids]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)
