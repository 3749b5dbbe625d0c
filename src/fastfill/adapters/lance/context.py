"""What the parts of a LanceDB store share: the folder, the table, and the names of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fastfill.adapters.lance.connection import LanceConnection
from fastfill.adapters.lance.deadline import READ, UnansweredError, answered_within
from fastfill.errors import StoreError
from fastfill.gallery import MARKS
from fastfill.gallery.base import StoreContext

DOCUMENTS = "fastfill"  # the table of documents, for all migrations of a folder
ALL = 2**31 - 1  # LanceDB wants a limit; this is none


class LanceContext(StoreContext):
    """One vector column of one table."""

    def __init__(self, path: str, table: str, column: str) -> None:
        super().__init__(f"lance://{path}#{table}.{column}", column)
        self.connection = LanceConnection(path, self)
        self.table = self.connection.open(table)
        self.table_name = table
        self.path = path
        if column in self.names():
            self.dim(column)
        elif not self._may_be_dropped():
            self.require_column(column, self.names())

    def _may_be_dropped(self) -> bool:
        # After `complete --drop-old` the address of the migration is still the old column's.
        return f"{self.column}_new" in self.names() or DOCUMENTS in self.connection.table_names()

    def names(self) -> list[str]:
        """The columns of the table."""
        return list(self.table.schema.names)

    def dim(self, column: str) -> int:
        """Dimensions of a vector column; 0 where there is no such column."""
        schema = self.table.schema
        if column not in schema.names:
            return 0
        kind = schema.field(column).type
        if not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
            raise StoreError(f"{self.name}: column '{column}' holds {kind}, not vectors.")
        return int(kind.list_size)

    # --- names of columns ----------------------------------------------------------------------

    @property
    def marks(self) -> tuple[str, ...]:
        """The columns of the marks."""
        return tuple(self.columns.mark(name) for name in MARKS)

    @property
    def place(self) -> str:
        """The column of where a row lay before it was written, which the write compared."""
        return self.columns.mark("place")

    @property
    def added(self) -> tuple[str, ...]:
        """Every column that a migration adds."""
        return (*self.columns.added, self.place)

    @property
    def replaced(self) -> tuple[str, ...]:
        """What a write replaces without a look: the added columns but generation and model."""
        return (self.columns.new, *self.marks[2:], self.place)

    # --- rows ----------------------------------------------------------------------------------

    def scan(self, where: str | None, names: list[str], rows: int) -> Iterator[Any]:
        """Arrow tables of at most `rows` rows, of the version at the first step."""
        with self.connection.errors():
            blocks, block = self._begin(where, names, max(rows, 1))
            while block is not None:
                if block.num_rows:
                    yield pa.Table.from_batches([block]).select(names)
                with answered_within(READ):
                    block = next(blocks, None)

    def _begin(self, where: str | None, names: list[str], rows: int) -> tuple[Iterator[Any], Any]:
        """The blocks of a query and the first of them; asked once more where no answer came."""
        query = self.table.search().select(names).limit(ALL)
        if where:
            query = query.where(where)

        def first() -> tuple[Iterator[Any], Any]:
            with answered_within(READ):
                blocks = iter(query.to_batches(rows))
                return blocks, next(blocks, None)

        try:
            return first()
        except UnansweredError:
            return first()
