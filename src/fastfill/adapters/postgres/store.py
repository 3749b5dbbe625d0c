"""`PostgresStore`: the parts put together."""

from __future__ import annotations

from psycopg.sql import SQL

from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.documents import PostgresDocuments
from fastfill.adapters.postgres.indexes import statements as index_statements
from fastfill.adapters.postgres.inspection import inspect_table
from fastfill.adapters.postgres.layout import choose_layout
from fastfill.adapters.postgres.reads import PostgresReads
from fastfill.adapters.postgres.row_counts import RowCounts
from fastfill.adapters.postgres.schema import PostgresSchema
from fastfill.adapters.postgres.search import PostgresSearch
from fastfill.adapters.postgres.side_sweep import SideSweep
from fastfill.adapters.postgres.side_table import create_table, drop_table, write_marks
from fastfill.adapters.postgres.sql import add_columns, drop_columns, update, vector_index
from fastfill.adapters.postgres.swaps import PostgresSwaps
from fastfill.adapters.postgres.write_notes import check_noting, note_writes, stop_noting
from fastfill.adapters.postgres.writes import COUNTED, PostgresWrites
from fastfill.features import Distance
from fastfill.gallery import ComposedStore, Inspection, LayoutChoice, Marks


class PostgresStore(ComposedStore):
    """One vector column of one table."""

    def __init__(self, conninfo: str, table: str, column: str, schema: str | None = None) -> None:
        context = PostgresContext(conninfo, table, column, schema)
        documents = PostgresDocuments(context)
        if not documents.exist():  # after `complete --drop-old` the column is gone
            context.require_column(column, context.types)
        row_counts = RowCounts(context, documents)
        side_sweep = SideSweep(context, documents)
        reads = PostgresReads(context, row_counts, side_sweep)
        super().__init__(
            context,
            documents=documents,
            schema=PostgresSchema(context, documents, row_counts, side_sweep),
            reads=reads,
            writes=PostgresWrites(context, row_counts),
            search=PostgresSearch(context),
            swaps=PostgresSwaps(context),
        )
        self._postgres, self._postgres_reads = context, reads

    def statements(self, dim: int, distance: Distance) -> list[str]:
        """The statements that a whole migration runs, for people to read first."""
        context = self._postgres
        context.look()
        connection = context.work.open()
        beside, marks = context.beside, Marks("aligned", "MODEL")
        write = (write_marks if beside else update)(context, marks, skip=False)
        steps = [
            create_table(context, dim) if beside else add_columns(context, dim),
            SQL(COUNTED).format(write),
            *index_statements(context).values(),
            vector_index(context, "new", distance, dim),
            drop_table(context) if beside else drop_columns(context, context.added),  # a rollback
        ]
        return [step.as_string(connection) for step in steps]

    def marks_in_use(self) -> set[tuple[str, str]] | None:
        """Pairs of generation and model that rows have, where an index tells."""
        return self._postgres_reads.marks_in_use()

    def choose_layout(self) -> LayoutChoice:
        """What suits the table as it is; changes nothing."""
        return choose_layout(self._postgres)

    def check_noting(self) -> None:
        """Refuse where this user may not put a trigger on the owner's table."""
        check_noting(self._postgres)

    def note_writes(self) -> None:
        """By a trigger, in the layout `side`; in `columns` an index tells without."""
        if self._postgres.beside:
            note_writes(self._postgres)

    def stop_noting(self) -> None:
        """Drop the trigger and the notes, where there are any."""
        if self._postgres.beside:
            stop_noting(self._postgres)

    def inspect(self, sample: int, seed: int) -> Inspection:
        """Look at the column, and draw up to `sample` random rows; changes nothing."""
        return inspect_table(self._postgres, sample, seed)
