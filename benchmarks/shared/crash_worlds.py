"""Stores that the crash harness kills workers on, and the storm of an unaware application."""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from benchmarks.shared.crash_model import OLD, old_model
from benchmarks.shared.postgres_server import PostgresServer
from fastfill.adapters.lance.deadline import answered_within
from fastfill.gallery import Id

APPLICATION = "application"  # how its connections to PostgreSQL call themselves
LOST_AFTER = 60.0  # seconds until an answer of LanceDB's client is taken for lost


@dataclass(frozen=True)
class Item:
    """What the owner knows about one item."""

    text: str
    vector: tuple[float, ...]
    album: int


def item(text: str, album: int) -> Item:
    """An item as the application makes it."""
    return Item(text, tuple(old_model(text).tolist()), album)


class World(Protocol):
    """A collection that its owner goes on changing with the client's own calls."""

    url: str

    def insert(self, key: str, value: Item) -> None: ...
    def update(self, key: str, value: Item) -> None: ...
    def delete(self, key: str) -> None: ...
    def everything(self) -> dict[Id, Item]: ...
    def kill_server(self) -> None: ...
    def close(self) -> None: ...


class LanceWorld:
    """A LanceDB table in a folder of its own."""

    def __init__(self, items: dict[str, Item]) -> None:
        import lancedb
        import pyarrow as pa

        import fastfill.adapters.lance.connection  # noqa: F401  gives the client's calls limits

        self._folder = tempfile.TemporaryDirectory(prefix="crash-")
        self.url = f"lance://{self._folder.name}#items.vector"
        self._pa = pa
        self._table: Any = lancedb.connect(self._folder.name).create_table(
            "items", self._rows(items)
        )

    def _rows(self, items: dict[str, Item]) -> Any:
        vectors = np.array([value.vector for value in items.values()], dtype=np.float32)
        flat = self._pa.array(vectors.ravel())
        return self._pa.table(
            {
                "id": list(items),
                "text": [value.text for value in items.values()],
                "album": [value.album for value in items.values()],
                "vector": self._pa.FixedSizeListArray.from_arrays(flat, OLD),
            }
        )

    def insert(self, key: str, value: Item) -> None:
        """Append, as an application that does not know of the migration."""
        with answered_within(LOST_AFTER):
            self._table.checkout_latest()
            self._table.add(self._rows({key: value}))

    def update(self, key: str, value: Item) -> None:
        """Change the owner's columns of one row."""
        values = {"text": value.text, "album": value.album, "vector": list(value.vector)}
        with answered_within(LOST_AFTER):
            self._table.checkout_latest()
            self._table.update(where=f"id = '{key}'", values=values)

    def delete(self, key: str) -> None:
        """Delete one row."""
        with answered_within(LOST_AFTER):
            self._table.checkout_latest()
            self._table.delete(f"id = '{key}'")

    def everything(self) -> dict[Id, Item]:
        """The owner's columns of all rows; two rows of one id are an error."""
        names = ["id", "text", "album", "vector"]
        with answered_within(LOST_AFTER):
            self._table.checkout_latest()
            rows = self._table.search().select(names).limit(10**6).to_arrow().to_pylist()
        found = {r["id"]: Item(r["text"], tuple(r["vector"]), r["album"]) for r in rows}
        if len(found) != len(rows):
            raise AssertionError("an item is in the table twice")
        return found

    def kill_server(self) -> None:
        """There is none."""

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()


class PostgresWorld:
    """A table of its own on a server that several worlds share."""

    def __init__(self, items: dict[str, Item], server: PostgresServer) -> None:
        self._server = server
        self._name = f"items_{os.getpid()}_{random.randrange(10**9)}"
        self.url = f"{server.uri}#{self._name}.vector"
        self._connection: Any = None
        self._run("CREATE EXTENSION IF NOT EXISTS vector", [])
        self._run(
            f"CREATE TABLE {self._name} (id text PRIMARY KEY, text text, album int, "
            f"vector vector({OLD}))",
            [],
        )
        for key, value in items.items():
            self.insert(key, value)

    def _run(self, statement: str, values: list[Any]) -> list[Any]:
        import psycopg

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._server.uri, autocommit=True, application_name=APPLICATION
            )
        cursor = self._connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    def insert(self, key: str, value: Item) -> None:
        """Insert, as an application that does not know of the migration."""
        columns = "(id, text, album, vector)"
        values = [key, value.text, value.album, str(list(value.vector))]
        statement = f"INSERT INTO {self._name} {columns} VALUES (%s, %s, %s, %s::vector)"
        self._run(f"{statement} ON CONFLICT DO NOTHING", values)

    def update(self, key: str, value: Item) -> None:
        """Change the owner's columns of one row."""
        statement = f"UPDATE {self._name} SET text = %s, album = %s, vector = %s::vector"
        values = [value.text, value.album, str(list(value.vector)), key]
        self._run(f"{statement} WHERE id = %s", values)

    def delete(self, key: str) -> None:
        """Delete one row."""
        self._run(f"DELETE FROM {self._name} WHERE id = %s", [key])

    def everything(self) -> dict[Id, Item]:
        """The owner's columns of all rows."""
        import psycopg

        statement = f"SELECT id, text, album, vector::real[] FROM {self._name}"
        try:
            rows = self._run(statement, [])
        except psycopg.OperationalError:  # the connection is from before the server was killed
            self._connection = None
            rows = self._run(statement, [])
        return {
            key: Item(text, tuple(np.array(vector, dtype=np.float32).tolist()), album)
            for key, text, album, vector in rows
        }

    def kill_server(self) -> None:
        """Kill and restart the server."""
        self._server.kill()

    def close(self) -> None:
        """Drop the table."""
        self._run(f"DROP TABLE {self._name}", [])
        self._run(f"DROP TABLE IF EXISTS {self._name}_ff_vector", [])
        self._connection.close()


class PostgresSideWorld(PostgresWorld):
    """A table whose trigger refuses every write but the application's: `auto` goes beside it."""

    def __init__(self, items: dict[str, Item], server: PostgresServer) -> None:
        super().__init__(items, server)
        self._run(
            "CREATE OR REPLACE FUNCTION only_the_application() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN IF current_setting('application_name') <> '{APPLICATION}' THEN RAISE "
            "'the owner''s table was written to'; END IF; RETURN coalesce(NEW, OLD); END $$",
            [],
        )
        self._run(
            f"CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE ON {self._name} "
            "FOR EACH ROW EXECUTE FUNCTION only_the_application()",
            [],
        )


class PostgresNotedWorld(PostgresSideWorld):
    """The same, whose owner allows a trigger that notes what the application writes."""

    environment: ClassVar[dict[str, str]] = {"FASTFILL_HARNESS_TRIGGER": "1"}

    def left_over(self) -> list[str]:
        """What there is of the trigger, its function and the notes, which all bear one name."""
        name = f"{self._name}_ff_vector_notes"
        catalogues = ("tgname FROM pg_trigger", "proname FROM pg_proc", "relname FROM pg_class")
        parts = [f"SELECT {each} WHERE {each.split()[0]} = '{name}'" for each in catalogues]
        return [str(found) for (found,) in self._run(" UNION ALL ".join(parts), [])]


class Storm:
    """Inserts, updates and deletes at random, as fast as the store takes them."""

    def __init__(self, world: World, items: dict[str, Item], seed: int, pause: float) -> None:
        self.truth = dict(items)
        self.operations = 0
        self.errors: list[str] = []
        self._world, self._rng, self._pause = world, random.Random(seed), pause
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @contextmanager
    def calm(self) -> Iterator[None]:
        """No operation runs inside."""
        with self._lock:
            yield

    @property
    def ended(self) -> bool:
        """Is it over?"""
        return self._ended.is_set()

    def end(self) -> None:
        """No more operations."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                self._one()
            time.sleep(self._rng.uniform(0, 2 * self._pause))

    def _one(self) -> None:
        kind = self._rng.choice(["insert", "update", "update", "vector", "album", "delete"])
        key = self._rng.choice(sorted(self.truth)) if self.truth else ""
        before = self.truth.get(key)
        if kind == "insert" or before is None:
            key = f"late-{self.operations}"
            after: Item | None = item(f"late text {self.operations}", 9)
        elif kind == "delete":
            after = None
        elif kind == "vector":
            noise = np.array(self._rng.choices(before.vector, k=OLD), dtype=np.float32)
            after = Item(before.text, tuple(noise.tolist()), before.album)
        elif kind == "album":
            after = Item(before.text, before.vector, before.album + 1)
        else:
            after = item(f"edited {self.operations}", before.album)
        self.operations += 1
        self._apply(key, before if key in self.truth else None, after)

    def _apply(self, key: str, before: Item | None, after: Item | None) -> None:
        try:
            if before is None and after is not None:
                self._world.insert(key, after)
            elif after is None:
                self._world.delete(key)
            else:
                self._world.update(key, after)
        except Exception as error:  # the server was killed, or a conflict: see what happened
            self.errors.append(f"{type(error).__name__}: {str(error)[:120]}")
            after = self._look(key)
        if after is None:
            self.truth.pop(key, None)
        else:
            self.truth[key] = after

    def _look(self, key: str) -> Item | None:
        for _ in range(200):
            try:
                return self._world.everything().get(key)
            except Exception:
                time.sleep(0.1)
        raise AssertionError("the store did not come back")
