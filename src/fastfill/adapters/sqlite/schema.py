"""The columns of a table: what there is, what a migration adds and takes away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fastfill.adapters.sqlite.context import ROWID, SqliteContext
from fastfill.adapters.sqlite.documents import DOCUMENTS, SqliteDocuments
from fastfill.adapters.sqlite.sql import add_columns, drop_columns, index_name, quoted
from fastfill.errors import StoreError
from fastfill.features import Distance
from fastfill.gallery import MARKS, Columns, Description

BATCH = 8_192  # rows that are read and aligned together
METRICS: dict[str, Distance] = {"l2": "l2", "cosine": "cosine"}  # as `vec0` calls them


class SqliteSchema:
    """Added columns are nullable, so that adding them rewrites no row."""

    def __init__(self, context: SqliteContext, documents: SqliteDocuments) -> None:
        self._context, self._documents = context, documents

    @property
    def added(self) -> tuple[str, ...]:
        """The vector, the marks, and tables of our own."""
        apart = (self._context.side_table,) if self._context.beside else ()
        return (*self._context.columns.added, *apart, DOCUMENTS)

    def occupied(self) -> tuple[str, ...]:
        """Those of the `added` names that exist already; SQLite does not tell A from a."""
        context = self._context
        context.look()
        have = {name.lower() for name in context.names}
        taken = tuple(name for name in context.columns.added if name.lower() in have)
        if context.columns_of(context.side_table):
            taken = (*taken, context.side_table)
        return (*taken, DOCUMENTS) if self._documents.foreign() else taken

    # --- the id --------------------------------------------------------------------------------

    def bind(self, columns: Columns) -> None:
        """Say which columns hold what; the id must be unique and indexed."""
        context = self._context
        have = (*context.types, *([ROWID] if self._has_rowid() else []))
        context.require_column(columns.id, have)
        self._check_key(columns.id)
        context.use_columns(columns, have)

    def _has_rowid(self) -> bool:
        """Is a row known by its number as well?"""
        query = "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?"
        context = self._context
        return context.kind != "view" and not context.work.rows_of(query, [context.table])[0][0]

    def _check_key(self, name: str) -> None:
        """Refuse ids that are neither numbers nor texts, or that an ordinary table may repeat."""
        context, key, table = self._context, quoted(name), quoted(self._context.table)
        if context.kind == "table" and not self._is_unique(name):
            raise StoreError(
                f"{context.name}: column '{name}' has no unique index. Name the primary key with "
                f"--id, or run CREATE UNIQUE INDEX on it; --id {ROWID} names the row's number."
            )
        kinds = context.work.rows_of(f"SELECT typeof(t.{key}) FROM {table} AS t LIMIT 1")
        if kinds and kinds[0][0] not in ("integer", "text"):
            raise StoreError(
                f"{context.name}: column '{name}' holds a {kinds[0][0]}. Ids must be numbers "
                "without a fraction, or texts: name another column with --id."
            )

    def _is_unique(self, name: str) -> bool:
        work, table = self._context.work, self._context.table
        keys = work.rows_of("SELECT name FROM pragma_table_info(?) WHERE pk > 0", [table])
        if name == ROWID or keys == [(name,)]:
            return True
        found = work.rows_of(
            'SELECT 1 FROM pragma_index_list(?) AS l WHERE l."unique" AND NOT l.partial AND '
            "(SELECT group_concat(i.name, char(0)) FROM pragma_index_info(l.name) AS i) = ?",
            [table, name],
        )
        return bool(found)

    # --- what is there -------------------------------------------------------------------------

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        context = self._context
        context.look()
        query = f"SELECT count(*) FROM {quoted(context.table)} AS t WHERE {context.in_part}"
        new = context.columns.new
        return Description(
            count=lambda: int(context.work.rows_of(query)[0][0]),
            old_dim=context.dim(context.columns.old),
            new_dim=context.dim(new) if new in context.names else None,
            distance=self._distance(),
            columns=context.names,
            batch=BATCH,
            parallel=True,  # SQLite computes without Python's lock
        )

    def _distance(self) -> Distance | None:
        """The distance that a `vec0` table was made for."""
        context = self._context
        if context.kind != "virtual" or context.columns.old not in context.types:
            return None
        query = "SELECT sql FROM sqlite_schema WHERE name = ?"
        text = str(context.work.rows_of(query, [context.table])[0][0])
        field = rf"\b{re.escape(context.columns.old)}\W+float\s*\[\d+\]([^,)]*)"
        found = re.search(field, text, re.I)
        metric = re.search(r"distance_metric\s*=\s*(\w+)", found.group(1), re.I) if found else None
        return METRICS.get(metric.group(1).lower() if metric else "l2")

    # --- expand and contract -------------------------------------------------------------------

    def expand(self, dim: int) -> None:
        """Add the vector column, the marks and their index, in one transaction."""
        context = self._context
        context.look()
        context.require_dim(dim, context.dim(context.columns.new))
        if context.kind != "table":
            self._check_ids()
        self._run(add_columns(context, dim))

    def _check_ids(self) -> None:
        """Refuse ids that a view repeats or does not have: no index keeps them apart."""
        context = self._context
        query = f"SELECT count(*), count(DISTINCT {context.id}) "
        query += f"FROM {quoted(context.table)} AS t WHERE {context.in_part}"
        ((rows, ids),) = context.work.rows_of(query)
        if rows != ids:
            raise StoreError(
                f"{context.name}: column '{context.key}' has {ids:,} different values in {rows:,} "
                "rows. Name one with --id that tells every row from the others."
            )

    def contract(self) -> None:
        """Drop the added columns, or the table of their own."""
        context = self._context
        context.look()
        if context.side_types:
            self._run([f"DROP TABLE IF EXISTS {quoted(context.side_table)}"])
        else:
            self._drop(context.table, context.columns.added)

    def drop_old(self) -> None:
        """Drop the old vectors and the marks."""
        context, columns = self._context, self._context.columns
        context.check_drop_old()
        context.look()
        self._drop(context.home, [columns.mark(name) for name in MARKS])
        self._drop(context.table, [columns.old])

    def _drop(self, table: str, names: Sequence[str]) -> None:
        """One column in each transaction: all of them would keep other writers waiting longer."""
        self._run([f"DROP INDEX IF EXISTS {index_name(self._context, table)}"])
        for step in drop_columns(self._context, table, names):
            self._run([step])

    def _run(self, steps: Sequence[str]) -> None:
        self._context.work.write(lambda cursor: [cursor.execute(step) for step in steps])
        self._context.look()
