"""The sweep of the layout `side`: what others have written, without an index on the owner's table.

The owner's rows are looked at in the order in which they lie on disk, some blocks at a time. The
first pass, or passes, of a migration look up each of them beside; once a pass has found few rows,
the transaction that was the oldest open one when it began is kept as a document, the horizon. A row
that has been written since carries a later transaction (`xmin`), and so the next pass reads the
owner's blocks but looks up those rows alone. That is exact, and it is a read of the owner's table
from end to end, but for what PostgreSQL keeps of its rows in another place, as long vectors are.

Rows that a pass has found and nobody has settled by its end are kept beside the horizon.

Where the owner allows a trigger (`write_notes`), what is written since a pass is noted, and the
next sweep looks at these rows alone: it does not read the owner's table.

Deleted rows leave nothing to find. What is kept beside them is in nobody's way, and is removed
after a sweep when the server's statistics tell of deletions, or by their notes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from fastfill.adapters.postgres import write_notes
from fastfill.adapters.postgres.connection import Cursor
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.documents import PostgresDocuments
from fastfill.adapters.postgres.indexes import is_large
from fastfill.adapters.postgres.sql import (
    column,
    key,
    key_type,
    marked_key,
    other_content,
    same_key,
)
from fastfill.errors import StoreError
from fastfill.gallery import Document, Id

SWEPT = "side sweep"  # the name of the document
MOST = 10_000  # rows that may be left to look at again
WRAP = 2**31  # transactions until numbers of 32 bits are taken again
LEAST_NOTES = 256  # read at a time
LEAST_BLOCKS, MOST_BLOCKS = 16, 4_096  # of one statement
BY_PLACE = 140_000  # the version of PostgreSQL that can read some blocks of a table
GUESS = 32.0  # rows on a block, before the server has counted
# By the primary key beside: whatever the statistics say, a join reads no whole table for some rows.
STEP = (
    "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; "
    "SET LOCAL enable_seqscan = off; SET LOCAL jit = off; "
    "SET LOCAL max_parallel_workers_per_gather = 0"
)
SERVER = "SELECT system_identifier::text FROM pg_control_system()"
MAY_ASK = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
FILES = (
    "SELECT pg_relation_filenode(to_regclass(%s)) || '/' || pg_relation_filenode(to_regclass(%s))"
)
OLDEST_OPEN = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text"
BLOCKS = (
    "SELECT pg_relation_size(c.oid) / current_setting('block_size')::int, "
    "CASE WHEN c.relpages > 0 AND c.reltuples > 0 THEN c.reltuples / c.relpages END "
    "FROM pg_class c WHERE c.oid = to_regclass(%s)"
)
DELETED = "SELECT n_tup_del FROM pg_stat_all_tables WHERE relid = to_regclass(%s)"


@dataclass(frozen=True)
class Horizon:
    """What a pass leaves to the next one."""

    tables: str  # which these are: a copy of the data, or of a table, has other numbers
    transaction: int  # rows of earlier ones have been seen
    left: tuple[Id, ...] = ()  # but these are to be looked at again
    deleted: int = 0  # rows of the owner's when it began, as the server's statistics tell
    trigger: str = ""  # which one has noted all writes since

    def to_bytes(self) -> bytes:
        """As JSON."""
        return json.dumps(self.__dict__).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Horizon:
        """From JSON."""
        plain = json.loads(value)
        return cls(**{**plain, "left": tuple(plain["left"])})


class SideSweep:
    """Passes over the owner's table."""

    def __init__(self, context: PostgresContext, documents: PostgresDocuments) -> None:
        self._context, self._documents = context, documents

    def differing(self, selected: Composable, batch: int) -> Iterator[list[Any]]:
        """Records, their ids first, of rows with nothing beside them, or with other content.

        A pass that is read to its end is remembered.
        """
        document = self._documents.load(SWEPT)
        kept = None if document is None else Horizon.from_bytes(document.value)
        begun = self._begin()
        if kept is not None and kept.tables == begun.tables and kept.trigger == begun.trigger != "":
            yield from self._noted(selected, batch, kept, document)
            return
        if kept is not None and not _follows(kept, begun):
            kept = None
        found: dict[Id, None] = {}
        for records in self._pass(selected, batch, kept):
            fresh = [record for record in records if record[0] not in found]
            if len(found) <= MOST:
                found.update(dict.fromkeys(record[0] for record in fresh))
            yield fresh
        if not is_large(self._context) or (kept is not None and kept.deleted != begun.deleted):
            self._remove_orphans()
        if len(found) <= MOST:
            self._remember(begun, list(found), document)

    def forget(self) -> None:
        """The table beside is gone."""
        self._documents.remove([SWEPT])

    # --- one pass ------------------------------------------------------------------------------

    def _pass(self, selected: Composable, batch: int, kept: Horizon | None) -> Iterator[list[Any]]:
        """Over the owner's table; some rows may come twice."""
        if kept is not None and kept.left:
            yield self._still_differing(selected, kept.left)
        for step in self._steps(self._context.table, batch):
            where = SQL("{} AND {}").format(step, _written_since(kept))
            yield self._context.work.read(_asked(self._query(selected, where)))

    def _noted(
        self, selected: Composable, batch: int, kept: Horizon, document: Document | None
    ) -> Iterator[list[Any]]:
        """The same from the notes: those of rows that do not differ any more are removed."""
        context, seen = self._context, set[Id]()
        if kept.left:
            yield (records := self._still_differing(selected, kept.left))
            seen.update(record[0] for record in records)
        for notes in write_notes.pages(context, max(batch, LEAST_NOTES)):
            ids = list({key: None for _, key in notes})
            records = self._still_differing(selected, ids)  # by a later statement than the notes
            self.remove_gone(ids)
            differing = {record[0] for record in records}
            with suppress(StoreError):  # whoever may only read leaves them
                write_notes.remove(context, [n for n, key in notes if key not in differing])
            yield [record for record in records if record[0] not in seen]
            seen |= differing
        if kept.left:
            self._remember(kept, kept.left, document)

    def _remember(self, pass_: Horizon, found: Sequence[Id], document: Document | None) -> None:
        """Keep what this pass leaves to the next one, with those rows that still differ."""
        records = self._still_differing(key(self._context), found)
        ended = replace(pass_, left=tuple(record[0] for record in records))
        version = 0 if document is None else document.version
        with suppress(StoreError):  # whoever may only read leaves nothing
            self._documents.save(SWEPT, ended.to_bytes(), version)

    def _begin(self) -> Horizon:
        context = self._context
        names = [context.regclass(context.table), context.regclass(context.side_name)]
        work = context.work
        server = work.rows_of(SERVER)[0][0] if work.rows_of(MAY_ASK)[0][0] else ""
        tables = f"{server}/{work.rows_of(FILES, names)[0][0]}"
        deleted = work.rows_of(DELETED, names[:1])
        oldest = int(work.rows_of(OLDEST_OPEN)[0][0])
        return Horizon(
            tables,
            oldest,
            deleted=int(deleted[0][0] or 0) if deleted else 0,
            trigger=write_notes.in_place(context),
        )

    def _steps(self, table: str, batch: int) -> Iterator[Composable]:
        """Conditions on the place of a row, which together are the whole table as it is now."""
        if self._context.work.open().info.server_version < BY_PLACE:
            yield SQL("true")
            return
        blocks, rows = self._context.work.rows_of(BLOCKS, [self._context.regclass(table)])[0]
        each = min(max(int(batch / (rows or GUESS)), LEAST_BLOCKS), MOST_BLOCKS)
        alias = SQL("t" if table == self._context.table else "a")
        for first in range(0, int(blocks), each):
            yield SQL("{a}.ctid >= {}::tid AND {a}.ctid < {}::tid").format(
                Literal(f"({first},0)"), Literal(f"({first + each},0)"), a=alias
            )

    def _query(self, selected: Composable, where: Composable) -> Composed:
        context = self._context
        return SQL("SELECT {} FROM {} t LEFT JOIN {} a ON {} WHERE {} AND {} AND {}").format(
            selected,
            context.target,
            context.side,
            same_key(context),
            where,
            context.in_part,
            SQL("({} IS NULL OR {})").format(marked_key(context), other_content(context)),
        )

    def _still_differing(self, selected: Composable, ids: Sequence[Id]) -> list[Any]:
        if not ids:
            return []
        context = self._context
        where = SQL("{} = ANY({}::{}[])").format(
            column(context.columns.id), Literal(list(ids)), key_type(context)
        )
        return context.work.read(_asked(self._query(selected, where)))

    # --- what is kept beside rows that are gone ------------------------------------------------

    def remove_gone(self, ids: Sequence[Id]) -> None:
        """Remove what is kept beside those of these rows that are gone, or no more of the part."""
        context = self._context
        where = SQL("a.{} = ANY({}::{}[])").format(
            Identifier(context.columns.id), Literal(list(ids)), key_type(context)
        )
        with suppress(StoreError):  # whoever may only read leaves it
            self._delete(self._orphans(where))

    def _remove_orphans(self) -> None:
        for step in self._steps(self._context.side_name, 4_096):
            self._delete(self._orphans(step))

    def _orphans(self, where: Composable) -> Composed:
        context = self._context
        query = "DELETE FROM {} a WHERE {} AND NOT EXISTS (SELECT FROM {} t WHERE {} AND {})"
        return SQL(query).format(
            context.side, where, context.target, same_key(context), context.in_part
        )

    def _delete(self, query: Composed) -> None:
        """Unless somebody writes there at the same moment: it may be a row that has come back."""

        def delete(cursor: Cursor) -> None:
            cursor.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.connection.execute("SET LOCAL lock_timeout = '200ms'")
            cursor.connection.execute(STEP)
            cursor.execute(query)

        try:
            self._context.work.write(delete)
        except psycopg.errors.LockNotAvailable:
            return
        except StoreError as error:
            if not isinstance(error.__cause__, psycopg.errors.SerializationFailure):
                raise


def _follows(kept: Horizon, begun: Horizon) -> bool:
    """Do the numbers of transactions go on from those of this horizon?"""
    return kept.tables == begun.tables and 0 <= begun.transaction - kept.transaction < WRAP


def _written_since(kept: Horizon | None) -> Composable:
    """The condition that a row may have been written since; `age` counts back from now."""
    if kept is None:
        return SQL("true")
    return SQL("age(t.xmin) <= age({}::xid)").format(Literal(str(kept.transaction % 2**32)))


def _asked(query: Composed) -> Callable[[Cursor], list[Any]]:
    def ask(cursor: Cursor) -> list[Any]:
        cursor.connection.execute(STEP)
        return list(cursor.execute(query).fetchall())

    return ask
