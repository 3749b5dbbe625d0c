"""A collection and its records; nothing here is done to the owner's unless they ask for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.adapters.chroma.connection import ChromaConnection
from fastfill.errors import StoreError
from fastfill.features import Array, Distance, Matrix
from fastfill.gallery import Id

PAGE = 1_000  # ids in one request: SQLite takes some ten thousand
MOST = 4_096  # records that one request writes; Chroma takes 5,461
LOOKED_AT = 64  # records whose metadata tells which keys there are
DOCUMENT = "document"  # what we call the document of a record
DISTANCE_OF: dict[str, Distance] = {"cosine": "cosine", "ip": "ip", "l2": "l2"}


@dataclass(frozen=True, eq=False)
class ChromaRecord:
    """One record, or what was asked of it."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    document: str | None = None
    vector: Array | None = None

    def value(self, name: str) -> Any:
        """The document, or a value of the metadata."""
        return self.document if name == DOCUMENT else self.metadata.get(name)


class ChromaCollection:
    """The records of one collection, as it was when it was found."""

    def __init__(self, connection: ChromaConnection, collection: Any) -> None:
        self._connection, self._collection = connection, collection
        self.name = str(collection.name)
        self.metadata: dict[str, Any] = dict(collection.metadata or {})

    # --- what is there -------------------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """How its vectors are indexed: HNSW, or SPANN on servers that spread them."""
        configuration = self._collection.configuration_json
        return dict(configuration.get("hnsw") or configuration.get("spann") or {})

    @property
    def index_kind(self) -> str:
        """`hnsw` or `spann`."""
        return "spann" if self._collection.configuration_json.get("spann") else "hnsw"

    @property
    def distance(self) -> Distance:
        """By which its vectors are compared."""
        space = str(self.settings.get("space", "l2"))
        if space not in DISTANCE_OF:
            raise StoreError(f"{self._connection.name}#{self.name} compares by {space}.")
        return DISTANCE_OF[space]

    def dim(self) -> int:
        """Dimensions of its vectors; 0 where it has never held one."""
        with self._connection.errors():
            return int(self._collection.get_model().dimension or 0)

    def count(self) -> int:
        """Records, counted."""
        with self._connection.errors():
            return int(self._collection.count())

    def keys(self) -> list[str]:
        """What some of its records have: the document, and keys of the metadata."""
        with self._connection.errors():
            answer = self._collection.get(limit=LOOKED_AT, include=["metadatas", "documents"])
        names = [DOCUMENT] if any(text is not None for text in answer["documents"]) else []
        return [*names, *dict.fromkeys(key for each in answer["metadatas"] for key in each or {})]

    def has_key(self, name: str) -> bool:
        """Has any record this?"""
        if name in self.keys():
            return True
        pages = (self.records(page) for page in pages_of(self.ids(), PAGE))
        return any(r.value(name) is not None for page in pages for r in page.values())

    # --- records -------------------------------------------------------------------------------

    def ids(self, where: Mapping[str, Any] | None = None, limit: int | None = None) -> list[Id]:
        """Ids of the records that fulfil a condition, in one request."""
        with self._connection.errors():
            return list(self._collection.get(where=where, limit=limit, include=[])["ids"])

    def records(
        self, ids: Sequence[Id], *, vectors: bool = False, documents: bool = True
    ) -> dict[Id, ChromaRecord]:
        """Those of the records that exist, by id; with `vectors` their vectors too."""
        optional = {"documents": documents, "embeddings": vectors}
        include = ["metadatas", *(name for name, wanted in optional.items() if wanted)]
        records: dict[Id, ChromaRecord] = {}
        for page in pages_of(ids, PAGE):
            with self._connection.errors():
                get = partial(self._collection.get, ids=list(page), include=include)
                answer = self._connection.read(get)
            rows: Any = answer["embeddings"] if vectors and answer["ids"] else None
            nothing = [None] * len(answer["ids"])
            matrix = nothing if rows is None else np.asarray(rows, np.float32)
            texts = answer["documents"] if documents else nothing
            parts = zip(answer["metadatas"], texts, matrix, strict=True)
            records |= {
                key: ChromaRecord(metadata or {}, document, vector)
                for key, (metadata, document, vector) in zip(answer["ids"], parts, strict=True)
            }
        return records

    def present(self, ids: Sequence[Id]) -> set[Id]:
        """Which of these exist?"""
        there: set[Id] = set()
        for page in pages_of(ids, PAGE):
            with self._connection.errors():
                there.update(self._collection.get(ids=list(page), include=[])["ids"])
        return there

    def nearest(
        self, vector: NDArray[np.float32], k: int, where: Mapping[str, Any] | None
    ) -> list[tuple[Id, float]]:
        """Ids and Chroma's distances of the k nearest, from its index."""
        with self._connection.errors():
            answer = self._connection.read(
                lambda: self._collection.query(
                    query_embeddings=[vector], n_results=k, where=where, include=["distances"]
                )
            )
        return list(zip(answer["ids"][0], answer["distances"][0], strict=True))

    # --- writing -------------------------------------------------------------------------------

    def add(self, records: Mapping[Id, ChromaRecord]) -> None:
        """Insert whole records; an id that exists is left as it is."""
        self._send("add", records)

    def upsert(self, records: Mapping[Id, ChromaRecord]) -> None:
        """Insert or replace whole records, but for values of the metadata that are not named."""
        self._send("upsert", records)

    def update(self, records: Mapping[Id, ChromaRecord]) -> None:
        """Change what is given of records that exist; a value that is None is taken off."""
        with_vectors = {k: r for k, r in records.items() if r.vector is not None}
        self._send("update", with_vectors)
        # The public `update` would make vectors of documents that come without any.
        self._send("_update", {k: r for k, r in records.items() if k not in with_vectors})

    def _send(self, method: str, records: Mapping[Id, ChromaRecord]) -> None:
        for page in pages_of(list(records), MOST):
            chosen = [records[key] for key in page]
            metadata = [dict(record.metadata) or None for record in chosen]
            documents = [record.document for record in chosen]
            values = {
                "metadatas": metadata if any(metadata) else None,
                "documents": documents if any(text is not None for text in documents) else None,
            }
            with self._connection.errors():
                if method == "_update":
                    self._collection._client._update(
                        self._collection.id, ids=list(page), **values, **self._database
                    )
                else:
                    vectors = [record.vector for record in chosen]
                    getattr(self._collection, method)(ids=list(page), embeddings=vectors, **values)

    @property
    def _database(self) -> dict[str, str]:
        return {"tenant": self._collection.tenant, "database": self._collection.database}

    def forget(self, ids: Sequence[Id]) -> None:
        """Delete records; those that do not exist are no error."""
        for page in pages_of(ids, PAGE):
            with self._connection.errors():
                self._collection.delete(ids=list(page))


def pages_of(ids: Sequence[Id], size: int) -> Iterator[Sequence[Id]]:
    """Consecutive parts of at most `size` ids.

    >>> list(pages_of([1, 2, 3], 2))
    [[1, 2], [3]]
    """
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def as_matrix(records: Sequence[ChromaRecord | None], dim: int) -> Matrix:
    """(n, dim) with NaN where there is no vector."""
    matrix = np.full((len(records), max(dim, 1)), np.nan, dtype=np.float32)
    for position, record in enumerate(records):
        if record is not None and record.vector is not None:
            matrix[position] = record.vector
    return matrix


def equals(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Chroma's condition that the metadata has these values; None for no condition.

    >>> equals({"album": 1})
    {'album': {'$eq': 1}}
    """
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}
    return both([{key: {"$eq": value}} for key, value in plain.items()])


def both(conditions: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """All of these conditions."""
    if len(conditions) > 1:
        return {"$and": list(conditions)}
    return conditions[0] if conditions else None
