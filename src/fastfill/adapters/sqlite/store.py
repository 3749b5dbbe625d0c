"""`SqliteStore`: the parts put together."""

from __future__ import annotations

from fastfill.adapters.sqlite.context import SqliteContext
from fastfill.adapters.sqlite.documents import SqliteDocuments
from fastfill.adapters.sqlite.inspection import inspect_table, repeated_ids
from fastfill.adapters.sqlite.reads import SqliteReads
from fastfill.adapters.sqlite.schema import SqliteSchema
from fastfill.adapters.sqlite.search import SqliteSearch
from fastfill.adapters.sqlite.sql import add_columns, write_row
from fastfill.adapters.sqlite.swaps import SqliteSwaps
from fastfill.adapters.sqlite.writes import SqliteWrites
from fastfill.features import Distance
from fastfill.gallery import ComposedStore, Inspection, RepeatedIds


class SqliteStore(ComposedStore):
    """One vector column of one table, virtual table or view."""

    def __init__(self, path: str, table: str, column: str) -> None:
        context = SqliteContext(path, table, column)
        documents = SqliteDocuments(context)
        if not documents.exist():  # after `complete --drop-old` the column is gone
            context.require_column(column, context.types)
        reads = SqliteReads(context)
        super().__init__(
            context,
            documents=documents,
            schema=SqliteSchema(context, documents),
            reads=reads,
            writes=SqliteWrites(context),
            search=SqliteSearch(context),
            swaps=SqliteSwaps(context, reads),
        )
        self._sqlite = context

    def statements(self, dim: int, distance: Distance) -> list[str]:
        """The statements that add columns and write a row, for people to read first."""
        context = self._sqlite
        context.look()
        steps = add_columns(context, dim)
        home = context.side_types if context.beside else context.types
        home.update(dict.fromkeys(context.columns.added, ""))  # as it is when rows are written
        steps.append(write_row(context))
        context.look()
        return steps

    def inspect(self, sample: int, seed: int) -> Inspection:
        """Look at the column, and draw up to `sample` random rows; changes nothing."""
        return inspect_table(self._sqlite, sample, seed)

    def repeated_ids(self) -> RepeatedIds:
        """A table has an index that keeps ids apart; those of a view are looked at."""
        return repeated_ids(self._sqlite)
