"""One connection to PostgreSQL: statements, transactions, schema changes that do not block."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from psycopg.sql import SQL, Composable, Literal

from fastfill.errors import StoreError

SCHEMA_LOCK = "3s"  # how long a schema change may queue in front of the application's statements
SCHEMA_TRIES = 10


class PostgresConnection:
    """A connection that is opened again when it is lost, used by one thread at a time."""

    name = "PostgreSQL"

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = psycopg.connect(self._conninfo, autocommit=True)
            except psycopg.OperationalError as error:
                raise StoreError(f"PostgreSQL cannot be reached: {_first_line(error)}") from error
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Cursor[Any]]:
        with self._errors(), self._lock, self._connect().transaction():
            yield self._connect().cursor(binary=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.LockNotAvailable:
            raise
        except psycopg.Error as error:
            raise StoreError(f"{self.name}: {_first_line(error)}") from error

    def _rows_of(self, query: str | Composable, values: Sequence[Any] = ()) -> list[Any]:
        with self._errors(), self._lock:
            cursor = self._connect().cursor(binary=True)
            cursor.execute(cast(Any, query), values or None)
            return cursor.fetchall() if cursor.description else []

    def _change_schema(self, statements: Sequence[Composable]) -> None:
        """Run schema changes one by one, never queueing for long in front of the application."""
        with self._errors(), self._lock:
            connection = self._connect()
            connection.execute(SQL("SET lock_timeout = {}").format(Literal(SCHEMA_LOCK)))
            for statement in statements:
                self._try_for_a_while(connection, statement)
            connection.execute("RESET lock_timeout")

    def _try_for_a_while(self, connection: Any, statement: Composable) -> None:
        for attempt in range(1, SCHEMA_TRIES + 1):
            try:
                connection.execute(statement)
                return
            except psycopg.errors.LockNotAvailable as error:
                if attempt == SCHEMA_TRIES:
                    raise StoreError(
                        f"{self.name}: the table stayed locked by others for {SCHEMA_TRIES} tries "
                        f"of {SCHEMA_LOCK}. Run the command again when it is less busy."
                    ) from error
                time.sleep(0.2 * attempt)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def raw(text: str) -> SQL:
    """SQL from the catalogue or from these files, never from a user."""
    return SQL(cast(Any, text))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
