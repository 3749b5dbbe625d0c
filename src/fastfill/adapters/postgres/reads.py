"""Reading rows of a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from psycopg.sql import SQL, Composable, Identifier, Literal

from fastfill.adapters.postgres.binary import as_matrix, as_seen
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.sql import (
    among,
    among_part,
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
    not_right,
)
from fastfill.gallery import Generation, Id, Picked, Rows, Settled, objects
from fastfill.gallery.base import ids_of


class PostgresReads:
    """Every page is a statement of its own: no long transaction that would hold back VACUUM."""

    def __init__(self, context: PostgresContext) -> None:
        self._context = context

    # --- many rows -----------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""
        context, where = self._context, not_right(self._context, settled, changed)
        # Where there is none one pass over the table tells: pages are in the order of the ids,
        # and would be looked for by the index, row by row.
        query = SQL("SELECT 1 FROM {} t WHERE {} AND {} LIMIT 1").format(
            context.target, context.in_part, where
        )
        if context.work.rows_of(query):
            yield from self._pages(where, batch, new)

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation, in the order of their ids."""
        where: Composable = SQL("true")
        if generation is not None:
            where = SQL("{} = {}").format(mark(self._context, "generation"), Literal(generation))
        yield from self._pages(where, batch, new)

    def _pages(self, where: Composable, batch: int, new: bool) -> Iterator[Rows]:
        context, order = self._context, column(self._context.columns.id)
        query = SQL("SELECT {} FROM {} t WHERE {} AND {} AND {} ORDER BY {} LIMIT {}")
        after: Composable = SQL("true")
        while True:
            wanted = (context.in_part, where, after)
            step = query.format(self._selected(new), context.target, *wanted, order, Literal(batch))
            records = context.work.rows_of(step)
            if records:
                yield self._rows(records, new)
            if len(records) < batch:
                return
            after = SQL("{} > {}::{}").format(order, Literal(records[-1][0]), key_type(context))

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model)."""
        context = self._context
        context.look()
        query = SQL("SELECT {}, {}, count(*) FROM {} t WHERE {} GROUP BY 1, 2").format(
            mark_or_null(context, "generation"),
            mark_or_null(context, "model"),
            context.target,
            context.in_part,
        )
        rows = context.work.rows_of(query)
        counts = {(generation, model): int(number) for generation, model, number in rows}
        return counts if context.marked else counts or {(None, None): 0}

    # --- some rows -----------------------------------------------------------------------------

    def read(self, rows: Sequence[Id] | Picked, *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now; without `old` their old vectors stay where they are."""
        context, ids = self._context, ids_of(rows)
        query = SQL("SELECT {} FROM {} t WHERE {}").format(
            self._selected(new, old), context.target, among_part(context)
        )
        return self._rows(context.work.rows_of(query, [ids]) if ids else [], new)

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """One column of these rows."""
        context = self._context
        context.require_column(column, context.types)
        query = SQL("SELECT {}, t.{} FROM {} t WHERE {}").format(
            key(context), Identifier(column), context.target, among_part(context)
        )
        return dict(context.work.rows_of(query, [list(ids)]))

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> Picked:
        """Rows of a generation by falling priority, from an index of them."""
        context = self._context
        query = SQL(
            "SELECT {} FROM {} t WHERE {} = %s AND {} AND NOT ({}) "
            "ORDER BY {} DESC NULLS LAST LIMIT %s"
        ).format(
            key(context),
            context.target,
            mark(context, "generation"),
            in_part_beside_values(context),
            among(context),
            mark(context, "priority"),
        )
        rows = context.work.rows_of(query, [generation, list(exclude), limit])
        return Picked(objects([row[0] for row in rows]))

    def sample(self, limit: int, seed: int) -> list[Id]:
        """Random ids of rows that can be paired and are not new."""
        context, columns = self._context, self._context.columns
        where = SQL("{} AND {} IS NOT NULL AND {} IS NOT NULL").format(
            context.in_part, column(columns.old), column(columns.input or "")
        )
        if context.marked:
            where += SQL(" AND {} IS DISTINCT FROM 'new'").format(mark(context, "generation"))
        query = SQL("SELECT {} FROM {} t WHERE {} ORDER BY md5({} || {}) LIMIT {}").format(
            key(context),
            context.target,
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
        if not old:  # nothing is left to compute a fingerprint from here
            seen = SQL("coalesce({}, {})").format(seen, fingerprint(context))
        parts = [
            key(context),
            bytes_of(context, columns.old) if old else SQL("NULL::bytea"),
            input_of(context),
            mark_or_null(context, "generation"),
            mark_or_null(context, "model"),
            seen,
            SQL("t.xmin::text"),
        ]
        if new:
            parts.append(bytes_of(context, columns.new))
        return SQL(", ").join(parts)

    def _rows(self, records: Sequence[Any], new: bool) -> Rows:
        context, columns = self._context, self._context.columns
        values: list[Any] = list(zip(*records, strict=True)) if records else [[]] * 8
        return Rows(
            ids=objects(values[0]),
            old=as_matrix(values[1], context.dim(columns.old)),
            inputs=objects(values[2]),
            generation=objects(values[3]),
            model=objects(values[4]),
            seen=as_seen(values[5], values[6], values[1], values[2]),
            new=as_matrix(values[7], context.dim(columns.new)) if new else None,
        )
