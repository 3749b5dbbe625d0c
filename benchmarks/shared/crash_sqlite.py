"""SQLite for the crash harness: a file that the application and the workers write to at once."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.crash_model import OLD
from benchmarks.shared.crash_worlds import Item
from fastfill.adapters.sqlite.connection import open_file
from fastfill.gallery import Id

PLAIN = "CREATE TABLE items (id TEXT PRIMARY KEY, text TEXT, album INTEGER, vector BLOB)"
TABLES = (  # the added columns are in the owner's table, or in one of their own
    PLAIN,
    PLAIN,
    f"{PLAIN} STRICT",
    "CREATE VIRTUAL TABLE items USING vec0(id TEXT PRIMARY KEY, +text TEXT, album INTEGER, "
    f"vector float[{OLD}])",
)
JOURNALS = ("DELETE", "WAL")
PATIENCE = 30.0  # seconds for which the application waits for a lock


class SqliteWorld:
    """A file in a folder of its own, with one table; which kind is up to chance."""

    def __init__(self, items: dict[str, Item], rng: random.Random) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="crash-")
        path = Path(self._folder.name) / "items.db"
        path.touch()
        self.url = f"sqlite://{path}#items.vector"
        self._connection: Any = open_file(str(path), timeout=PATIENCE)
        self._connection.execute(f"PRAGMA journal_mode = {rng.choice(JOURNALS)}")
        self._connection.execute(rng.choice(TABLES))
        for key, value in items.items():
            self.insert(key, value)

    def insert(self, key: str, value: Item) -> None:
        """Insert, as an application that does not know of the migration."""
        query = "INSERT INTO items (id, text, album, vector) VALUES (?, ?, ?, ?)"
        self._connection.execute(query, [key, value.text, value.album, _blob(value)])

    def update(self, key: str, value: Item) -> None:
        """Change the owner's columns of one row."""
        query = "UPDATE items SET text = ?, album = ?, vector = ? WHERE id = ?"
        self._connection.execute(query, [value.text, value.album, _blob(value), key])

    def delete(self, key: str) -> None:
        """Delete one row."""
        self._connection.execute("DELETE FROM items WHERE id = ?", [key])

    def everything(self) -> dict[Id, Item]:
        """The owner's columns of all rows, in a file that SQLite finds whole."""
        ((found,),) = self._connection.execute("PRAGMA quick_check")
        if found != "ok":
            raise AssertionError(f"the file is damaged: {found}")
        rows = self._connection.execute("SELECT id, text, album, vector FROM items")
        return {
            key: Item(text, tuple(np.frombuffer(vector, np.float32).tolist()), album)
            for key, text, album, vector in rows
        }

    def kill_server(self) -> None:
        """There is none."""

    def close(self) -> None:
        """Remove the folder."""
        self._connection.close()
        self._folder.cleanup()


def _blob(value: Item) -> bytes:
    return np.array(value.vector, dtype=np.float32).tobytes()
