"""The cut-over under the owner's name: both columns are renamed in one transaction."""

from __future__ import annotations

from typing import Any

from fastfill.adapters.sqlite.connection import client
from fastfill.adapters.sqlite.context import SqliteContext
from fastfill.adapters.sqlite.reads import SqliteReads
from fastfill.adapters.sqlite.sql import quoted, rename_column
from fastfill.errors import StoreError, some
from fastfill.gallery import Columns, Settled

PAGE = 4_096  # rows that are looked at together
OTHERS = "SELECT type || ' ' || name, sql FROM sqlite_schema WHERE type IN ('view', 'trigger')"


class _TriedError(Exception):
    """Ends a transaction that was only tried."""


class SqliteSwaps:
    """What SQLite refuses, or would change beside the two columns, is found by trying it first."""

    def __init__(self, context: SqliteContext, reads: SqliteReads) -> None:
        self._context, self._reads = context, reads

    def check_swap(self, columns: Columns) -> None:
        """Refuse what has no names to exchange, and what the owner's writers would not survive."""
        context = self._context
        context.look()
        if columns.where:
            raise StoreError(
                f"{context.name}: SQLite swaps a whole column only. Complete without --swap, and "
                f"let the application query '{columns.new}' for these rows."
            )
        if columns.new in context.side_types:
            raise StoreError(
                f"{context.name}: the added vectors are in the table '{context.side_table}', not "
                "in a column that could be renamed. Complete without --swap, and let the "
                "application query that table."
            )
        if columns.new in context.types:
            context.require_free(columns.swapped.old, context.types)
            self._try(columns)

    def swap(self, columns: Columns, settled: Settled) -> int:
        """Look for rows in the way, and again under the lock if others have written meanwhile."""
        context = self._context
        context.look()
        if columns.new not in context.types:  # it was done, although nobody heard of it
            return 0
        version = self._version()
        if rows := self._unsettled(settled):
            return rows

        def rename(cursor: Any) -> int:
            rows = 0 if self._version() == version else self._unsettled(settled)
            if not rows:
                self._exchange(cursor, columns, columns.swapped)
            return rows

        try:
            return context.work.write(rename)
        finally:
            context.look()

    def swap_back(self, columns: Columns, dim: int) -> None:
        """Rename both columns again."""
        context = self._context
        context.look()
        if columns.swapped.old in context.types:
            context.work.write(lambda c: self._exchange(c, columns.swapped, columns))
            context.look()

    def end_swap(self, columns: Columns, swapped: bool) -> None:
        """Nothing is left over."""

    # --- inside --------------------------------------------------------------------------------

    def _version(self) -> int:
        """Another number after each write of another connection."""
        return int(self._context.work.rows_of("PRAGMA data_version")[0][0])

    def _unsettled(self, settled: Settled) -> int:
        return sum(map(len, self._reads.unsettled(settled, batch=PAGE, changed=True)))

    def _exchange(self, cursor: Any, before: Columns, after: Columns) -> None:
        """The name that the owner gave goes from one column to the other."""
        names = [(before.old, after.old), (before.new, after.new)]
        if before.new == after.old:  # the name must be free before the other column gets it
            names.reverse()
        for name, other in names:
            cursor.execute(rename_column(self._context, name, other))

    def _try(self, columns: Columns) -> None:
        """Do it, and take it back."""

        def tried(cursor: Any) -> None:
            self._without_old(cursor, columns.old)
            others = cursor.execute(OTHERS).fetchall()
            self._exchange(cursor, columns, columns.swapped)
            self._refuse_followers(others, cursor.execute(OTHERS).fetchall())
            raise _TriedError

        try:
            self._context.work.write(tried)
        except _TriedError:
            return

    def _without_old(self, cursor: Any, name: str) -> None:
        """After the swap the application writes rows without an old vector."""
        context, table = self._context, quoted(self._context.table)
        query = f"UPDATE {table} AS t SET {quoted(name)} = NULL WHERE {context.id} = "
        query += f"(SELECT {context.id} FROM {table} AS t LIMIT 1)"
        try:
            cursor.execute(query)
        except client().IntegrityError as error:
            raise StoreError(
                f"{context.name}: {error}. SQLite cannot take this constraint off the old vectors: "
                "after a swap the application could insert nothing. Complete without --swap."
            ) from error

    def _refuse_followers(self, before: list[Any], after: list[Any]) -> None:
        """A view or a trigger goes with the column, not with its name."""
        moved = [name for (name, text), (_, now) in zip(before, after, strict=True) if text != now]
        if moved:
            raise StoreError(
                f"{self._context.name}: {some(moved)} would go on reading the old vectors. Drop "
                "it, swap, and create it again; or complete without --swap."
            )
