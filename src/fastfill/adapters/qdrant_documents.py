"""The documents of a migration in a small collection beside the owner's.

A document is one point: its name, its version, its value, and the marks of its latest writers. It
is created by an upsert whose condition no point fulfils, so that only a point that is not there is
written, and replaced by a change of the points that have its id and the version that was read:
each is one operation, which Qdrant applies whole and in turn. Qdrant does not say whether it
changed anything, so the writer looks whether its own mark is there.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from typing import Any

from qdrant_client import models

from fastfill.adapters.qdrant_connection import Connection
from fastfill.adapters.qdrant_owner import Collection
from fastfill.adapters.qdrant_values import all_of, equals
from fastfill.gallery import Document

PART = 4 << 20  # bytes of a value in one request, of which a server takes 32 MiB
WRITERS = 128  # marks kept: a writer that looks later than this many others is told to try again
_SPACE = uuid.UUID("5d0f9a52-66a5-4d1c-9b53-3f1c3ad0e7c4")
ORDERED: dict[str, Any] = {"wait": True, "ordering": models.WriteOrdering.STRONG}
AGREED: dict[str, Any] = {"consistency": models.ReadConsistencyType.QUORUM}


class QdrantDocuments:
    """Named blobs, replaced by compare-and-set."""

    column: str
    _connection: Connection
    _collection: str
    _documents_seen = False

    @property
    def _documents(self) -> str:
        return f"{self._collection}__fastfill"

    def _documents_exist(self) -> bool:
        if not self._documents_seen:  # they are never deleted
            asked = self._connection.ask("collection_exists", collection_name=self._documents)
            self._documents_seen = bool(asked)
        return self._documents_seen

    def load(self, name: str) -> Document | None:
        """The document, or None."""
        found = self._head(name) if self._documents_exist() else None
        if found is None:
            return None
        value = base64.b64decode(found["value"])
        if found["parts"]:
            records = self._connection.ask(
                "retrieve", collection_name=self._documents, ids=found["parts"], **AGREED
            )
            by_id = {record.id: record.payload["value"] for record in records}
            if len(by_id) < len(found["parts"]):  # replaced while we were reading
                return self.load(name)
            value = b"".join(base64.b64decode(by_id[part]) for part in found["parts"])
        return Document(value, int(found["version"]))

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version`."""
        if not self._documents_exist():
            Collection(self._connection, self._documents).create(vectors_config={})
        before = self._head(name)
        if (0 if before is None else before["version"]) != version:
            return False
        writer = uuid.uuid4().hex[:12]
        earlier = [] if before is None else before["writers"][: WRITERS - 1]
        parts = self._save_parts(name, value) if len(value) > PART else []
        head = {
            "name": self._full(name),
            "version": version + 1,
            "value": "" if parts else base64.b64encode(value).decode(),
            "parts": parts,
            "writers": [writer, *earlier],
        }
        self._replace(name, head, version)
        after = self._head(name)
        written = after is not None and writer in after["writers"]
        self._forget(before["parts"] if written and before is not None else parts * (not written))
        return written

    def _replace(self, name: str, head: dict[str, Any], version: int) -> None:
        key = self._key(name)
        if version == 0:
            self._connection.ask(
                "upsert",
                collection_name=self._documents,
                points=[models.PointStruct(id=key, vector={}, payload=head)],
                update_filter=all_of(equals("version", -1)),  # no point that exists
                **ORDERED,
            )
            return
        self._connection.ask(
            "set_payload",
            collection_name=self._documents,
            payload=head,
            points=all_of(equals("id", key), equals("version", version)),
            **ORDERED,
        )

    def _save_parts(self, name: str, value: bytes) -> list[str]:
        """A large value goes first, under ids that nobody knows until the head names them."""
        parts = []
        for start in range(0, len(value), PART):
            parts.append(str(uuid.uuid4()))
            text = base64.b64encode(value[start : start + PART]).decode()
            point = models.PointStruct(id=parts[-1], vector={}, payload={"value": text})
            self._connection.ask(
                "upsert", collection_name=self._documents, points=[point], **ORDERED
            )
        return parts

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`."""
        found: list[str] = []
        offset = None
        full = self._full("")
        while self._documents_exist():
            records, offset = self._connection.ask(
                "scroll",
                collection_name=self._documents,
                limit=1_000,
                offset=offset,
                with_payload=["name"],
            )
            found += [record.payload.get("name", "") for record in records]
            if offset is None:
                break
        mine = [name[len(full) :] for name in found if name.startswith(full)]
        return sorted(name for name in mine if name.startswith(prefix))

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents."""
        if self._documents_exist():
            heads = [self._head(name) for name in names]
            parts = [part for head in heads if head is not None for part in head["parts"]]
            self._forget([*map(self._key, names), *parts])

    def _forget(self, ids: Sequence[str]) -> None:
        if ids:
            self._connection.ask(
                "delete", collection_name=self._documents, points_selector=list(ids), **ORDERED
            )

    def _head(self, name: str) -> dict[str, Any] | None:
        found = self._connection.ask(
            "retrieve", collection_name=self._documents, ids=[self._key(name)], **AGREED
        )
        return dict(found[0].payload) if found else None

    def _key(self, name: str) -> str:
        return str(uuid.uuid5(_SPACE, self._full(name)))

    def _full(self, name: str) -> str:
        return f"{self.column}/{name}"
