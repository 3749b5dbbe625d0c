"""Rows by their marks, kept by the writes: a count that reads no row of the table.

A count of every row is kept as a document, less what the writes until then add up to. Each process
that writes keeps one more document, replaced in the transaction of each batch: the rows that it has
taken from some marks to others. Their sum is the count as it is now, but for rows that the
application has inserted and no sweep has seen yet, has deleted, or has taken the marks off.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from psycopg.sql import SQL

from fastfill.adapters.postgres.connection import Cursor
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.documents import PostgresDocuments
from fastfill.adapters.postgres.sql import mark_or_null, source
from fastfill.errors import StoreError

ByMarks = Counter[tuple[str | None, str | None]]  # rows by (generation, model)
COUNTED, MOVED = "row counts", "row counts/"  # names of the documents
LASTS, SHARE = 300.0, 1_000  # seconds that a count is good for, or so many times what it took


class RowCounts:
    """The counts of one table, and what the writes of this process add to them."""

    def __init__(self, context: PostgresContext, documents: PostgresDocuments) -> None:
        self._context, self._documents = context, documents
        self._name = MOVED + uuid.uuid4().hex[:12]
        self._moved: ByMarks = Counter()  # by all that this process has committed

    def count(self) -> ByMarks:
        """Count every row, and keep that for estimates."""
        context, began = self._context, time.monotonic()
        query = SQL("SELECT {}, {}, count(*) FROM {} WHERE {} GROUP BY 1, 2").format(
            mark_or_null(context, "generation"),
            mark_or_null(context, "model"),
            source(context),
            context.in_part,
        )
        kept = context.marked and self._documents.exist()

        def look(cursor: Cursor) -> tuple[ByMarks, ByMarks]:
            cursor.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            counted = _of_entries(cursor.execute(query).fetchall())
            return counted, self._sum_moved(cursor) if kept else Counter()

        counted, moved = context.work.read(look)
        if kept:
            with suppress(StoreError):  # whoever may only read keeps no count
                self._keep(counted, moved, time.monotonic() - began)
        return counted

    def estimate(self) -> ByMarks | None:
        """The latest count and all writes since; None where there is none, or an old one."""
        document = self._documents.load(COUNTED)
        if document is None:
            return None
        counted = json.loads(document.value)
        if self._documents.now() > counted["until"]:
            return None
        rows = _of_entries(counted["rows"])
        rows.update(self._context.work.read(self._sum_moved))
        return +rows  # more may have lost their marks than had any

    def _keep(self, counted: ByMarks, moved: ByMarks, seconds: float) -> None:
        counted = Counter(counted)
        counted.subtract(moved)
        until = self._documents.now() + max(LASTS, SHARE * seconds)
        value = json.dumps({"until": until, "rows": _entries(counted)}).encode()
        latest = self._documents.load(COUNTED)
        self._documents.save(COUNTED, value, 0 if latest is None else latest.version)

    def _sum_moved(self, cursor: Cursor) -> ByMarks:
        total: ByMarks = Counter()
        for value in self._documents.values(cursor, MOVED):
            total.update(_of_entries(json.loads(value)))
        return total

    # --- what the writes add -------------------------------------------------------------------

    def move(self, cursor: Cursor, moved: ByMarks) -> ByMarks:
        """Add this to all that the process has done, in the transaction of a batch.

        Returns the sum, for `committed` once it is that.
        """
        total = Counter(self._moved)
        total.update(moved)
        if self._documents.exist():
            self._documents.put(cursor, self._name, json.dumps(_entries(total)).encode())
        return total

    def committed(self, total: ByMarks) -> None:
        """What `move` returned is in the store now."""
        self._moved = total

    def forget(self) -> None:
        """The marks are gone, and with them what was counted."""
        self._documents.remove([COUNTED, *self._documents.names(MOVED)])


def _entries(counts: ByMarks) -> list[list[Any]]:
    return [[generation, model, rows] for (generation, model), rows in counts.items() if rows]


def _of_entries(entries: Iterable[Any]) -> ByMarks:
    return Counter({(generation, model): rows for generation, model, rows in entries})
