"""The cut-over under the owner's name.

A whole column is renamed. The vectors of a part share their column with others, so they are moved
there row by row, in one transaction, and the old ones are kept in a column of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from fastfill.adapters.postgres.connection import SCHEMA_LOCK, Cursor
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.indexes import (
    build_missing,
    can_sweep,
    marks_in_use,
    of_marks,
    to_look_at,
)
from fastfill.adapters.postgres.side_table import refuse_ending
from fastfill.adapters.postgres.sql import (
    add_vector,
    column,
    drop_columns,
    fingerprint,
    mark,
    not_right,
    vector_type,
)
from fastfill.errors import StoreError
from fastfill.gallery import Columns, Settled

ROW_LOCK = "500ms"  # less than deadlock_timeout, so it is never the application that loses

T = TypeVar("T")


class _RowsInTheWayError(Exception):
    """Ends a transaction in which some rows were not settled."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


class PostgresSwaps:
    """Either way the change is one transaction, which readers see as a whole or not at all."""

    def __init__(self, context: PostgresContext) -> None:
        self._context = context

    def check_swap(self, columns: Columns) -> None:
        """Refuse a name that is taken, and new vectors that do not fit among those of others."""
        context = self._context
        refuse_ending(context)
        context.look()
        if not columns.where:
            if columns.new in context.types:
                context.require_free(columns.swapped.old, context.types)
            return
        if "(" not in context.types[columns.old]:
            return
        have, dim = context.dim(columns.old), context.dim(columns.new)
        if dim not in (0, have):
            raise StoreError(
                f"{context.name}: column '{columns.old}' holds vectors of {have} dimensions, also "
                f"of other rows, and the new ones have {dim}. Run ALTER TABLE {context.table} "
                f"ALTER COLUMN {columns.old} TYPE vector, which rewrites the table, or let the "
                f"application query '{columns.new}'."
            )

    def swap(self, columns: Columns, settled: Settled) -> int:
        """Rename both columns, or move the vectors of the part."""
        self._context.look()
        if columns.new not in self._context.types:  # it was done, although nobody heard of it
            return 0
        move = self._move if columns.where else self._rename
        try:
            move(columns, settled)
        except _RowsInTheWayError as error:
            return error.rows
        finally:
            self._context.look()
        return 0

    def swap_back(self, columns: Columns, dim: int) -> None:
        """Rename both columns again, or move the vectors of the part back."""
        context = self._context
        context.look()
        if columns.swapped.old in context.types:
            if columns.where:
                self._move_back(columns, dim)
            else:
                self._transact(lambda cursor: self._exchange(cursor, columns.swapped, columns))
            context.look()

    def end_swap(self, columns: Columns, swapped: bool) -> None:
        """Drop the column that the vectors of a part have been moved out of."""
        if columns.where:
            empty = columns.new if swapped else columns.swapped.old
            self._context.work.change_schema(lambda: [drop_columns(self._context, [empty])])
            self._context.look()

    # --- a whole column ------------------------------------------------------------------------

    def _rename(self, columns: Columns, settled: Settled) -> None:
        build_missing(self._context, waited_for=True)
        by_index = can_sweep(self._context)

        def rename(cursor: Cursor) -> None:
            cursor.execute(SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(self._target))
            self._refuse_unsettled(cursor, settled, by_index)
            self._exchange(cursor, columns, columns.swapped)

        self._transact(rename)

    def _refuse_unsettled(self, cursor: Cursor, settled: Settled, by_index: bool) -> None:
        """While nobody else can read or write: not by a look at every row, if that can be."""
        context = self._context
        if not by_index:
            self._refuse(cursor, not_right(context, settled, changed=True))
            return
        cursor.execute("SET LOCAL enable_seqscan = off")
        self._refuse(cursor, to_look_at(context, settled))
        for generation, model in cursor.execute(marks_in_use(context)).fetchall():
            if not settled.is_right(generation, model):
                self._refuse(cursor, of_marks(context, generation, model))

    def _exchange(self, cursor: Cursor, before: Columns, after: Columns) -> None:
        """Rename both columns; the name that the owner gave goes from one to the other first."""
        owners = before.old if after.new == before.old else before.new
        names = [(before.old, after.old), (before.new, after.new)]
        names.sort(key=lambda pair: pair[0] != owners)
        required = self._is_required(cursor, owners)
        for name, other in names:
            self._alter(cursor, SQL("RENAME COLUMN {} TO {}"), name, other)
        if required:  # a property of the owner's name, which goes where the name goes
            self._alter(cursor, SQL("ALTER COLUMN {} DROP NOT NULL"), names[0][1])
            query = SQL("SELECT EXISTS (SELECT FROM {} WHERE {} IS NULL)")
            if not _value(cursor, query.format(self._target, Identifier(owners))):
                self._alter(cursor, SQL("ALTER COLUMN {} SET NOT NULL"), owners)

    def _is_required(self, cursor: Cursor, name: str) -> bool:
        query = (
            "SELECT attnotnull FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = %s"
        )
        values = [self._context.regclass(self._context.table), name]
        return bool(_value(cursor, SQL(query).format(), values))

    def _alter(self, cursor: Cursor, change: SQL, *names: str) -> None:
        step = change.format(*map(Identifier, names))
        cursor.execute(SQL("ALTER TABLE {} {}").format(self._target, step))

    # --- a part --------------------------------------------------------------------------------

    def _move(self, columns: Columns, settled: Settled) -> None:
        """Rows that are moved lose their fingerprint, which tells them from those that are not."""
        context, kept = self._context, columns.swapped.old
        kind = context.types[columns.old]
        context.work.change_schema(lambda: [add_vector(context, kept, kind)])
        still_right = SQL("NOT {}").format(not_right(context, settled, changed=True))
        values = [(kept, column(columns.old)), (columns.old, column(columns.new))]

        def move(cursor: Cursor) -> None:
            self._update(cursor, values, SQL("NULL"), [self._marked, still_right])
            self._refuse(cursor, SQL("{} IS NOT TRUE").format(self._moved))

        self._transact(move, ROW_LOCK)

    def _move_back(self, columns: Columns, dim: int) -> None:
        context, kept = self._context, columns.swapped.old
        context.work.change_schema(lambda: [add_vector(context, columns.new, vector_type(dim))])
        values = [(columns.new, column(columns.old)), (columns.old, column(kept))]
        again = fingerprint(context)
        self._transact(lambda cursor: self._update(cursor, values, again, [self._moved]), ROW_LOCK)

    def _update(
        self,
        cursor: Cursor,
        values: Sequence[tuple[str, Composable]],
        mark_of_content: Composable,
        conditions: Sequence[Composable],
    ) -> None:
        context = self._context
        settings = [
            *values,
            (context.columns.mark("fingerprint"), mark_of_content),
            (context.xid, SQL("pg_current_xact_id()::xid")),
        ]
        pairs = [SQL("{} = {}").format(Identifier(name), value) for name, value in settings]
        where = SQL(" AND ").join([context.in_part, *conditions])
        query = SQL("UPDATE {} t SET {} WHERE {}")
        cursor.execute(query.format(self._target, SQL(", ").join(pairs), where))

    @property
    def _marked(self) -> Composable:
        return SQL("{} IS NOT NULL").format(mark(self._context, "fingerprint"))

    @property
    def _moved(self) -> Composable:
        generation, content = (mark(self._context, name) for name in ("generation", "fingerprint"))
        return SQL("({} IS NOT NULL AND {} IS NULL)").format(generation, content)

    # --- both ----------------------------------------------------------------------------------

    @property
    def _target(self) -> Composable:
        return self._context.target

    def _refuse(self, cursor: Cursor, condition: Composable) -> None:
        """End the transaction where rows meet a condition."""
        context = self._context
        query = SQL("SELECT count(*) FROM {} t WHERE {} AND {}").format(
            context.target, context.in_part, condition
        )
        if rows := int(_value(cursor, query)):
            raise _RowsInTheWayError(rows)

    def _transact(self, work: Callable[[Cursor], T], lock: str = SCHEMA_LOCK) -> T:
        """One transaction, again while others hold locks that it needs."""

        def locked(cursor: Cursor) -> T:
            cursor.execute(SQL("SET LOCAL lock_timeout = {}").format(Literal(lock)))
            return work(cursor)

        connection = self._context.work
        return connection.try_for_a_while(lambda: connection.write(locked))


def _value(cursor: Cursor, query: Composed, values: Sequence[str] = ()) -> Any:
    """The one value that a query gives."""
    row = cursor.execute(query, values or None).fetchone()
    return None if row is None else row[0]
