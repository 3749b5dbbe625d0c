"""A gallery as a retriever of LlamaIndex (extra `llamaindex`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastfill.errors import MissingExtraError
from fastfill.gallery import Gallery
from fastfill.retrievers.answers import as_columns, find_answers

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError as error:
    raise MissingExtraError("llama-index-core", "llamaindex", "LlamaIndexRetriever") from error


class LlamaIndexRetriever(BaseRetriever):
    """Nodes from a gallery, by the model or the models that serve now.

    `k` nodes that equal `filter`; `text` is the column of their text (by default the gallery's
    input), `metadata_columns` come with them, beside `id` and `generation`.

    >>> from fastfill.gallery import MemoryStore
    >>> rows = {"id": [1, 2], "text": ["a", "b"], "vector": [[1.0, 0.0], [0.0, 1.0]]}
    >>> gallery = Gallery(
    ...     MemoryStore(rows), input="text", distance="l2", query_old=lambda texts: [[0.0, 1.0]]
    ... )
    >>> [each.node.text for each in LlamaIndexRetriever(gallery, k=1).retrieve("b?")]
    ['b']
    """

    def __init__(
        self,
        gallery: Gallery,
        *,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        text: str | None = None,
        metadata_columns: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._gallery, self._k, self._filter = gallery, k, filter
        self._columns = as_columns(text, metadata_columns)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        answers = find_answers(
            self._gallery,
            query_bundle.query_str,
            self._k,
            filter=self._filter,
            columns=self._columns,
        )
        return [
            NodeWithScore(
                node=TextNode(text=answer.text, id_=answer.id, metadata=answer.metadata),
                score=answer.score,
            )
            for answer in answers
        ]
