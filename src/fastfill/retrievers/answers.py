"""What the retrievers share: a search by a text, and its answers with text and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastfill.errors import InputError
from fastfill.gallery import Gallery


@dataclass(frozen=True)
class Answer:
    """An item that was found."""

    id: str
    text: str
    score: float  # minus the distance: higher is better
    metadata: dict[str, Any]  # the key, the generation of its vector, and the columns asked for


@dataclass(frozen=True)
class AnswerColumns:
    """Which columns come with an answer: its text (None: the input), and others as metadata."""

    text: str | None = None
    metadata: tuple[str, ...] = ()


def find_answers(
    gallery: Gallery,
    query: str,
    k: int,
    *,
    filter: Mapping[str, Any] | None = None,
    columns: AnswerColumns | None = None,
) -> list[Answer]:
    """The k best items for a text, by whatever serves now, best first.

    >>> from fastfill.gallery import MemoryStore
    >>> rows = {"id": [1, 2], "text": ["a", "b"], "vector": [[1.0, 0.0], [0.0, 1.0]]}
    >>> gallery = Gallery(
    ...     MemoryStore(rows), input="text", distance="l2", query_old=lambda texts: [[0.0, 1.0]]
    ... )
    >>> [(answer.id, answer.text) for answer in find_answers(gallery, "b?", k=2)]
    [('2', 'b'), ('1', 'a')]
    """
    columns = columns or AnswerColumns()
    name = columns.text or gallery.store.columns.input
    if name is None:
        raise InputError(f"{gallery.name}: which column holds the text? Name it with text=.")
    hits = gallery.search(query, k, filter)
    ids = hits.ids.tolist()
    values = {each: gallery.store.values_of(each, ids) for each in (name, *columns.metadata)}
    nearest = zip(ids, hits.distances.tolist(), hits.generation.tolist(), strict=True)
    return [
        Answer(
            str(key),
            _as_text(values[name][key]),
            -distance,
            {
                "id": key,
                "generation": generation,
                **{each: values[each].get(key) for each in columns.metadata},
            },
        )
        for key, distance, generation in nearest
        if key in values[name]  # one that was deleted since is no answer
    ]


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def as_columns(text: str | None, metadata: Sequence[str]) -> AnswerColumns:
    """From the keywords of a retriever.

    >>> as_columns(None, ["album"])
    AnswerColumns(text=None, metadata=('album',))
    """
    return AnswerColumns(text, tuple(metadata))
