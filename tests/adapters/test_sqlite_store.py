"""SQLite with sqlite-vec passes the suite, wherever the added columns live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlite_vec", reason="sqlite-vec is not installed")
from sqlite_world import PLAIN, VEC0, fill, insert, owner_of

from fastfill.errors import StoreError
from fastfill.features import Distance
from fastfill.gallery import Store
from fastfill.testing import OLD_DIM, StoreSuite, snapshot
from fastfill.wiring import open_store


class TestSqliteStore(StoreSuite):
    """The suite on an ordinary table, which gets the added columns."""

    table = PLAIN

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> Iterator[None]:
        self.path = tmp_path / "photos of mine.db"
        self.opened: list[Store] = []
        yield
        for store in self.opened:
            store.close()

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """A store over a table made by its owner."""
        fill(self.path, values, self.table)
        return self.open("photos")

    def open(self, table: str) -> Store:
        """A store that is closed at the end of the test."""
        self.opened.append(open_store(f"sqlite://{self.path}#{table}.vector"))
        return self.opened[-1]


class TestSqliteStoreByNumbers(TestSqliteStore):
    """The suite on a table whose ids are numbers, in a file with a write-ahead log."""

    table = "CREATE TABLE photos (id INTEGER PRIMARY KEY, text, album, vector); "

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """The same, after a change of the journal."""
        with owner_of(self.path) as owner:
            owner.execute("PRAGMA journal_mode = WAL")
        return super().make(values, distance)

    def key(self, number: int) -> int:
        """A number."""
        return number + 1


class TestSqliteStrictTable(TestSqliteStore):
    """The suite on a STRICT table: the added columns are in a table of their own."""

    table = f"{PLAIN} STRICT"


class NoColumnToDrop(TestSqliteStore):
    """Where no column can be dropped, and every row has a vector."""

    __test__ = False
    vectors_optional = False

    def test_dropping_the_old_vectors_keeps_the_new(self) -> None:
        """It is refused, and nothing has changed."""
        store, _ = self.both()
        self.align_all(store)
        before = snapshot(store)
        for refused in (store.check_drop_old, store.drop_old):
            with pytest.raises(StoreError, match=r"Complete without --drop-old"):
                refused()
        assert snapshot(store) == before


class TestSqliteVirtualTable(NoColumnToDrop):
    """The suite on a `vec0` table."""

    __test__ = True
    table = VEC0.format(dim=OLD_DIM)


class TestSqliteView(NoColumnToDrop):
    """The suite on a view of an ordinary table and a `vec0` table, which its owner can write to."""

    __test__ = True

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """Two tables, joined by the number of the row."""
        with owner_of(self.path) as owner:
            for statement in TWO_TABLES:
                owner.execute(statement)
            insert(owner, values, "items")
        return self.open("items")


TWO_TABLES = (
    "CREATE TABLE photos (n INTEGER PRIMARY KEY, id TEXT UNIQUE, text TEXT, album INTEGER)",
    f"CREATE VIRTUAL TABLE vectors USING vec0(vector float[{OLD_DIM}])",
    "CREATE VIEW items AS SELECT p.id, p.text, p.album, v.vector FROM photos p "
    "JOIN vectors v ON v.rowid = p.n",
    "CREATE TRIGGER inserting INSTEAD OF INSERT ON items BEGIN "
    "INSERT INTO photos (id, text, album) VALUES (new.id, new.text, new.album); "
    "INSERT INTO vectors (rowid, vector) "
    "SELECT n, new.vector FROM photos WHERE id = new.id; END",
    "CREATE TRIGGER updating INSTEAD OF UPDATE ON items BEGIN "
    "UPDATE photos SET text = new.text, album = new.album WHERE id = new.id; "
    "UPDATE vectors SET vector = new.vector "
    "WHERE rowid = (SELECT n FROM photos WHERE id = new.id); END",
    "CREATE TRIGGER deleting INSTEAD OF DELETE ON items BEGIN "
    "DELETE FROM vectors WHERE rowid = (SELECT n FROM photos WHERE id = old.id); "
    "DELETE FROM photos WHERE id = old.id; END",
)
