"""Services that embed texts over HTTP: what each is asked, and where its answer keeps the vectors.

One row of `SERVICES` is one protocol; vLLM speaks OpenAI's. The service is told by `api=` in the
encoder's name, else by its address.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Embeddings = list[Vector | None]  # None for a text without an answer


@dataclass(frozen=True)
class Service:
    """How a kind of service is spoken to; field names are those of its JSON."""

    texts: str  # field of the texts
    embeddings: Callable[[Any, int], Embeddings]  # from an answer, for so many texts
    tokens: tuple[str, ...] = ()  # path to the number of tokens in an answer
    tokens_header: str = ""  # the header of an answer that tells it, where there is one
    dimensions: str = "dimensions"
    input_type: str = "input_type"
    types: tuple[str | None, str | None] = (None, None)  # of items and of queries, by default
    at_once: int = 128  # texts of one request
    most_tokens: int = 100_000  # of one request, counted roughly
    base64: bool = False  # answers in base64 on request
    always: tuple[tuple[str, Any], ...] = ()  # fields of every request


def indexed(answer: Any, count: int) -> Embeddings:
    """`{"data": [{"index": 0, "embedding": …}]}`, in any order.

    >>> indexed({"data": [{"index": 1, "embedding": [2.0]}]}, 2)
    [None, array([2.], dtype=float32)]
    """
    vectors: Embeddings = [None] * count
    for entry in answer.get("data", []) if isinstance(answer, dict) else []:
        position, embedding = entry.get("index"), entry.get("embedding")
        if isinstance(position, int) and 0 <= position < count:
            vectors[position] = decoded(embedding)
    return vectors


def in_order(*path: str) -> Callable[[Any, int], Embeddings]:
    """A list of vectors, one for each text, at the end of a path of fields.

    >>> in_order("embeddings")({"embeddings": [[1.0], [2.0]]}, 2)
    [array([1.], dtype=float32), array([2.], dtype=float32)]
    """

    def embeddings(answer: Any, count: int) -> Embeddings:
        rows = field_at(answer, path)
        usable = isinstance(rows, list) and len(rows) == count
        return [decoded(row) for row in rows] if usable else [None] * count

    return embeddings


def decoded(embedding: list[float] | str | None) -> Vector | None:
    """A vector from numbers, or from base64 of little-endian float32.

    >>> decoded("AACAPwAAAEA=")
    array([1., 2.], dtype=float32)
    """
    if not embedding:
        return None
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), dtype="<f4").astype(np.float32)
    return np.asarray(embedding, dtype=np.float32)


def field_at(answer: Any, path: Sequence[str]) -> Any:
    """What lies at the end of a path of fields, or None.

    >>> field_at({"usage": {"total_tokens": 7}}, ("usage", "total_tokens"))
    7
    """
    for name in path:
        answer = answer.get(name) if isinstance(answer, dict) else None
    return answer


SERVICES: dict[str, Service] = {
    "openai": Service("input", indexed, ("usage", "total_tokens"), base64=True),
    "voyage": Service(
        "input",
        indexed,
        ("usage", "total_tokens"),
        dimensions="output_dimension",
        types=("document", "query"),
        base64=True,
    ),
    "cohere": Service(
        "texts",
        in_order("embeddings", "float"),
        ("meta", "billed_units", "input_tokens"),
        dimensions="output_dimension",
        types=("search_document", "search_query"),
        at_once=96,
        always=(("embedding_types", ["float"]),),
    ),
    "ollama": Service("input", in_order("embeddings"), ("prompt_eval_count",)),
    "tei": Service(
        "inputs",
        in_order(),
        tokens_header="x-compute-tokens",
        input_type="prompt_name",
        at_once=32,
    ),
}
PATHS = {"/api/embed": "ollama", "/v2/embed": "cohere", "/embed": "tei"}  # how an address ends


def service_at(address: str) -> str:
    """The name of the protocol that an address seems to speak.

    >>> service_at("http://localhost:8080/embed"), service_at("http://localhost:8000/v1/embeddings")
    ('tei', 'openai')
    """
    parts = urlsplit(address)
    if (parts.hostname or "").endswith("voyageai.com"):
        return "voyage"
    return next((name for end, name in PATHS.items() if parts.path.endswith(end)), "openai")
