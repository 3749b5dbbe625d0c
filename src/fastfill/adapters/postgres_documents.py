"""The documents of a migration in a small table beside the owner's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.sql import SQL, Identifier

from fastfill.adapters.postgres_connection import PostgresConnection
from fastfill.gallery import Document

DOCUMENTS = "fastfill_documents"


class PostgresDocuments(PostgresConnection):
    """Named blobs, replaced by compare-and-set."""

    column: str
    _schema: str
    _table: str

    def _documents(self) -> Identifier:
        return Identifier(self._schema, DOCUMENTS)

    def _full(self, name: str) -> str:
        return f"{self._table}.{self.column}/{name}"

    def _documents_exist(self) -> bool:
        name = f'"{self._schema}"."{DOCUMENTS}"'
        return bool(self._rows_of("SELECT 1 WHERE to_regclass(%s) IS NOT NULL", [name]))

    def load(self, name: str) -> Document | None:
        """The document, or None."""
        if not self._documents_exist():
            return None
        query = SQL("SELECT value, version FROM {} WHERE name = %s").format(self._documents())
        found = self._rows_of(query, [self._full(name)])
        return Document(bytes(found[0][0]), int(found[0][1])) if found else None

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version`."""
        if not self._documents_exist():
            create = "CREATE TABLE IF NOT EXISTS {} (name text PRIMARY KEY, version bigint NOT NULL"
            create += ", value bytea NOT NULL)"
            self._change_schema([SQL(create).format(self._documents())])
        if version == 0:
            query = "INSERT INTO {} VALUES (%s, 1, %s) ON CONFLICT DO NOTHING RETURNING 1"
            values: list[Any] = [self._full(name), value]
        else:
            query = "UPDATE {} SET value = %s, version = version + 1 "
            query += "WHERE name = %s AND version = %s RETURNING 1"
            values = [value, self._full(name), version]
        return bool(self._rows_of(SQL(query).format(self._documents()), values))

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`."""
        if not self._documents_exist():
            return []
        query = SQL("SELECT name FROM {} WHERE starts_with(name, %s)").format(self._documents())
        found = self._rows_of(query, [self._full(prefix)])
        return sorted(str(name)[len(self._full("")) :] for (name,) in found)

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents."""
        if self._documents_exist():
            query = SQL("DELETE FROM {} WHERE name = ANY(%s)").format(self._documents())
            self._rows_of(query, [[self._full(name) for name in names]])
