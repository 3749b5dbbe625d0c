"""`ChromaStore`: the parts put together."""

from __future__ import annotations

from fastfill.adapters.chroma.connection import ChromaConnection
from fastfill.adapters.chroma.context import ChromaContext
from fastfill.adapters.chroma.documents import ChromaDocuments
from fastfill.adapters.chroma.inspection import inspect_collection
from fastfill.adapters.chroma.reads import ChromaReads
from fastfill.adapters.chroma.schema import ChromaSchema
from fastfill.adapters.chroma.search import ChromaSearch
from fastfill.adapters.chroma.swaps import ChromaSwaps
from fastfill.adapters.chroma.writes import ChromaWrites
from fastfill.gallery import ComposedStore, Inspection


class ChromaStore(ComposedStore):
    """The vectors of one collection."""

    def __init__(self, connection: ChromaConnection, collection: str) -> None:
        context = ChromaContext(connection, collection)
        documents = ChromaDocuments(context)
        context.check_collection(dropped=documents.exist())
        reads = ChromaReads(context)
        super().__init__(
            context,
            documents=documents,
            schema=ChromaSchema(context, documents),
            reads=reads,
            writes=ChromaWrites(context),
            search=ChromaSearch(context),
            swaps=ChromaSwaps(context, reads),
        )
        self._chroma = context

    def inspect(self, sample: int, seed: int) -> Inspection:
        """Look at the vectors, and draw up to `sample` random records."""
        return inspect_collection(self._chroma, sample, seed)
