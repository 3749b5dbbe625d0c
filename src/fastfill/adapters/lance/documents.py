"""The documents of a migration in a LanceDB table beside the owner's.

`merge_insert` does not see two inserts of one key as a conflict, but it does see two updates of one
row, so a document that does not exist yet is created together with a touch of a lock row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fastfill.adapters.lance.connection import CLIENT_ERRORS
from fastfill.adapters.lance.context import ALL, DOCUMENTS, LanceContext
from fastfill.adapters.lance.sql import equals, one_of
from fastfill.errors import StoreError
from fastfill.gallery import Document
from fastfill.gallery.base import DocumentNames

LOCK = ".lock"


class LanceDocuments:
    """Named blobs, replaced by compare-and-set."""

    def __init__(self, context: LanceContext) -> None:
        self._context, self._connection = context, context.connection
        self._names = DocumentNames(f"{context.table_name}.{context.column}/")
        self._table: Any = None

    def exist(self) -> bool:
        """Is there a table of ours?"""
        return self._open() is not None

    def foreign(self) -> bool:
        """Is there a table of this name that is not ours?"""
        return not self.exist() and self._existing() is not None

    def load(self, name: str) -> Document | None:
        """The document, or None."""
        table = self._open()
        if table is None:
            return None
        with self._connection.errors():
            rows = table.search().where(equals("name", self._names.full(name))).limit(1).to_arrow()
        if not len(rows):
            return None
        return Document(rows["value"][0].as_py(), rows["version"][0].as_py())

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version`."""
        table = self._open() or self._create()
        source = _document(self._names.full(name), value, version)

        def merge() -> bool:
            builder = table.merge_insert("name").use_index(False)
            if version == 0:  # the touch of the lock row makes two creators conflict
                builder = builder.when_matched_update_all(where=f"target.name = '{LOCK}'")
                both = pa.concat_tables([_document(LOCK, b"", 0), source])
                result = builder.when_not_matched_insert_all().execute(both)
                return bool(result.num_inserted_rows == 1)
            builder = builder.when_matched_update_all(where="target.version = source.before")
            return bool(builder.execute(source).num_updated_rows == 1)

        return self._connection.commit(merge)

    def now(self) -> float:
        """By the clock of this machine."""
        return time.time()

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`."""
        table = self._open()
        if table is None:
            return []
        with self._connection.errors():
            rows = table.search().select(["name"]).limit(ALL).to_arrow()
        return self._names.own(rows["name"].to_pylist(), prefix)

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents."""
        table = self._open()
        if table is not None and names:
            among = one_of("name", map(self._names.full, names))
            self._connection.commit(lambda: table.delete(among))

    def _open(self) -> Any:
        """The table, or None where there is none of ours."""
        if self._table is None:
            table = self._existing()
            ours = set(_document("", b"", 0).column_names)
            if table is not None and ours <= set(table.schema.names):
                self._table = table
        return self._table

    def _existing(self) -> Any:
        """The table of our name, whosever it is.

        A process that is killed while it makes one leaves a folder that is listed and holds no
        table: that is none, and can be made again.
        """
        if DOCUMENTS not in self._connection.table_names():
            return None
        try:
            return self._connection.db.open_table(DOCUMENTS)
        except ValueError as error:
            if "was not found" in str(error):
                return None
            raise

    def _create(self) -> Any:
        """Make the table; another process may be faster."""
        try:
            self._connection.db.create_table(DOCUMENTS, _document(LOCK, b"", 0))
        except CLIENT_ERRORS:
            if self._open() is None:
                raise StoreError(
                    f"{self._context.name}: the table '{DOCUMENTS}' of this folder is not "
                    "FastFill's. Rename it: FastFill keeps its documents in one of that name."
                ) from None
        return self._open()


def _document(name: str, value: bytes, version: int) -> Any:
    """The row that takes a document from `version` to the next."""
    return pa.table(
        {
            "name": [name],
            "version": [version + 1],
            "before": [version],
            "value": pa.array([value], pa.large_binary()),
        }
    )
