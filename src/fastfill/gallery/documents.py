"""`JsonDocument`: a small value that a migration keeps in its store, with a version.

Each document is a frozen dataclass that knows its name, its version, and how to read what earlier
versions of FastFill have written. Documents are replaced by compare-and-set.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from fastfill.errors import StoreError
from fastfill.gallery.store import Documents


@dataclass(frozen=True)
class JsonDocument:
    """A document as a frozen dataclass; one without a version was written by FastFill 0.1.

    >>> from fastfill.gallery import MemoryStore
    >>> @dataclass(frozen=True)
    ... class Note(JsonDocument):
    ...     NAME: ClassVar[str] = "note"
    ...     text: str = ""
    >>> store = MemoryStore({"id": [1], "vector": [[1.0]]})
    >>> Note.change(store, lambda note: Note("a" if note is None else note.text + "b"))
    Note(text='a')
    >>> Note.load(store)
    Note(text='a')
    """

    NAME: ClassVar[str]
    VERSION: ClassVar[int] = 1

    @classmethod
    def load(cls, documents: Documents) -> Self | None:
        """The document in the store, or None."""
        document = documents.load(cls.NAME)
        return None if document is None else cls.from_bytes(document.value)

    @classmethod
    def change(cls, documents: Documents, change: Callable[[Self | None], Self]) -> Self:
        """Compare-and-set: read, change, write, again if someone else was faster."""
        while True:
            document = documents.load(cls.NAME)
            changed = change(None if document is None else cls.from_bytes(document.value))
            value = changed.to_bytes()
            if document is not None and value == document.value:
                return changed
            if documents.save(cls.NAME, value, 0 if document is None else document.version):
                return changed

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], version: int) -> Self:
        """From plain values, as this or an earlier version wrote them."""
        return cls(**plain)

    def to_bytes(self) -> bytes:
        """As JSON, the version first."""
        return json.dumps({"version": self.VERSION, **self.to_json()}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """From JSON; what a later FastFill has written is refused."""
        plain = dict(json.loads(data))
        version = int(plain.pop("version", 0))
        if version > cls.VERSION:
            raise StoreError(
                f"The migration's '{cls.NAME}' was written by a later FastFill (version {version} "
                f"of it, this one knows {cls.VERSION}). Go on with that FastFill."
            )
        return cls.from_json(plain, version)
