"""Reading rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from fastfill.adapters.postgres.binary import as_matrix, as_seen
from fastfill.adapters.postgres.connection import Cursor
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.indexes import (
    CHANGED,
    OF_MARKS,
    can_sweep,
    is_large,
    marks_in_use,
    needs_look,
    of_marks,
    to_look_at,
    valid,
)
from fastfill.adapters.postgres.row_counts import RowCounts
from fastfill.adapters.postgres.sampling import random_ids
from fastfill.adapters.postgres.side_sweep import SideSweep
from fastfill.adapters.postgres.sql import (
    among_part,
    as_key,
    as_text,
    bytes_of,
    column,
    fingerprint,
    in_part_beside_values,
    input_of,
    key,
    key_type,
    known_fingerprint,
    mark,
    mark_or_null,
    marked_key,
    no_marks,
    not_right,
    other_content,
    source,
    version,
)
from fastfill.gallery import Generation, Id, Picked, Rows, Settled, objects
from fastfill.gallery.base import ids_of

# Rows come in the order of an index: whatever the statistics say, it is not worth sorting them.
BY_INDEX = (
    "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; "
    "SET LOCAL enable_sort = off; SET LOCAL jit = off; "
    "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; "
    "SET LOCAL max_parallel_workers_per_gather = 0"
)

BESIDE = 7  # of a record: is there anything beside the row?
FEW = 10_000  # rows that are looked up by their keys, where no index tells them
MOST_UNMARKED = 10_000  # rows that an estimate looks for


class PostgresReads:
    """Every page is a statement of its own: no long transaction that would hold back VACUUM."""

    def __init__(
        self, context: PostgresContext, row_counts: RowCounts, side_sweep: SideSweep
    ) -> None:
        self._context, self._row_counts, self._side_sweep = context, row_counts, side_sweep

    # --- many rows -----------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""
        context = self._context
        if context.beside:
            yield from self._differing(batch, changed, new)
        if can_sweep(context):
            yield from self._unsettled_by_index(settled, batch, changed, new)
            return
        where = not_right(context, settled, changed and not context.beside)
        if context.beside:
            where = SQL("{} AND {}").format(where, self._beside(changed))
        yield from self._without_index(where, batch, new)

    def _without_index(self, where: Composable, batch: int, new: bool) -> Iterator[Rows]:
        """Rows that meet a condition, in the order of their ids: it may be few of a large table.

        One pass over the table tells the keys of a few. Many are found in pages, for which the
        server looks at the rows one by one, by the index of the ids.
        """
        context = self._context
        few = SQL("SELECT {} AS id FROM {} WHERE {} AND {} LIMIT {}").format(
            as_key(context, marked_key(context)),
            source(context),
            context.in_part,
            where,
            Literal(FEW),
        )
        query = SQL("SELECT id FROM ({}) few ORDER BY id").format(few)
        keys = [row[0] for row in context.work.rows_of(query)]
        if len(keys) == FEW:
            yield from self._pages(where, batch, new, marked_key(context))
            return
        for first in range(0, len(keys), batch):
            among = SQL("{} AND {} = ANY({}::{}[])").format(
                where, marked_key(context), Literal(keys[first : first + batch]), key_type(context)
            )
            yield from self._pages(among, batch, new, marked_key(context))

    def _differing(self, batch: int, changed: bool, new: bool) -> Iterator[Rows]:
        """Rows with nothing beside them, with `changed` also those with other content."""
        for records in self._side_sweep.differing(self._selected(new), batch):
            wanted = [record for record in records if changed or not record[BESIDE]]
            for first in range(0, len(wanted), batch):
                yield self._rows(wanted[first : first + batch], new)

    def _beside(self, changed: bool) -> Composable:
        """The condition that a row has something beside it, of its content if that matters."""
        there = SQL("{} IS NOT NULL").format(marked_key(self._context))
        if not changed:
            return there
        return SQL("{} AND NOT {}").format(there, other_content(self._context))

    def _unsettled_by_index(
        self, settled: Settled, batch: int, changed: bool, new: bool
    ) -> Iterator[Rows]:
        """The same from the rows that are not as their marks say, and those of other models."""
        context = self._context
        where = to_look_at(context, settled)
        if not changed:
            where += SQL(" AND {}").format(no_marks(context))
        same = self._beside(changed) if context.beside else SQL("true")
        wanted = [where]
        wanted += [
            of_marks(context, generation, model)
            for generation, model in self._marks_by_index()
            if not settled.is_right(generation, model)
        ]
        for each in wanted:
            condition = SQL("{} AND {}").format(each, same)
            yield from self._pages(condition, batch, new, marked_key(context))

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation, in the order of their ids or, by an index, of their models."""
        context = self._context
        if generation is None:
            yield from self._pages(SQL("true"), batch, new, column(context.columns.id))
        elif not valid(context, OF_MARKS):
            where = SQL("{} = {}").format(mark(context, "generation"), Literal(generation))
            yield from self._without_index(where, batch, new)
        else:
            for kind, model in self._marks_by_index():
                if kind == generation:
                    where = of_marks(context, kind, model)
                    yield from self._pages(where, batch, new, marked_key(context))

    def marks_in_use(self) -> set[tuple[str, str]] | None:
        """Every generation with every model that rows have, where an index tells."""
        return set(self._marks_by_index()) if valid(self._context, OF_MARKS) else None

    def _marks_by_index(self) -> list[tuple[str, str]]:
        """The same in order, each found by one step in the index."""
        return [(row[0], row[1]) for row in self._context.work.rows_of(marks_in_use(self._context))]

    def _pages(self, where: Composable, batch: int, new: bool, order: Composable) -> Iterator[Rows]:
        """Rows that meet a condition in the `order` of an index of ids."""
        context = self._context
        query = SQL("SELECT {} FROM {} WHERE {} AND {} AND {} ORDER BY {} LIMIT {}")
        after: Composable = SQL("true")
        while True:
            wanted = (context.in_part, where, after)
            step = query.format(
                self._selected(new), source(context), *wanted, order, Literal(batch)
            )
            records = context.work.read(_by_index(step))
            if records:
                yield self._rows(records, new)
            if len(records) < batch:
                return
            after = SQL("{} > {}::{}").format(order, Literal(records[-1][0]), key_type(context))

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model): a look at every row."""
        self._context.look()
        counts = self._row_counts.count()
        return dict(counts) if self._context.marked else dict(counts) or {(None, None): 0}

    def estimate(self) -> dict[tuple[str | None, str | None], int] | None:
        """Rows by (generation, model) from the latest count and the writes since.

        Those without marks, which the application has inserted since, are counted where an index
        tells them: they are few. A small table is counted as a whole.
        """
        context = self._context
        counts = self._row_counts.estimate() if is_large(context) else None
        if counts is None or context.beside or not valid(context, CHANGED):
            return counts
        query = SQL("SELECT t.xmin FROM {} t WHERE {} AND {} LIMIT {}").format(
            context.target, needs_look(context), no_marks(context), Literal(MOST_UNMARKED)
        )
        counts[None, None] = len(context.work.read(_by_index(query)))
        return dict(+counts)

    # --- some rows -----------------------------------------------------------------------------

    def read(self, rows: Sequence[Id] | Picked, *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now; without `old` their old vectors stay where they are."""
        context, ids = self._context, ids_of(rows)
        query = SQL("SELECT {} FROM {} WHERE {}").format(
            self._selected(new, old), source(context), among_part(context)
        )
        records = context.work.rows_of(query, [ids]) if ids else []
        if context.beside and isinstance(rows, Picked) and len(records) < len(ids):
            self._side_sweep.remove_gone(ids)  # else they would be picked again
        return self._rows(records, new)

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """One column of these rows."""
        context = self._context
        context.require_column(column, context.types)
        query = SQL("SELECT {}, t.{} FROM {} t WHERE {}").format(
            key(context), Identifier(column), context.target, among_part(context)
        )
        return dict(context.work.rows_of(query, [list(ids)]))

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> Picked:
        """Rows of a generation by falling priority, from an index of them.

        Beside the owner's table, that is not looked at: `read` removes rows that are gone.
        """
        context, here = self._context, marked_key(self._context)
        query = SQL(
            "SELECT {} FROM {} {} WHERE {} = {} AND {} AND NOT ({} = ANY(%s::{}[])) "
            "ORDER BY {} DESC NULLS LAST LIMIT %s"
        ).format(
            as_key(context, here),
            context.holder,
            SQL("a" if context.beside else "t"),
            mark(context, "generation"),
            Literal(generation),
            SQL("true") if context.beside else in_part_beside_values(context),
            here,
            key_type(context),
            mark(context, "priority"),
        )
        rows = context.work.read(_by_index(query, [list(exclude), limit]))
        return Picked(objects([row[0] for row in rows]))

    def sample(self, limit: int, seed: int, *, new: bool = False) -> list[Id]:
        """Random ids of rows that can be paired and are not new, or of those that are `new`."""
        context, columns = self._context, self._context.columns
        where = SQL("{} AND {} IS NOT NULL AND {} IS NOT NULL").format(
            context.in_part, column(columns.old), column(columns.input or "")
        )
        if new:
            if not context.marked:
                return []
            is_new = SQL("{} = 'new'").format(mark(context, "generation"))
            where = SQL("{} AND {}").format(context.in_part, is_new)
        elif context.marked:
            where += SQL(" AND {} IS DISTINCT FROM 'new'").format(mark(context, "generation"))
        ids = random_ids(context, where, limit, seed)
        if ids is not None:
            return ids
        query = SQL("SELECT {} FROM {} WHERE {} ORDER BY md5({} || {}) LIMIT {}").format(
            key(context),
            source(context),
            where,
            as_text(key(context)),
            Literal(str(seed)),
            Literal(limit),
        )
        return [row[0] for row in context.work.rows_of(query)]

    # --- rows and their columns ----------------------------------------------------------------

    def _selected(self, new: bool, old: bool = True) -> Composable:
        context, columns = self._context, self._context.columns
        seen = known_fingerprint(context) if context.marked else SQL("NULL::bytea")
        there = context.beside and context.marked
        if not old:  # nothing is left to compute a fingerprint from here
            seen = SQL("coalesce({}, {})").format(seen, fingerprint(context))
        parts = [
            key(context),
            bytes_of(context, columns.old) if old else SQL("NULL::bytea"),
            input_of(context),
            mark_or_null(context, "generation"),
            mark_or_null(context, "model"),
            seen,
            version(context),
            SQL("{} IS NOT NULL").format(marked_key(context)) if there else SQL("true"),
        ]
        if new:
            parts.append(bytes_of(context, columns.new))
        return SQL(", ").join(parts)

    def _rows(self, records: Sequence[Any], new: bool) -> Rows:
        context, columns = self._context, self._context.columns
        values: list[Any] = list(zip(*records, strict=True)) if records else [[]] * 9
        return Rows(
            ids=objects(values[0]),
            old=as_matrix(values[1], context.dim(columns.old)),
            inputs=objects(values[2]),
            generation=objects(values[3]),
            model=objects(values[4]),
            seen=as_seen(values[5], values[6], values[1], values[2]),
            new=as_matrix(values[8], context.dim(columns.new)) if new else None,
        )


def _by_index(query: Composed, values: Sequence[Any] = ()) -> Callable[[Cursor], list[Any]]:
    def ask(cursor: Cursor) -> list[Any]:
        cursor.connection.execute(BY_INDEX)
        return list(cursor.execute(query, values or None).fetchall())

    return ask
