"""One connection to a file of SQLite: statements, transactions, waiting for other writers."""

from __future__ import annotations

import importlib
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import sqlite_vec

from fastfill.errors import StoreError
from fastfill.gallery.base import StoreContext, backoff

T = TypeVar("T")
Values = Sequence[Any] | Mapping[str, Any]
BUSY = 2.0  # seconds that SQLite itself waits for a lock
LOCKED_FOR = 60.0  # seconds of locks of other programs before giving up
FIRST_WAIT, LONGEST_WAIT = 0.05, 1.0  # seconds in which nothing is asked of the file
LEAST_VERSION = (3, 38, 0)  # of SQLite: JSON and the list of tables
BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def client() -> Any:
    """Python's own module `sqlite3`, or `pysqlite3` where that cannot load extensions.

    Two copies of SQLite in one process lose each other's locks on a file, so an application that
    shares its process with FastFill must use the same one.
    """
    if _can_load(sqlite3):
        return sqlite3
    with suppress(ImportError):
        other = importlib.import_module("pysqlite3")
        if _can_load(other):
            return other
    raise StoreError(
        "The sqlite3 of this Python cannot load extensions, or is older than SQLite "
        f"{'.'.join(map(str, LEAST_VERSION))}: run pip install pysqlite3-binary (pysqlite3 where "
        "that has no wheel), or use a Python that was built with loadable SQLite extensions."
    )


def _can_load(module: Any) -> bool:
    new_enough = module.sqlite_version_info >= LEAST_VERSION
    return new_enough and hasattr(module.Connection, "enable_load_extension")


def open_file(path: str, timeout: float = BUSY) -> Any:
    """A connection of the client, with sqlite-vec loaded; transactions are begun by statements."""
    connection = client().connect(
        f"file:{quote(path)}?mode=rw",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.enable_load_extension(True)
    sqlite_vec.load(connection)
    connection.enable_load_extension(False)
    return connection


class SqliteConnection:
    """A connection that is opened when it is used, by one thread at a time.

    Those of one process that share a `turn` write one after the other: SQLite lets whoever waits
    for the lock of the file sleep, often until long after it is free.
    """

    def __init__(
        self,
        path: str,
        context: StoreContext,
        turn: AbstractContextManager[Any],
        cache: int = 2_000,
    ) -> None:
        """`cache` KiB of pages are kept; 2,000 is SQLite's own choice."""
        if not Path(path).is_file():  # SQLite would make it
            raise StoreError(f"{path} is no file. Check the path of the URL.")
        self._path, self._context, self._client = path, context, client()
        self._lock, self._turn, self._cache = threading.RLock(), turn, cache
        self._connection: Any = None

    def rows_of(self, query: str, values: Values = ()) -> list[Any]:
        """The rows that a query gives; within a transaction of ours, as that sees them."""
        return self._repeat(lambda connection: list(connection.execute(query, values)))

    def write(self, work: Callable[[Any], T]) -> T:
        """Write in one transaction, which holds the lock of the file from its beginning.

        `work` may be called again from its beginning, when what it did was rolled back.
        """

        def attempt(connection: Any) -> T:
            with self._turn:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    result = work(connection)
                    connection.execute("COMMIT")
                except BaseException:
                    with suppress(self._client.Error):  # SQLite may have done it already
                        connection.execute("ROLLBACK")
                    raise
                return result

        return self._repeat(attempt)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # --- when others have the lock -------------------------------------------------------------

    def _repeat(self, operation: Callable[[Any], T]) -> T:
        """Do this; again while another program has the lock."""
        with self._lock:
            deadline, waits = time.monotonic() + LOCKED_FOR, backoff(FIRST_WAIT, LONGEST_WAIT)
            while True:
                try:
                    return operation(self._open())
                except self._client.Error as error:
                    if not _is_busy(error) or self._is_inside():
                        raise StoreError(f"{self._context.name}: {error}.") from error
                    cause = error
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"{self._context.name}: other programs kept the file locked for "
                        f"{LOCKED_FOR:.0f} s. Run the command again when it is less busy."
                    ) from cause
                self._wait(next(waits))

    def _open(self) -> Any:
        if self._connection is None:
            self._connection = open_file(self._path)
            self._connection.execute(f"PRAGMA cache_size = -{self._cache}")
        return self._connection

    def _is_inside(self) -> bool:
        """Is this a part of a transaction, which alone can be repeated?"""
        return self._connection is not None and bool(self._connection.in_transaction)

    def _wait(self, seconds: float) -> None:
        self._context.notify("another program is writing to the SQLite file", seconds)
        time.sleep(seconds)


def _is_busy(error: Any) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY_CODES
