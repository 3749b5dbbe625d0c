"""The owner's collection: what it holds, its points, and writes that its owner asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qdrant_client import models

from fastfill.adapters.qdrant.bulk import BulkRequests, Point
from fastfill.adapters.qdrant.connection import QdrantConnection
from fastfill.adapters.qdrant.points import UNNAMED, all_of, has_vector
from fastfill.adapters.qdrant.probes import direction
from fastfill.errors import StoreError, some
from fastfill.features import Distance
from fastfill.gallery import Id

PAGE = 1_000
IDS = 8_192  # of a page that has nothing else
LOOKED_AT = 64  # points whose payload tells which keys there are
DISTANCE_OF: dict[str, Distance] = {"Cosine": "cosine", "Dot": "ip", "Euclid": "l2"}


def find_collection(connection: QdrantConnection, name: str) -> str:
    """The collection of this name, or that an alias of this name stands for."""
    real = behind_alias(connection, name) or name
    if not connection.ask("collection_exists", collection_name=real):
        have = sorted(each.name for each in connection.ask("get_collections").collections)
        raise StoreError(
            f"{connection.name} has no collection '{name}', only {some(have) or 'none at all'}."
        )
    return real


def behind_alias(connection: QdrantConnection, name: str) -> str | None:
    """The collection that an alias of this name stands for; None where there is no such alias."""
    aliases = connection.ask("get_aliases").aliases
    return {alias.alias_name: str(alias.collection_name) for alias in aliases}.get(name)


@dataclass(frozen=True)
class Copies:
    """Names of a collection and its copies, each of which a swap has made of the one before.

    >>> Copies("photos", "image").after, Copies("photos", "image").before
    ('photos__image__1', None)
    >>> copies = Copies("photos__image__1", "image")
    >>> copies.base, copies.before, copies.after
    ('photos', 'photos', 'photos__image__2')
    """

    name: str
    column: str

    @property
    def base(self) -> str:
        """The first of them, which the owner has made."""
        return self._parts[0]

    @property
    def before(self) -> str | None:
        """The one that this is a copy of."""
        base, number = self._parts
        if number == 1:
            return base
        return f"{base}__{self.column}__{number - 1}" if number else None

    @property
    def after(self) -> str:
        """The copy of this one."""
        base, number = self._parts
        return f"{base}__{self.column}__{number + 1}"

    @property
    def _parts(self) -> tuple[str, int]:
        found = re.fullmatch(rf"(.+)__{re.escape(self.column)}__([1-9]\d*)", self.name)
        return (found[1], int(found[2])) if found else (self.name, 0)


class QdrantCollection:
    """A collection and its points; nothing here is done unless its owner asks for it."""

    def __init__(self, connection: QdrantConnection, name: str) -> None:
        self._connection = connection
        self.name = name
        self.bulk = BulkRequests(connection, name)
        self._distances: dict[str, Distance] = {}  # they never change

    @property
    def local(self) -> bool:
        """Is there no server, but the client's own imitation of one?"""
        return self._connection.local

    def ask(self, method: str, **options: Any) -> Any:
        """Call the client on this collection."""
        return self._connection.ask(method, collection_name=self.name, **options)

    def exists(self) -> bool:
        """Is it there?"""
        return bool(self.ask("collection_exists"))

    def create(self, **options: Any) -> None:
        """Make the collection; another process may have been faster."""
        try:
            self.ask("create_collection", **options)
        except StoreError:
            if not self.exists():
                raise

    # --- what is there -------------------------------------------------------------------------

    def info(self) -> Any:
        """What Qdrant says about it."""
        return self.ask("get_collection")

    def vectors(self) -> dict[str, Any]:
        """The parameters of the dense vectors by name; one without a name is `UNNAMED`."""
        params = self.info().config.params.vectors
        if isinstance(params, models.VectorParams):
            return {UNNAMED: params}
        return dict(params or {})

    def dim(self, name: str) -> int | None:
        """Of the vectors of this name; None where there are none."""
        params = self.vectors().get(name)
        return None if params is None else int(params.size)

    def distance(self, name: str) -> Distance:
        """Of the vectors of this name."""
        if name in self._distances:
            return self._distances[name]
        told = str(self.vectors()[name].distance.value)
        if told not in DISTANCE_OF:
            raise StoreError(
                f"{self._connection.name}#{self.name} compares by {told}, which FastFill cannot; "
                f"it can {', '.join(DISTANCE_OF)}."
            )
        self._distances[name] = DISTANCE_OF[told]
        return self._distances[name]

    def scales_late(self, name: str) -> bool:
        """Do vectors of this name come as they were written, until a search has scaled them?

        In local mode those that are compared by cosine do; a server scales what it is given.
        """
        return self.local and self.distance(name) == "cosine"

    def count(self, wanted: Any = None) -> int:
        """Points, counted."""
        return int(self.ask("count", count_filter=wanted, exact=True).count)

    def any(self, wanted: Any = None) -> bool:
        """Is there such a point?"""
        records, _ = self.ask("scroll", scroll_filter=wanted, limit=1, with_payload=False)
        return bool(records)

    def has_any(self, vector: str) -> bool:
        """Has any point this vector? Where there are no points, the answer is that it could."""
        if vector not in self.vectors():
            return False
        return self.any(all_of(has_vector(vector))) or not self.any()

    def keys(self) -> list[str]:
        """The keys of the payload of some points."""
        records, _ = self.ask("scroll", limit=LOOKED_AT, with_payload=True)
        return list(dict.fromkeys(key for record in records for key in record.payload or {}))

    # --- points --------------------------------------------------------------------------------

    def pages(
        self, batch: int = PAGE, wanted: Any = None, *, vectors: Sequence[str] = (), payload: Any
    ) -> Iterator[list[Any]]:
        """Points in the order of their ids: no point is met twice, whatever is written."""
        offset = None
        while True:
            records, offset = self.bulk.scroll(
                batch, wanted, offset=offset, vectors=vectors, payload=payload
            )
            if records:
                yield list(records)
            if offset is None:
                return

    def points(self, ids: Sequence[Id], *, vectors: Sequence[str] = (), payload: Any) -> list[Any]:
        """Those of the points that exist."""
        return list(self.bulk.retrieve(ids, vectors=vectors, payload=payload))

    def present(self, ids: Sequence[Id]) -> set[Id]:
        """Which of these exist?"""
        return {record.id for record in self.points(ids, payload=False)}

    def can_score(self) -> bool:
        """May scores be asked for? An operator can forbid exact searches, or limit their answer."""
        if self.local:
            return False
        strict = getattr(self.info().config, "strict_mode_config", None)
        if strict is None or not strict.enabled:
            return True
        return strict.search_allow_exact is not False and strict.max_query_limit is None

    def scores(self, ids: Sequence[Id], vector: str, dim: int) -> dict[Id, float]:
        """The probes of this vector of these points, of those that have it."""
        if not len(ids):
            return {}
        these = {"must": [{"has_id": list(ids)}]}  # as JSON: the client looks at every id
        return self.bulk.scores(direction(dim), vector, these, len(ids))

    # --- for the owner -------------------------------------------------------------------------

    def change(
        self, key: Id, payload: Mapping[str, Any], vectors: Mapping[str, Any], there: bool
    ) -> None:
        """Insert a point, or change what is named of one; a vector that is None is taken off."""
        some_vectors = {name: value for name, value in vectors.items() if value is not None}
        if not there:
            point = models.PointStruct(id=key, vector=some_vectors, payload=dict(payload))
            self.ask("upsert", points=[point], wait=True)
            return
        if payload:
            self.ask("set_payload", payload=dict(payload), points=[key], wait=True)
        if some_vectors:
            self.put_vectors({key: some_vectors})
        gone = [name for name, value in vectors.items() if value is None]
        if gone:
            self.take_vectors([key], gone)

    def put_vectors(self, vectors: Mapping[Id, Mapping[str, Any]]) -> None:
        """Write these vectors of points that exist; others of the same points stay."""
        if vectors:
            self.bulk.put_vectors([Point(key, vector=dict(v)) for key, v in vectors.items()])

    def take_vectors(self, ids: Sequence[Id], names: Sequence[str]) -> None:
        """Take these vectors off points that exist."""
        if len(ids):
            self.ask(
                "delete_vectors",
                vectors=list(names),
                points=list(ids),
                wait=True,
                missing_ok=True,
            )
