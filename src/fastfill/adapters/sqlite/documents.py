"""The documents of a migration in a small table beside the owner's."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from fastfill.adapters.sqlite.context import SqliteContext
from fastfill.errors import StoreError
from fastfill.gallery import Document
from fastfill.gallery.base import DocumentNames

DOCUMENTS = "fastfill_documents"
COLUMNS = {"name", "version", "value"}
CREATE = (
    f"CREATE TABLE IF NOT EXISTS {DOCUMENTS} (name TEXT PRIMARY KEY NOT NULL, "
    "version INTEGER NOT NULL, value BLOB NOT NULL)"
)


class SqliteDocuments:
    """Named blobs, replaced by compare-and-set."""

    def __init__(self, context: SqliteContext) -> None:
        self._context = context
        self._seen = False

    @property
    def _names(self) -> DocumentNames:
        context = self._context
        return DocumentNames(f"{context.table}.{context.column}/", context.part)

    def exist(self) -> bool:
        """Is there a table of ours?"""
        if not self._seen:  # it is never dropped
            self._seen = set(self._context.columns_of(DOCUMENTS)) >= COLUMNS
        return self._seen

    def foreign(self) -> bool:
        """Is there a table of this name that is not ours?"""
        return not self.exist() and bool(self._context.columns_of(DOCUMENTS))

    def load(self, name: str) -> Document | None:
        """The document, or None."""
        if not self.exist():
            return None
        query = f"SELECT value, version FROM {DOCUMENTS} WHERE name = ?"
        rows = self._context.work.rows_of(query, [self._names.full(name)])
        return Document(bytes(rows[0][0]), int(rows[0][1])) if rows else None

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version`."""
        if not self.exist():
            self._create()
        if version == 0:
            query = f"INSERT INTO {DOCUMENTS} VALUES (?, 1, ?) ON CONFLICT DO NOTHING"
            values: list[Any] = [self._names.full(name), value]
        else:
            query = f"UPDATE {DOCUMENTS} SET value = ?, version = version + 1 "
            query += "WHERE name = ? AND version = ?"
            values = [value, self._names.full(name), version]
        return self._write(query, values) == 1

    def now(self) -> float:
        """By the clock of this machine, on which all programs are that open the file."""
        return time.time()

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`."""
        if not self.exist():
            return []
        rows = self._context.work.rows_of(f"SELECT name FROM {DOCUMENTS}")
        return self._names.own([str(name) for (name,) in rows], prefix)

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents."""
        if self.exist():
            query = f"DELETE FROM {DOCUMENTS} WHERE name IN (SELECT value FROM json_each(?))"
            self._write(query, [json.dumps([self._names.full(name) for name in names])])

    def _write(self, query: str, values: list[Any]) -> int:
        return self._context.work.write(lambda cursor: int(cursor.execute(query, values).rowcount))

    def _create(self) -> None:
        if self.foreign():
            raise StoreError(
                f"{self._context.name}: the table '{DOCUMENTS}' of this file is not FastFill's. "
                "Rename it: FastFill keeps its documents in one of that name."
            )
        self._context.work.write(lambda cursor: cursor.execute(CREATE))
