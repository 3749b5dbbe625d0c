"""A gallery as a retriever of LangChain (extra `langchain`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastfill.errors import MissingExtraError
from fastfill.gallery import Gallery
from fastfill.retrievers.answers import as_columns, find_answers

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as error:
    raise MissingExtraError("langchain-core", "langchain", "LangChainRetriever") from error


class LangChainRetriever(BaseRetriever):
    """Documents from a gallery, by the model or the models that serve now.

    `k` documents that equal `filter`; `text` is the column of their text (by default the gallery's
    input), `metadata_columns` come with them, beside `id`, `score` and `generation`.

    >>> from fastfill.gallery import MemoryStore
    >>> rows = {"id": [1, 2], "text": ["a", "b"], "vector": [[1.0, 0.0], [0.0, 1.0]]}
    >>> gallery = Gallery(
    ...     MemoryStore(rows), input="text", distance="l2", query_old=lambda texts: [[0.0, 1.0]]
    ... )
    >>> [each.page_content for each in LangChainRetriever(gallery=gallery, k=1).invoke("b?")]
    ['b']
    """

    gallery: Gallery
    k: int = 10
    filter: Mapping[str, Any] | None = None
    text: str | None = None
    metadata_columns: Sequence[str] = ()

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        columns = as_columns(self.text, self.metadata_columns)
        answers = find_answers(self.gallery, query, self.k, filter=self.filter, columns=columns)
        return [
            Document(
                page_content=answer.text,
                id=answer.id,
                metadata={**answer.metadata, "score": answer.score},
            )
            for answer in answers
        ]
