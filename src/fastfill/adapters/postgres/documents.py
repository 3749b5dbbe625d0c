"""The documents of a migration in a small table beside the owner's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.sql import SQL, Composed, Identifier

from fastfill.adapters.postgres.connection import Cursor
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.errors import StoreError
from fastfill.gallery import Document
from fastfill.gallery.base import DocumentNames

DOCUMENTS = "fastfill_documents"
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
COLUMNS = {"name", "version", "value"}


class PostgresDocuments:
    """Named blobs, replaced by compare-and-set."""

    def __init__(self, context: PostgresContext) -> None:
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
        query = self._sql("SELECT value, version FROM {} WHERE name = %s")
        rows = self._context.work.rows_of(query, [self._names.full(name)])
        return Document(bytes(rows[0][0]), int(rows[0][1])) if rows else None

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version`."""
        if not self.exist():
            self._create()
        if version == 0:
            query = "INSERT INTO {} VALUES (%s, 1, %s) ON CONFLICT DO NOTHING"
            values: list[Any] = [self._names.full(name), value]
        else:
            query = "UPDATE {} SET value = %s, version = version + 1 "
            query += "WHERE name = %s AND version = %s"
            values = [value, self._names.full(name), version]
        return self._write(self._sql(query), values) == 1

    def now(self) -> float:
        """By the server's clock."""
        return float(self._context.work.rows_of(NOW)[0][0])

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`."""
        if not self.exist():
            return []
        query = self._sql("SELECT name FROM {} WHERE starts_with(name, %s)")
        rows = self._context.work.rows_of(query, [self._names.full(prefix)])
        return self._names.own([str(name) for (name,) in rows], prefix)

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents."""
        if self.exist():
            query = self._sql("DELETE FROM {} WHERE name = ANY(%s)")
            self._write(query, [[self._names.full(name) for name in names]])

    def put(self, cursor: Cursor, name: str, value: bytes) -> None:
        """Write a document that no other process writes, as part of a transaction."""
        query = "INSERT INTO {} AS d VALUES (%s, 1, %s) ON CONFLICT (name) "
        query += "DO UPDATE SET value = excluded.value, version = d.version + 1"
        cursor.execute(self._sql(query), [self._names.full(name), value])

    def values(self, cursor: Cursor, prefix: str) -> list[bytes]:
        """The documents whose names begin with `prefix`, as part of a transaction."""
        query = self._sql("SELECT value FROM {} WHERE starts_with(name, %s)")
        return [bytes(v) for (v,) in cursor.execute(query, [self._names.full(prefix)]).fetchall()]

    def _write(self, query: Composed, values: list[Any]) -> int:
        return self._context.work.write(lambda cursor: cursor.execute(query, values).rowcount)

    def _create(self) -> None:
        if self.foreign():
            raise StoreError(
                f"{self._context.name}: the table '{DOCUMENTS}' of this schema is not FastFill's. "
                "Rename it: FastFill keeps its documents in one of that name."
            )
        create = "CREATE TABLE IF NOT EXISTS {} (name text PRIMARY KEY, version bigint NOT NULL"
        create += ", value bytea NOT NULL)"
        self._context.work.change_schema(lambda: [self._sql(create)])

    def _sql(self, query: Any) -> Composed:
        return SQL(query).format(Identifier(self._context.schema, DOCUMENTS))
