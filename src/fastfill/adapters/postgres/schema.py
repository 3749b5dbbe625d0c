"""The columns of a table: what there is, what a migration adds and takes away."""

from __future__ import annotations

from psycopg.sql import SQL, Literal

from fastfill.adapters.postgres.connection import raw
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.documents import DOCUMENTS, PostgresDocuments
from fastfill.adapters.postgres.layout import check_kind
from fastfill.adapters.postgres.row_counts import RowCounts
from fastfill.adapters.postgres.search import index_distance
from fastfill.adapters.postgres.side_sweep import SideSweep
from fastfill.adapters.postgres.side_table import create_table, drop_table, refuse_ending
from fastfill.adapters.postgres.sql import add_columns, drop_columns
from fastfill.adapters.postgres.write_notes import stop_noting
from fastfill.errors import StoreError
from fastfill.gallery import MARKS, Columns, Description

BATCH = 4_096  # rows of an UPDATE: short transactions, and still few of them


class PostgresSchema:
    """Adding and dropping nullable columns changes the catalogue alone."""

    def __init__(
        self,
        context: PostgresContext,
        documents: PostgresDocuments,
        row_counts: RowCounts,
        side_sweep: SideSweep,
    ) -> None:
        self._context, self._documents = context, documents
        self._row_counts, self._side_sweep = row_counts, side_sweep

    @property
    def added(self) -> tuple[str, ...]:
        """The vector, the marks, the transaction of a row, and the tables."""
        side = (self._context.side_name,) if self._context.beside else ()
        return (*self._context.added, *side, DOCUMENTS)

    def occupied(self) -> tuple[str, ...]:
        """Those of the `added` names that exist already."""
        context = self._context
        context.look()
        columns = tuple(name for name in context.added if name in context.types)
        beside = (context.side_name, context.notes_name) if context.beside else ()
        tables = tuple(name for name in beside if context.columns_of(name))
        documents = (DOCUMENTS,) if self._documents.foreign() else ()
        return (*columns, *tables, *documents)

    def bind(self, columns: Columns) -> None:
        """Say which columns hold what; the id must be unique and indexed."""
        context = self._context
        context.require_column(columns.id, context.types)
        unique = context.work.rows_of(
            "SELECT 1 FROM pg_index i JOIN pg_attribute a "
            "ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
            "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indnkeyatts = 1 "
            "AND i.indpred IS NULL AND a.attname = %s",
            [context.regclass(context.table), columns.id],
        )
        if not unique:
            check_kind(context)
            raise StoreError(
                f"{context.name}: column '{columns.id}' has no unique index. Name the primary key "
                "with --id, or run CREATE UNIQUE INDEX CONCURRENTLY on it."
            )
        self._check_values(columns)
        context.use_columns(columns, context.types)
        context.look()

    def _check_values(self, columns: Columns) -> None:
        """Refuse a value that a column of `columns.where` cannot hold."""
        for name, value in columns.where:
            self._context.require_column(name, self._context.types)
            kind = raw(self._context.types[name])
            self._context.work.rows_of(SQL("SELECT {}::{}").format(Literal(value), kind))

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        context = self._context
        context.look()
        query = SQL("SELECT count(*) FROM {} t WHERE {}").format(context.target, context.in_part)
        new = context.columns.new
        return Description(
            count=lambda: int(context.work.rows_of(query)[0][0]),
            old_dim=context.dim(context.columns.old),
            new_dim=context.dim(new) if new in context.types else None,
            distance=index_distance(context, "old"),
            columns=tuple(context.types),
            batch=BATCH,
            parallel=True,  # a process of the server for each
        )

    def expand(self, dim: int) -> None:
        """Add the vector column and the marks, or the table of them."""
        context = self._context
        context.look()
        context.require_dim(dim, context.dim(context.columns.new))
        add = create_table if context.beside else add_columns
        context.work.change_schema(lambda: [add(context, dim)])
        context.look()

    def contract(self) -> None:
        """Drop the added columns, or the table of them; their indexes go with them."""
        context = self._context
        if context.beside:
            stop_noting(context)
            context.work.change_schema(lambda: [drop_table(context)])
            self._forget()
        else:
            self._drop(*context.added)

    def drop_old(self) -> None:
        """Drop the old vectors and the marks; the owner's table is not touched where these are
        beside it."""
        columns = self._context.columns
        refuse_ending(self._context)
        self._drop(columns.old, *(columns.mark(name) for name in MARKS), self._context.xid)

    def _drop(self, *names: str) -> None:
        self._context.work.change_schema(lambda: [drop_columns(self._context, names)])
        self._forget()

    def _forget(self) -> None:
        self._context.look()
        self._row_counts.forget()
        self._side_sweep.forget()
