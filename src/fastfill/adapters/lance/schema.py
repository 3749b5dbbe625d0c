"""The columns of a LanceDB table: what there is, what a migration adds and takes away."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from fastfill.adapters.lance.arrow import MARK_TYPES
from fastfill.adapters.lance.context import DOCUMENTS, LanceContext
from fastfill.adapters.lance.documents import LanceDocuments
from fastfill.adapters.lance.fragment_sweep import FragmentSweeps
from fastfill.adapters.lance.search import index_distance, indexed_columns
from fastfill.gallery import Columns, Description
from fastfill.gallery.base import batch_rows

BATCH_NUMBERS = 1 << 24  # floats in the old vectors of a batch: 64 MiB


class LanceSchema:
    """Adding and dropping columns is a matter of milliseconds: no row is written."""

    def __init__(
        self, context: LanceContext, documents: LanceDocuments, sweeps: FragmentSweeps
    ) -> None:
        self._context, self._documents, self._sweeps = context, documents, sweeps

    @property
    def added(self) -> tuple[str, ...]:
        """The vector, the marks, the place of a row, and the table of documents."""
        return (*self._context.added, DOCUMENTS)

    def occupied(self) -> tuple[str, ...]:
        """Those of the `added` names that exist already."""
        have = set(self._context.names())
        columns = tuple(name for name in self._context.added if name in have)
        return (*columns, DOCUMENTS) if self._documents.foreign() else columns

    def bind(self, columns: Columns) -> None:
        """Say which columns hold what."""
        self._context.use_columns(columns, self._context.names())

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        context = self._context
        names, new = tuple(context.names()), context.columns.new
        old = context.columns.old if context.columns.old in names else new
        return Description(
            count=context.table.count_rows,
            old_dim=context.dim(old),
            new_dim=context.dim(new) if new in names else None,
            distance=index_distance(context.table, old),
            columns=names,
            # A merge reads all the ids of the table, so that few large ones are cheaper.
            batch=batch_rows(BATCH_NUMBERS, context.dim(old), least=4_096, most=65_536),
            beside=False,  # both are this process's own work, on all of its cores
            # A search by an index is the work of one core; one that reads every vector takes all
            # cores, and two of those at once would hold twice the memory.
            parallel={context.columns.old, new} <= indexed_columns(context.table),
        )

    def expand(self, dim: int) -> None:
        """Add the vector column and the marks, as nulls."""
        context = self._context
        context.require_dim(dim, context.dim(context.columns.new))
        kinds = [pa.list_(pa.float32(), dim), *MARK_TYPES, pa.uint64()]
        have = set(context.names())
        fields = [
            pa.field(name, kind)
            for name, kind in zip(context.added, kinds, strict=True)
            if name not in have
        ]
        if fields:
            context.connection.commit(lambda: context.table.add_columns(fields))

    def contract(self) -> None:
        """Drop the added columns."""
        self._drop(self._context.added)

    def drop_old(self) -> None:
        """Drop the old vectors and the marks."""
        context = self._context
        self._drop((context.columns.old, *context.marks, context.place))

    def _drop(self, names: Sequence[str]) -> None:
        context = self._context
        there = [name for name in names if name in context.names()]
        if there:
            context.connection.commit(lambda: context.table.drop_columns(there))
        self._sweeps.forget()
