"""One connection to PostgreSQL: statements, transactions, schema changes; opened again when lost.

What may be repeated after a loss, and why:
- reads, freely;
- a transaction: if the connection is lost before COMMIT was sent, the server rolls it back. If the
  answer to COMMIT is lost, the server is asked by the transaction's number whether it was committed
  (`pg_xact_status`), and only if it was not is the work done again;
- schema changes: each time they are made from what the catalogue says then;
- settings and temporary tables go with the connection, so work sets up what it needs each time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Composed, Literal

from fastfill.errors import StoreError
from fastfill.gallery.base import StoreContext, backoff

T = TypeVar("T")
Connection = psycopg.Connection[Any]
Cursor = psycopg.Cursor[Any]
SCHEMA_LOCK = "300ms"  # how long a schema change may queue in front of the application's statements
SCHEMA_TRIES, SCHEMA_WAIT = 40, 2.0  # and how long, at most, it lets them through after each
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0  # seconds between two tries to connect
LOSSES = 20  # of a connection in one operation: then the operation is what ends the connection
# A server that has gone without a word, as in a fail-over, is noticed within a minute.
DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
GOING_DOWN = ("08", "57P")  # classes of errors: the connection, or the whole server, is ending


class PostgresConnection:
    """A connection that is opened again when it is lost, used by one thread at a time.

    A server that is `proven` to be at this address is waited for, as long as the context says, or
    for `most` seconds if that is less.
    """

    def __init__(
        self,
        conninfo: str,
        context: StoreContext,
        *,
        proven: bool = False,
        most: float = float("inf"),
    ) -> None:
        self._conninfo, self._context, self._proven, self._most = conninfo, context, proven, most
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._lost_at: float | None = None  # when it was first sought in vain

    def rows_of(self, query: str | Composed, values: Sequence[Any] = ()) -> list[Any]:
        """The rows that a query gives; it only reads, and may run twice."""

        def ask(connection: Connection) -> list[Any]:
            cursor = connection.cursor(binary=True)
            cursor.execute(cast(Any, query), values or None)
            return cursor.fetchall() if cursor.description else []

        return self.repeat(ask)

    def read(self, work: Callable[[Cursor], T]) -> T:
        """Read in one transaction; `work` may be called again from its beginning."""

        def attempt(connection: Connection) -> T:
            return _in_transaction(connection, lambda: work(connection.cursor(binary=True)))

        return self.repeat(attempt)

    def write(self, work: Callable[[Cursor], T]) -> T:
        """Write in one transaction, exactly once.

        `work` may be called again from its beginning, when what it did was rolled back.
        """
        about_to_end: list[tuple[str, T]] = []  # the number and the result of a transaction

        def attempt(connection: Connection) -> T:
            if about_to_end and self._was_committed(connection, about_to_end[0][0]):
                return about_to_end[0][1]
            about_to_end.clear()
            return _in_transaction(connection, lambda: to_the_end(connection))

        def to_the_end(connection: Connection) -> T:
            result = work(connection.cursor(binary=True))
            query = "SELECT pg_current_xact_id_if_assigned()::text"
            number = connection.execute(query).fetchone()
            if number is not None and number[0] is not None:  # else nothing was written
                about_to_end.append((number[0], result))
            return result

        return self.repeat(attempt)

    def change_schema(self, steps: Callable[[], Sequence[Composed]]) -> None:
        """Run schema changes one by one, never queueing for long in front of the application.

        `steps` is asked again after a lost connection: some of them may have been done.
        """
        self._change(SCHEMA_LOCK, steps, self.try_for_a_while)

    def change_beside_writers(self, steps: Callable[[], Sequence[Composed]]) -> None:
        """Run schema changes that block no writer, waiting for transactions as long as they last.

        `steps` is asked again after a lost connection: some of them may have been done.
        """
        self._change("0", steps, lambda do: do())

    def _change(
        self,
        limit: str,
        steps: Callable[[], Sequence[Composed]],
        run: Callable[[Callable[[], object]], object],
    ) -> None:
        def change(connection: Connection) -> None:
            connection.execute(SQL("SET lock_timeout = {}").format(Literal(limit)))
            try:
                for statement in steps():
                    run(partial(connection.execute, statement))
            finally:
                with suppress(psycopg.Error):
                    connection.execute("RESET lock_timeout")

        self.repeat(change)

    def try_for_a_while(self, operation: Callable[[], T]) -> T:
        """Do this again while it is refused a lock."""
        for attempt in range(1, SCHEMA_TRIES + 1):
            try:
                return operation()
            except psycopg.errors.LockNotAvailable as error:
                cause = error
            if attempt < SCHEMA_TRIES:
                self._wait("the table is locked by others", min(0.2 * attempt, SCHEMA_WAIT))
        raise StoreError(
            f"{self._context.name}: the table stayed locked by others for {SCHEMA_TRIES} tries of "
            f"{SCHEMA_LOCK}. Run the command again when it is less busy."
        ) from cause

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    # --- when the connection is lost -----------------------------------------------------------

    def repeat(self, operation: Callable[[Connection], T]) -> T:
        """Do this; again, on a new connection, whenever the one in use is lost."""
        with self._lock:
            waits = backoff(FIRST_WAIT, LONGEST_WAIT)
            for _ in range(LOSSES):
                connection = self.open()
                try:
                    return operation(connection)
                except psycopg.errors.LockNotAvailable:
                    raise
                except psycopg.Error as error:
                    if not _is_lost(connection, error):
                        raise StoreError(f"{self._context.name}: {first_line(error)}") from error
                    reason, cause = first_line(error), error
                connection.close()
                self._wait(f"the connection to PostgreSQL was lost ({reason})", next(waits))
            raise StoreError(
                f"{self._context.name}: the connection was lost {LOSSES} times in the middle of "
                f"the same operation, last with: {reason}"
            ) from cause

    def open(self) -> Connection:
        """The connection; one that was lost is sought until the time is over."""
        if self._connection is None or self._connection.closed:
            self._connection = self._connect_again() if self._proven else self._connect_first()
            self._proven = True
        return self._connection

    def _connect_first(self) -> Connection:
        """At once or not at all: a wrong address is not waited for."""
        try:
            return self._connect()
        except psycopg.Error as error:
            raise StoreError(f"PostgreSQL cannot be reached: {first_line(error)}") from error

    @property
    def _limit(self) -> float:
        """Seconds for which the server is waited for."""
        return min(self._most, self._context.reconnect_for)

    def _connect(self) -> Connection:
        given = conninfo_to_dict(self._conninfo)
        defaults = {name: value for name, value in DEFAULTS.items() if name not in given}
        return psycopg.connect(self._conninfo, autocommit=True, **defaults)

    def _connect_again(self) -> Connection:
        for seconds in backoff(FIRST_WAIT, LONGEST_WAIT):
            try:
                connection = self._connect()
                self._lost_at = None
                return connection
            except psycopg.Error as error:
                reason, cause = first_line(error), error
            now = time.monotonic()
            self._lost_at = now if self._lost_at is None else self._lost_at
            if now - self._lost_at > self._limit:
                break
            self._wait(f"PostgreSQL cannot be reached ({reason})", min(seconds, self._limit))
        raise StoreError(
            f"{self._context.name}: the connection was lost and could not be opened again for "
            f"{self._limit:.0f} s: {reason}. What was written is safe: run the command again."
        ) from cause

    def _was_committed(self, connection: Connection, number: str) -> bool:
        """How has a transaction ended whose end we did not hear of?"""
        deadline = time.monotonic() + self._limit
        for seconds in backoff(FIRST_WAIT, LONGEST_WAIT):
            try:
                row = connection.execute("SELECT pg_xact_status(%s::xid8)", [number]).fetchone()
            except psycopg.errors.InvalidParameterValue:  # a server that has never heard of it
                break
            if row is None or row[0] != "in progress":
                return row is not None and row[0] == "committed"
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{self._context.name}: transaction {number} is still open on the server, "
                    "although its connection was lost. Run the command again when it has ended."
                )
            self._wait(f"PostgreSQL has not ended transaction {number} yet", seconds)
        return False

    def _wait(self, reason: str, seconds: float) -> None:
        self._context.notify(reason, seconds)
        time.sleep(seconds)


def _in_transaction(connection: Connection, work: Callable[[], T]) -> T:
    """Psycopg's own block would log what goes wrong with a rollback on a lost connection."""
    connection.execute("BEGIN", prepare=False)
    try:
        result = work()
        connection.execute("COMMIT", prepare=False)
    except BaseException:
        if not connection.closed:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK", prepare=False)
        raise
    return result


def _is_lost(connection: Connection, error: psycopg.Error) -> bool:
    """Is the connection gone, and not just the statement at fault?"""
    return connection.closed or (error.sqlstate or "").startswith(GOING_DOWN)


def raw(text: str) -> SQL:
    """SQL from the catalogue or from these files, never from a user."""
    return SQL(cast(Any, text))


def first_line(error: Exception) -> str:
    """What the server says first: details follow on other lines."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
