"""Writing to a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import psycopg
from psycopg.sql import SQL, Identifier, Literal

from fastfill.adapters.postgres.binary import copy_stream
from fastfill.adapters.postgres.connection import Cursor, raw
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.sql import among_part, in_part_beside_values, update
from fastfill.features import Matrix
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


class PostgresWrites:
    """A batch is one UPDATE, on a connection of its own."""

    def __init__(self, context: PostgresContext) -> None:
        self._context = context

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """Binary COPY into a temporary table, then one UPDATE that compares and sets."""
        if not len(rows):
            return 0
        data, writing = copy_stream(rows, vectors, marks), self._context.writing
        try:
            return writing.write(lambda cursor: self._swap(cursor, data, marks, skip=False))
        except psycopg.errors.LockNotAvailable:
            return writing.write(lambda cursor: self._swap(cursor, data, marks, skip=True))

    def _swap(self, cursor: Cursor, data: bytes, marks: Marks, skip: bool) -> int:
        cursor.connection.execute(SQL(PREPARE).format(Literal(WRITE_LOCK)))
        with cursor.copy("COPY fastfill_batch FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(data)
        cursor.execute(update(self._context, marks, skip))
        return cursor.rowcount

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id."""
        context, key = self._context, self._context.key
        context.look()
        slots = [SQL("%s::{}").format(raw(context.types[name])) for name in values]
        changes = [SQL("{n} = excluded.{n}").format(n=Identifier(n)) for n in values if n != key]
        change = SQL("UPDATE SET {} WHERE {}").format(
            SQL(", ").join(changes), in_part_beside_values(context)
        )
        query = SQL("INSERT INTO {} AS t ({}) VALUES ({}) ON CONFLICT ({}) DO {}").format(
            context.target,
            SQL(", ").join(map(Identifier, values)),
            SQL(", ").join(slots),
            Identifier(key),
            change if changes else SQL("NOTHING"),
        )
        rows = [tuple(map(_parameter, row)) for row in zip(*values.values(), strict=True)]
        context.work.write(lambda cursor: cursor.executemany(query, rows))

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        context = self._context
        query = SQL("DELETE FROM {} t WHERE {}").format(context.target, among_part(context))
        context.work.write(lambda cursor: cursor.execute(query, [list(ids)]))


def _parameter(value: Any) -> Any:
    if isinstance(value, list | tuple | np.ndarray):
        return str(np.asarray(value, dtype=np.float32).tolist())
    return value
