"""Writing to a table."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal

from fastfill.adapters.postgres.binary import copy_stream
from fastfill.adapters.postgres.connection import Cursor, raw
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.row_counts import ByMarks, RowCounts
from fastfill.adapters.postgres.side_table import replaced, write_marks
from fastfill.adapters.postgres.sql import among, among_part, in_part_beside_values, update
from fastfill.features import Ints, Matrix
from fastfill.gallery import Id, Marks, Rows

WRITE_LOCK = "200ms"  # less than deadlock_timeout (1 s), so it is never the application that loses
# A hash join would read the whole table for every batch.
PREPARE = (
    "SET LOCAL lock_timeout = {}; SET LOCAL enable_hashjoin = off; "
    "SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off; SET LOCAL jit = off; "
    "CREATE TEMPORARY TABLE IF NOT EXISTS fastfill_batch (id text, seen bytea, version text, "
    "generation text, model text, vector vector, variance real, priority real) "
    "ON COMMIT DELETE ROWS"
)

# How long a transaction may keep others from its rows: what it aims at, and when it is given up.
PIECE_SECONDS, LONGEST = 0.15, "350ms"
FIRST_PIECE = 256  # rows
# Transactions that neighbours in the table are spread over, and their rows: each costs some time.
TURNS, TURNS_BESIDE, LEAST_PIECE = 4, 16, 64
LIMIT = "SET LOCAL statement_timeout = {}"
COUNTED = "WITH {} SELECT generation, model, count(*) FROM written GROUP BY 1, 2"


class _TooSlowError(Exception):
    """A transaction has held its rows for too long, and was rolled back."""


class _Swapped(NamedTuple):
    """Rows that were written, and all that this process has moved from marks to others."""

    rows: int
    moved: ByMarks


class PostgresWrites:
    """A batch is a few short UPDATEs, on a connection of its own."""

    def __init__(self, context: PostgresContext, row_counts: RowCounts) -> None:
        self._context, self._row_counts = context, row_counts
        self._piece = FIRST_PIECE  # rows that are written in about `PIECE_SECONDS`

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """In transactions so short that nobody waits long for a row of theirs.

        The most urgent come first and lie together in the table then, as a backfill reads them.
        Rows that are written again take turns: see `in_turns`.
        """
        priority = np.zeros(len(rows)) if marks.priority is None else -marks.priority
        order, written, first, most = np.argsort(priority, kind="stable"), 0, 0, len(rows)
        if any(generation is not None for generation in rows.generation):
            order, most = in_turns(order, TURNS_BESIDE if self._context.beside else TURNS)
        while first < len(rows):
            part = order[first : first + min(self._piece, most)]
            began = time.monotonic()
            try:
                values = None if vectors is None else vectors[part]
                written += self._write_piece(rows.take(part), values, marks.take(part))
            except _TooSlowError:
                self._piece = max(len(part) // 4, 1)
                continue
            first += len(part)
            speed = len(part) / max(time.monotonic() - began, 1e-3)
            self._piece = int(np.clip(PIECE_SECONDS * speed, 1, 4 * self._piece))
        return written

    def _write_piece(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """Binary COPY into a temporary table, then one UPDATE that compares and sets."""
        data, writing = copy_stream(rows, vectors, marks), self._context.writing
        limited = len(rows) > 1  # a single row takes what it takes

        def swap(skip: bool) -> _Swapped:
            return writing.write(lambda cursor: self._swap(cursor, data, marks, skip, limited))

        try:
            swapped = swap(skip=False)
        except psycopg.errors.LockNotAvailable:
            try:
                swapped = swap(skip=True)
            except psycopg.errors.LockNotAvailable as error:  # by an insert beside the table
                if limited:
                    raise _TooSlowError from error
                return 0  # to whoever inserts it
        self._row_counts.committed(swapped.moved)
        return swapped.rows

    def _swap(
        self, cursor: Cursor, data: bytes, marks: Marks, skip: bool, limited: bool
    ) -> _Swapped:
        cursor.connection.execute(SQL(PREPARE).format(Literal(WRITE_LOCK)))
        with cursor.copy("COPY fastfill_batch FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(data)
        cursor.connection.execute(SQL(LIMIT).format(Literal(LONGEST if limited else "0")))
        statement = write_marks if self._context.beside else update
        query = SQL(COUNTED).format(statement(self._context, marks, skip))
        try:
            before = cursor.execute(query).fetchall()
        except psycopg.errors.QueryCanceled as error:
            if limited:
                raise _TooSlowError from error
            raise
        rows = sum(count for _, _, count in before)
        moved: ByMarks = Counter({(marks.generation, marks.model): rows})
        moved.subtract({(generation, model): count for generation, model, count in before})
        return _Swapped(rows, self._row_counts.move(cursor, moved))

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id."""
        context, key = self._context, self._context.key
        context.look()
        aside = {n for n in values if n in context.added} if context.beside else set[str]()
        owners = [name for name in values if name not in aside]
        parts = [(context.target, owners)] if owners != [key] or not aside else []
        if aside:
            parts.append((context.side, [key, *(name for name in values if name in aside)]))

        def write(cursor: Cursor) -> None:
            for table, names in parts:
                columns = [map(_parameter, values[name]) for name in names]
                query = self._upsert(table, names, context.target == table)
                cursor.executemany(query, list(zip(*columns, strict=True)))

        context.work.write(write)

    def _upsert(self, table: Identifier, names: Sequence[str], owners: bool) -> Composed:
        context, key = self._context, self._context.key
        changes = [name for name in names if name != key]
        condition = in_part_beside_values(context) if owners else SQL("true")
        change = SQL("UPDATE SET {} WHERE {}").format(replaced(changes), condition)
        return SQL("INSERT INTO {} AS t ({}) VALUES ({}) ON CONFLICT ({}) DO {}").format(
            table,
            SQL(", ").join(map(Identifier, names)),
            SQL(", ").join(SQL("%s::{}").format(raw(context.types[name])) for name in names),
            Identifier(key),
            change if changes else SQL("NOTHING"),
        )

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows, with what is kept beside them."""
        context = self._context
        query = SQL("DELETE FROM {} t WHERE {}")
        queries = [query.format(context.target, among_part(context))]
        if context.beside and context.marked:
            queries.append(query.format(context.side, among(context)))

        def remove(cursor: Cursor) -> None:
            for each in queries:
                cursor.execute(each, [list(ids)])

        context.work.write(remove)


def in_turns(order: Ints, most_turns: int) -> tuple[Ints, int]:
    """The same, but neighbours are far from each other; and how many at most to write at once.

    Neighbours share a page. The first new version goes to another page, and leaves a dead row to
    the next ones: PostgreSQL takes its room for them, without VACUUM, once the transaction that
    wrote it has ended. In one transaction all of them would need new pages.

    >>> order, most = in_turns(np.arange(256), 16)
    >>> order[:4].tolist(), order[most : most + 2].tolist(), most
    ([0, 4, 8, 12], [1, 5], 64)
    """
    turns = min(max(len(order) // LEAST_PIECE, 1), most_turns)
    return np.concatenate([order[turn::turns] for turn in range(turns)]), -(-len(order) // turns)


def _parameter(value: Any) -> Any:
    if isinstance(value, list | tuple | np.ndarray):
        return str(np.asarray(value, dtype=np.float32).tolist())
    return value
