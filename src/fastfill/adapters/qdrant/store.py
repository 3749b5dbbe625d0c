"""`QdrantStore`: the parts put together."""

from __future__ import annotations

from collections.abc import Iterator

from fastfill.adapters.qdrant.connection import QdrantConnection
from fastfill.adapters.qdrant.context import QdrantContext
from fastfill.adapters.qdrant.documents import QdrantDocuments
from fastfill.adapters.qdrant.inspection import inspect_collection
from fastfill.adapters.qdrant.reads import QdrantReads
from fastfill.adapters.qdrant.schema import QdrantSchema
from fastfill.adapters.qdrant.search import QdrantSearch
from fastfill.adapters.qdrant.swaps import QdrantSwaps
from fastfill.adapters.qdrant.writes import QdrantWrites
from fastfill.gallery import ComposedStore, Inspection, LateWrites, Rows, Settled


class QdrantStore(ComposedStore):
    """One vector of one collection."""

    def __init__(
        self, connection: QdrantConnection, collection: str, vector: str | None = None
    ) -> None:
        context = QdrantContext(connection, collection, vector)
        documents = QdrantDocuments(context)
        swaps, reads = QdrantSwaps(context, documents), QdrantReads(context)
        context.check_vector(dropped=documents.exist())
        super().__init__(
            context,
            documents=documents,
            schema=QdrantSchema(context, documents),
            reads=reads,
            writes=QdrantWrites(context),
            search=QdrantSearch(context),
            swaps=swaps,
        )
        self._qdrant, self._qdrant_swaps, self._qdrant_reads = context, swaps, reads

    def inspect(self, sample: int, seed: int) -> Inspection:
        """Look at the vector, and draw up to `sample` points, others each time."""
        return inspect_collection(self._qdrant, sample)

    def can_sweep_quickly(self) -> bool:
        """Can points that others have written as a whole be told by a filter?"""
        return self._qdrant_reads.can_sweep_quickly()

    def quick_sweep(self, settled: Settled, *, batch: int) -> Iterator[Rows]:
        """Those points."""
        return self._qdrant_reads.quick_sweep(settled, batch=batch)

    def late_writes(self) -> tuple[LateWrites, ...]:
        """What others wrote during a cut-over, and was left as it is."""
        return self._qdrant_swaps.late_writes()
