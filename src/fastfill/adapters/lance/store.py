"""`LanceStore`: the parts put together."""

from __future__ import annotations

from fastfill.adapters.lance.context import LanceContext
from fastfill.adapters.lance.documents import LanceDocuments
from fastfill.adapters.lance.fragment_sweep import FragmentSweeps
from fastfill.adapters.lance.inspection import inspect_table, repeated_ids
from fastfill.adapters.lance.reads import LanceReads
from fastfill.adapters.lance.schema import LanceSchema
from fastfill.adapters.lance.search import LanceSearch
from fastfill.adapters.lance.swaps import LanceSwaps
from fastfill.adapters.lance.writes import LanceWrites
from fastfill.gallery import ComposedStore, Inspection, RepeatedIds


class LanceStore(ComposedStore):
    """One vector column of one LanceDB table."""

    def __init__(self, path: str, table: str, column: str) -> None:
        context = LanceContext(path, table, column)
        documents = LanceDocuments(context)
        sweeps = FragmentSweeps(context, documents)
        reads = LanceReads(context, sweeps)
        super().__init__(
            context,
            documents=documents,
            schema=LanceSchema(context, documents, sweeps),
            reads=reads,
            writes=LanceWrites(context),
            search=LanceSearch(context),
            swaps=LanceSwaps(context, reads),
        )
        self._lance = context

    def inspect(self, sample: int, seed: int) -> Inspection:
        """Look at the column, and draw up to `sample` random rows; changes nothing."""
        return inspect_table(self._lance, sample, seed)

    def repeated_ids(self) -> RepeatedIds:
        """LanceDB takes any row, whatever its id is: one look at that column."""
        return repeated_ids(self._lance)
