"""The documents of a migration in a small collection beside the owner's.

Each version of a document is a record of its own, whose id ends in the number of the version.
Chroma's `add` leaves an id that exists as it is, so of several who write the same version the
first one has written it, and the others see its mark there. A version names the writers of those
before it: whoever looks late, when there are newer versions, still learns whether its own counted.
A document that was removed leaves a version that says so, and numbers go on from there.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastfill.adapters.chroma.collection import ChromaCollection, ChromaRecord, equals
from fastfill.adapters.chroma.context import ChromaContext
from fastfill.errors import StoreError
from fastfill.gallery import Document, Id
from fastfill.gallery.base import DocumentNames

OURS = "fastfill_documents"  # in the metadata of the collection
PART = 4 << 20  # bytes of a value in one request, of which a server takes 40 MB
WRITERS = 64  # marks kept: a writer that looks later than this many others is told to try again
NOBODY = "nobody"  # an id that no record has
_PLACE = [0.0]  # every record of Chroma has a vector


@dataclass(frozen=True)
class DocumentVersion:
    """One version of a document, as it is stored."""

    number: int
    value: str
    parts: tuple[str, ...]
    writers: tuple[str, ...]
    gone: bool

    @classmethod
    def of(cls, metadata: Any) -> DocumentVersion:
        """From the metadata of its record."""
        return cls(
            number=int(metadata["version"]),
            value=metadata["value"],
            parts=tuple(json.loads(metadata["parts"])),
            writers=tuple(json.loads(metadata["writers"])),
            gone=bool(metadata["gone"]),
        )


class ChromaDocuments:
    """Named blobs, replaced by compare-and-set."""

    def __init__(self, context: ChromaContext) -> None:
        self._context = context
        self.name = f"{context.collection}__fastfill"
        self._names = DocumentNames(f"{context.column}/")
        self._seen: ChromaCollection | None = None  # it is never deleted
        self._settled = False

    def exist(self) -> bool:
        """Is there a collection of ours?"""
        if self._seen is None:
            there = self._context.find(self.name)
            self._seen = there if there is not None and there.metadata.get(OURS) else None
        return self._seen is not None

    def _exist_settled(self) -> bool:
        """The same before a write: what others have sent is there for whoever reads now.

        A request whose sender was killed may have reached Chroma's log alone: then no reader sees
        it before the next write. An update of nothing is such a write.
        """
        if not self.exist():
            return False
        if not self._settled:
            self._collection.update({NOBODY: ChromaRecord({"name": ""})})
            self._settled = True
        return True

    def foreign(self) -> bool:
        """Is there a collection of this name that is not ours?"""
        return not self.exist() and self._context.find(self.name) is not None

    @property
    def _collection(self) -> ChromaCollection:
        if not self.exist():
            if self.foreign():
                raise StoreError(
                    f"{self._context.name}: the collection '{self.name}' is not FastFill's. Rename "
                    "it: FastFill keeps its documents in one of that name."
                )
            made = self._context.connection.create(self.name, {OURS: True}, {"space": "l2"})
            self._seen = ChromaCollection(self._context.connection, made)
        if self._seen is None:
            raise StoreError(f"{self._context.name}: the collection '{self.name}' is gone.")
        return self._seen

    # --- reading -------------------------------------------------------------------------------

    def load(self, name: str) -> Document | None:
        """The document, or None."""
        latest = self._latest(name) if self.exist() else None
        if latest is None or latest.gone:
            return None
        texts = [latest.value]
        if latest.parts:
            records = self._collection.records(latest.parts)
            if len(records) < len(latest.parts):  # replaced while we were reading
                return self.load(name)
            texts = [records[part].metadata["value"] for part in latest.parts]
        return Document(b"".join(map(base64.b64decode, texts)), latest.number)

    def now(self) -> float:
        """By the clock of this machine."""
        return time.time()

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`."""
        if not self.exist():
            return []
        latest: dict[str, int] = {}
        for key in self._collection.ids():
            name, at, number = str(key).rpartition("@")
            if at:  # parts of large values have none
                latest[name] = max(latest.get(name, 0), int(number))
        gone = set(self._collection.ids({"gone": {"$eq": True}}))
        there = [name for name, number in latest.items() if f"{name}@{number}" not in gone]
        return self._names.own(there, prefix)

    def _versions(self, name: str) -> list[DocumentVersion]:
        """All that there are, the latest last."""
        keys = self._collection.ids(equals({"name": self._names.full(name)}))
        records = self._collection.records(keys).values()
        return sorted((DocumentVersion.of(r.metadata) for r in records), key=lambda v: v.number)

    def _latest(self, name: str) -> DocumentVersion | None:
        versions = self._versions(name)
        return versions[-1] if versions else None

    # --- writing -------------------------------------------------------------------------------

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version`."""
        latest = self._latest(name) if self._exist_settled() else None
        if (0 if latest is None or latest.gone else latest.number) != version:
            return False
        return self._add(name, value, latest)

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents."""
        for name in names if self._exist_settled() else ():
            latest = self._latest(name)
            while latest is not None and not latest.gone:
                self._add(name, None, latest)
                latest = self._latest(name)

    def _add(self, name: str, value: bytes | None, before: DocumentVersion | None) -> bool:
        """Add the version after `before`; None says that the document is gone. Was it added?"""
        writer, collection = uuid.uuid4().hex[:12], self._collection
        number = 1 if before is None else before.number + 1
        parts = self._add_parts(value) if value is not None and len(value) > PART else []
        others = before.writers[: WRITERS - 1] if before else ()
        metadata = {
            "name": self._names.full(name),
            "version": number,
            "value": "" if parts else base64.b64encode(value or b"").decode(),
            "parts": json.dumps(parts),
            "writers": json.dumps([writer, *others]),
            "gone": value is None,
        }
        collection.add({self._key(name, number): _record(metadata)})
        versions = self._versions(name)
        written = bool(versions) and writer in versions[-1].writers
        self._forget(name, versions[:-1], parts if not written else [])
        return written

    def _add_parts(self, value: bytes) -> list[Id]:
        """A large value goes first, under ids that nobody knows until a version names them."""
        starts = range(0, len(value), PART)
        keys: list[Id] = [uuid.uuid4().hex for _ in starts]
        for key, start in zip(keys, starts, strict=True):
            text = base64.b64encode(value[start : start + PART]).decode()
            self._collection.add({key: _record({"value": text})})
        return keys

    def _forget(self, name: str, past: Sequence[DocumentVersion], parts: Sequence[Id]) -> None:
        """Delete past versions, and parts that no version names."""
        keys: list[Id] = [self._key(name, version.number) for version in past]
        keys += [*parts, *(part for version in past for part in version.parts)]
        self._collection.forget(keys)

    def _key(self, name: str, number: int) -> Id:
        return f"{self._names.full(name)}@{number}"


def _record(metadata: dict[str, Any]) -> ChromaRecord:
    return ChromaRecord(metadata, vector=_PLACE)  # type: ignore[arg-type]
