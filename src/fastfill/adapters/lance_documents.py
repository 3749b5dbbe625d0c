"""The documents of a migration in a LanceDB table beside the owner's.

`merge_insert` does not see two inserts of one key as a conflict, but it does see two updates of one
row, so a document that does not exist yet is created together with a touch of a lock row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from fastfill.adapters.lance_arrow import literal, one_of
from fastfill.gallery import Document

T = TypeVar("T")
DOCUMENTS = "fastfill"
LOCK = ".lock"
ALL = 2**31 - 1  # LanceDB wants a limit; this is none


class LanceDocuments:
    """Named blobs, replaced by compare-and-set; the adapter retries commits that conflict."""

    column: str
    _db: Any
    _table: Any
    _documents: Any = None

    def _retry(self, commit: Callable[[], T]) -> T:
        raise AssertionError("the adapter retries")

    def _documents_exist(self) -> bool:
        return DOCUMENTS in table_names(self._db)

    def _open_documents(self, create: bool) -> Any:
        if self._documents is None and (create or self._documents_exist()):
            try:
                self._documents = self._db.create_table(DOCUMENTS, _document(LOCK, b"", 0))
            except ValueError:  # it exists, or another process was faster
                self._documents = self._db.open_table(DOCUMENTS)
        return self._documents

    def load(self, name: str) -> Document | None:
        """The document, or None."""
        table = self._open_documents(create=False)
        if table is None:
            return None
        found = table.search().where(f"name = {literal(self._full(name))}").limit(1).to_arrow()
        if not len(found):
            return None
        return Document(found["value"][0].as_py(), found["version"][0].as_py())

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version`."""
        table = self._open_documents(create=True)
        source = _document(self._full(name), value, version)

        def merge() -> bool:
            builder = table.merge_insert("name").use_index(False)
            if version == 0:  # the touch of the lock row makes two creators conflict
                builder = builder.when_matched_update_all(where=f"target.name = '{LOCK}'")
                both = pa.concat_tables([_document(LOCK, b"", 0), source])
                result = builder.when_not_matched_insert_all().execute(both)
                return bool(result.num_inserted_rows == 1)
            builder = builder.when_matched_update_all(where="target.version = source.before")
            return bool(builder.execute(source).num_updated_rows == 1)

        return self._retry(merge)

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`."""
        table = self._open_documents(create=False)
        if table is None:
            return []
        full = self._full("")
        names = table.search().select(["name"]).limit(ALL).to_arrow()["name"].to_pylist()
        mine = [name[len(full) :] for name in names if name.startswith(full)]
        return sorted(name for name in mine if name.startswith(prefix))

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents."""
        table = self._open_documents(create=False)
        if table is not None and names:
            among = one_of("name", map(self._full, names))
            self._retry(lambda: table.delete(among))

    def _full(self, name: str) -> str:
        return f"{self._table.name}.{self.column}/{name}"


def table_names(db: Any) -> list[str]:
    """Every table of a LanceDB folder."""
    names: list[str] = []
    token = None
    while True:
        page = db.list_tables(page_token=token)
        names += page.tables
        token = page.page_token
        if not token:
            return names


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
