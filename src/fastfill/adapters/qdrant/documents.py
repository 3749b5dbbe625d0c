"""The documents of a migration in a small collection beside the owner's.

A document is one point: its name, its version, its value, and the marks of its latest writers. It
is created by an upsert whose condition no point fulfils, so that only a point that is not there is
written, and replaced by a change of the points that have its id and the version that was read:
each is one operation, which Qdrant applies whole and in turn. Qdrant does not say whether it
changed anything, so the writer looks whether its own mark is there.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Sequence
from typing import Any

from qdrant_client import models

from fastfill.adapters.qdrant.collection import QdrantCollection
from fastfill.adapters.qdrant.connection import AGREED, ORDERED
from fastfill.adapters.qdrant.context import QdrantContext
from fastfill.adapters.qdrant.points import all_of, equals, is_empty
from fastfill.errors import StoreError
from fastfill.gallery import Document
from fastfill.gallery.base import DocumentNames

PART = 4 << 20  # bytes of a value in one request, of which a server takes 32 MiB
WRITERS = 128  # marks kept: a writer that looks later than this many others is told to try again
_SPACE = uuid.UUID("5d0f9a52-66a5-4d1c-9b53-3f1c3ad0e7c4")


class QdrantDocuments:
    """Named blobs, replaced by compare-and-set."""

    def __init__(self, context: QdrantContext) -> None:
        self._context = context
        self.name = f"{context.collection}__fastfill"
        self._collection = QdrantCollection(context.connection, self.name)
        self._names = DocumentNames(f"{context.column}/")
        self._seen = False

    def exist(self) -> bool:
        """Is there a collection of ours?"""
        if not self._seen:  # it is never deleted
            self._seen = self._collection.exists() and self._is_ours()
        return self._seen

    def foreign(self) -> bool:
        """Is there a collection of this name that is not ours?"""
        return not self.exist() and self._collection.exists()

    def _is_ours(self) -> bool:
        """Ours has no vectors, and a value in every point."""
        others = all_of(is_empty("value"))
        return not self._collection.vectors() and not self._collection.any(others)

    def load(self, name: str) -> Document | None:
        """The document, or None."""
        head = self._head(name) if self.exist() else None
        if head is None:
            return None
        value, parts = base64.b64decode(head["value"]), head["parts"]
        if parts:
            records = self._collection.ask("retrieve", ids=parts, **AGREED)
            by_id = {record.id: record.payload["value"] for record in records}
            if len(by_id) < len(parts):  # replaced while we were reading
                return self.load(name)
            value = b"".join(base64.b64decode(by_id[part]) for part in parts)
        return Document(value, int(head["version"]))

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version`."""
        if not self.exist():
            self._create()
        before = self._head(name)
        if (0 if before is None else before["version"]) != version:
            return False
        writer = uuid.uuid4().hex[:12]
        others = [] if before is None else before["writers"][: WRITERS - 1]
        parts = self._save_parts(value) if len(value) > PART else []
        head = {
            "name": self._names.full(name),
            "version": version + 1,
            "value": "" if parts else base64.b64encode(value).decode(),
            "parts": parts,
            "writers": [writer, *others],
        }
        self._replace(name, head, version)
        after = self._head(name)
        written = after is not None and writer in after["writers"]
        self._forget(before["parts"] if written and before is not None else parts * (not written))
        return written

    def _create(self) -> None:
        if self.foreign():
            raise StoreError(
                f"{self._context.name}: the collection '{self.name}' is not FastFill's. Rename it: "
                "FastFill keeps its documents in one of that name."
            )
        self._collection.create(vectors_config={})

    def _replace(self, name: str, head: dict[str, Any], version: int) -> None:
        key = self._key(name)
        if version == 0:
            self._collection.ask(
                "upsert",
                points=[models.PointStruct(id=key, vector={}, payload=head)],
                update_filter=all_of(equals("version", -1)),  # no point that exists
                **ORDERED,
            )
            return
        self._collection.ask(
            "set_payload",
            payload=head,
            points=all_of(equals("id", key), equals("version", version)),
            **ORDERED,
        )

    def _save_parts(self, value: bytes) -> list[str]:
        """A large value goes first, under ids that nobody knows until the head names them."""
        parts = []
        for start in range(0, len(value), PART):
            parts.append(str(uuid.uuid4()))
            text = base64.b64encode(value[start : start + PART]).decode()
            point = models.PointStruct(id=parts[-1], vector={}, payload={"value": text})
            self._collection.ask("upsert", points=[point], **ORDERED)
        return parts

    def now(self) -> float:
        """By the clock of this machine."""
        return time.time()

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`."""
        if not self.exist():
            return []
        pages = self._collection.pages(payload=["name"])
        names = [record.payload.get("name", "") for page in pages for record in page]
        return self._names.own(names, prefix)

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents."""
        if self.exist():
            heads = [self._head(name) for name in names]
            parts = [part for head in heads if head is not None for part in head["parts"]]
            self._forget([*map(self._key, names), *parts])

    def _forget(self, ids: Sequence[str]) -> None:
        if ids:
            self._collection.ask("delete", points_selector=list(ids), **ORDERED)

    def _head(self, name: str) -> dict[str, Any] | None:
        records = self._collection.ask("retrieve", ids=[self._key(name)], **AGREED)
        return dict(records[0].payload) if records else None

    def _key(self, name: str) -> str:
        return str(uuid.uuid5(_SPACE, self._names.full(name)))
