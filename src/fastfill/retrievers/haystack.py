"""A gallery as a retriever of Haystack (extra `haystack`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastfill.errors import MissingExtraError
from fastfill.gallery import Gallery
from fastfill.retrievers.answers import as_columns, find_answers

try:
    from haystack import Document, component
except ImportError as error:
    raise MissingExtraError("haystack-ai", "haystack", "HaystackRetriever") from error


@component
class HaystackRetriever:
    """A component that finds documents in a gallery, by the model or the models that serve now.

    `top_k` documents that equal `filter`; `text` is the column of their text (by default the
    gallery's input), `metadata_columns` come with them, beside `id` and `generation`.

    >>> from fastfill.gallery import MemoryStore
    >>> rows = {"id": [1, 2], "text": ["a", "b"], "vector": [[1.0, 0.0], [0.0, 1.0]]}
    >>> gallery = Gallery(
    ...     MemoryStore(rows), input="text", distance="l2", query_old=lambda texts: [[0.0, 1.0]]
    ... )
    >>> [each.content for each in HaystackRetriever(gallery).run("b?", top_k=1)["documents"]]
    ['b']
    """

    def __init__(
        self,
        gallery: Gallery,
        *,
        top_k: int = 10,
        filter: Mapping[str, Any] | None = None,
        text: str | None = None,
        metadata_columns: Sequence[str] = (),
    ) -> None:
        self._gallery, self._top_k, self._filter = gallery, top_k, filter
        self._columns = as_columns(text, metadata_columns)

    @component.output_types(documents=list[Document])
    def run(self, query: str, top_k: int | None = None) -> dict[str, list[Document]]:
        """The documents for one query."""
        answers = find_answers(
            self._gallery,
            query,
            self._top_k if top_k is None else top_k,
            filter=self._filter,
            columns=self._columns,
        )
        return {
            "documents": [
                Document(
                    id=answer.id, content=answer.text, meta=answer.metadata, score=answer.score
                )
                for answer in answers
            ]
        }
