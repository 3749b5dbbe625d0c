"""The ledger: a collection of ours with one point for each of the owner's, by the same id.

Its payload holds the marks and more: a *stamp*, which is another one with every write and so what
a compare-and-set compares, the *signature* of the added vector, and a *probe* of both vectors where
the server can be asked for such. On a second collection the point holds the added vector and a copy
of the owner's payload too.

Every write is an upsert of whole points with a condition on the stamp: Qdrant applies an operation
in turn with all others, and a point of it whole, so vector and marks of a point never disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qdrant_client import models

from fastfill.adapters.qdrant.bulk import Point
from fastfill.adapters.qdrant.collection import IDS, QdrantCollection
from fastfill.adapters.qdrant.connection import ORDERED, QdrantConnection
from fastfill.adapters.qdrant.points import DIRECTIONS, all_of, among, equals, is_empty
from fastfill.adapters.qdrant.probes import Probe
from fastfill.gallery import MARKS, Columns, Id

WRITING = "writing"  # generation of a row whose added vector is being written, or was when we died
OWN_MARKS = (*MARKS, "stamp", "signature", "probe", "payload")
MADE_BY = ("generation", "model")
BRIEF = ("generation", "model", "fingerprint", "stamp", "probe")  # what needs no vector to compare
GENERATIONS = ("aligned", "new", "waiting")
MODELS = 1_000  # that are told apart where rows are counted by the server: each refit makes one
_TOLD = ("generation", "model", "fingerprint", "stamp", "signature", "probe", "payload")
_UNSIGNED = (np.nan,) * DIRECTIONS


@dataclass(frozen=True)
class LedgerEntry:
    """What the ledger says about one row."""

    generation: str | None = None
    model: str | None = None
    fingerprint: str | None = None
    stamp: str | None = None
    signature: tuple[float, ...] = _UNSIGNED
    probe: Probe | None = None
    payload: str | None = None  # hash of the payload that was copied
    vector: Any = None  # by its name, where the added vector is in the ledger

    @property
    def settled(self) -> bool:
        """Has a write of this row ended?"""
        return self.generation is not None and self.generation != WRITING


class QdrantLedger:
    """The points of our own beside the owner's collection."""

    def __init__(self, connection: QdrantConnection, collection: str, columns: Columns) -> None:
        self._connection = connection
        self._columns = columns
        self.alias = f"{collection}__{columns.new}"
        self.name = f"{self.alias}__fastfill"
        self.collection = QdrantCollection(connection, self.name)
        self._counts_models: bool | None = None  # looked at once

    def _ask(self, method: str, **options: Any) -> Any:
        return self._connection.ask(method, collection_name=self.name, **options)

    # --- the collection ------------------------------------------------------------------------

    def exists(self) -> bool:
        """Is there a ledger?"""
        return self.collection.exists()

    def create(self, like: Any, vectors: dict[str, Any]) -> None:
        """Make the collection, as spread and as indexed as the owner's; with vectors, its alias."""
        if not self.exists():
            params = like.config.params
            self.collection.create(
                vectors_config=vectors,
                shard_number=params.shard_number,
                replication_factor=params.replication_factor,
                write_consistency_factor=params.write_consistency_factor,
                on_disk_payload=params.on_disk_payload,
            )
        if not self._connection.local:
            self._index(like if vectors else None)
        if vectors:
            alias = models.CreateAlias(collection_name=self.name, alias_name=self.alias)
            operation = models.CreateAliasOperation(create_alias=alias)
            self._connection.ask("update_collection_aliases", change_aliases_operations=[operation])

    def _index(self, like: Any) -> None:
        kinds: dict[str, Any] = {
            self._mark("generation"): models.PayloadSchemaType.KEYWORD,
            self._mark("model"): models.PayloadSchemaType.KEYWORD,
            self._mark("stamp"): models.PayloadSchemaType.KEYWORD,
            self._mark("priority"): models.PayloadSchemaType.FLOAT,
        }
        for name, index in (like.payload_schema if like is not None else {}).items():
            kinds[name] = index.params or index.data_type
        for name, kind in kinds.items():
            self._ask("create_payload_index", field_name=name, field_schema=kind, wait=True)

    def drop(self) -> None:
        """Delete the collection; its alias goes with it."""
        if self.exists():
            self._ask("delete_collection")

    def unmark(self) -> None:
        """Take all marks off; vectors and payload stay."""
        self._ask(
            "delete_payload", keys=[self._mark(n) for n in OWN_MARKS], points=all_of(), wait=True
        )

    # --- reading -------------------------------------------------------------------------------

    def entries(
        self, ids: Sequence[Id], vector: str | None = None, marks: Sequence[str] = OWN_MARKS
    ) -> dict[Id, LedgerEntry]:
        """What these marks say about these rows; with `vector` its added vector too."""
        records = self.collection.bulk.retrieve(
            ids,
            payload=[self._mark(name) for name in marks],
            vectors=[vector] if vector else (),
        )
        names = [self._mark(name) for name in _TOLD]
        return {record.id: _entry(record, names) for record in records}

    def marked(self) -> bool:
        """Has any row marks?"""
        return self.collection.any(all_of(but=[is_empty(self._mark("stamp"))]))

    def ids(self, generation: str | None = None, batch: int = IDS) -> Iterator[list[Id]]:
        """Pages of the ids of a generation (None: all that bear marks), in order."""
        marked = all_of(but=[is_empty(self._mark("stamp"))])
        wanted = all_of(equals(self._mark("generation"), generation)) if generation else marked
        offset = None
        while True:
            records, offset = self.collection.bulk.scroll(batch, wanted, offset=offset)
            if records:
                yield [record.id for record in records]
            if offset is None:
                return

    def first(self, generation: str, limit: int) -> list[Id]:
        """Ids of a generation by falling priority."""
        records, _ = self.collection.bulk.scroll(
            limit,
            all_of(equals(self._mark("generation"), generation)),
            order=models.OrderBy(key=self._mark("priority"), direction=models.Direction.DESC),
        )
        return [record.id for record in records]

    def stamped(self, stamp: str, ids: Sequence[Id]) -> Sequence[Id]:
        """Those of the rows that a write has got hold of: counted, and asked for where not all."""
        mine = all_of(equals(self._mark("stamp"), stamp))
        if self.collection.count(mine) == len(ids):
            return ids
        records, _ = self.collection.bulk.scroll(len(ids), mine)
        return [record.id for record in records]

    def finished(self, stamp: str) -> int:
        """How many rows a write has brought to their end."""
        writing = equals(self._mark("generation"), WRITING)
        wanted = all_of(equals(self._mark("stamp"), stamp), but=[writing])
        return self.collection.count(wanted)

    def counts_models(self) -> bool:
        """Can the server count the rows of each model? Earlier ledgers have no index for it."""
        if self._counts_models is None:
            schema = {} if self._connection.local else self.collection.info().payload_schema
            self._counts_models = self._mark("model") in schema
        return self._counts_models

    def model_counts(self) -> dict[tuple[str | None, str | None], int]:
        """Settled rows by (generation, model), counted by the server."""
        return {
            (generation, str(hit.value)): hit.count
            for generation in GENERATIONS
            for hit in self._ask(
                "facet",
                key=self._mark("model"),
                facet_filter=all_of(equals(self._mark("generation"), generation)),
                limit=MODELS,
                exact=True,
            ).hits
        }

    # --- writing -------------------------------------------------------------------------------

    def put(self, points: Sequence[Point], seen: NDArray[np.object_]) -> None:
        """Upsert points whose entries are still those in `seen`: (n, 2) stamp and generation."""
        for index, same in self._groups(seen):
            self.collection.bulk.upsert([points[i] for i in index], all_of(*same))

    def _groups(self, seen: NDArray[np.object_]) -> Iterator[tuple[list[int], list[Any]]]:
        """Positions of rows that were read in one state, and the conditions that they still are.

        A point that does not exist is upserted whatever the condition.
        """
        for generation in dict.fromkeys(seen[:, 1]):
            index = [i for i, read in enumerate(seen[:, 1]) if read == generation]
            stamps = {seen[i, 0] for i in index if seen[i, 0] is not None}
            if stamps:
                of_generation = equals(self._mark("generation"), generation)
                yield index, [of_generation, among(self._mark("stamp"), stamps)]
            else:
                yield index, [is_empty(self._mark("stamp"))]

    def finish(self, stamp: str, generation: str) -> None:
        """Say of the rows that still bear our stamp that their vectors are written."""
        self._ask(
            "set_payload",
            payload={self._mark("generation"): generation},
            points=all_of(equals(self._mark("stamp"), stamp)),
            **ORDERED,
        )

    def give(self, points: Sequence[Any]) -> None:
        """Upsert points without marks: what the application itself has written."""
        if points:
            self._ask("upsert", points=list(points), **ORDERED)

    def copy_payload(self, key: Id, payload: dict[str, Any], stamp: str) -> None:
        """Replace the copy of a row's payload, unless the row has been written since."""
        condition = all_of(equals("id", key), equals(self._mark("stamp"), stamp))
        self._ask("overwrite_payload", payload=payload, points=condition, **ORDERED)

    def marks(self, key: Id) -> dict[str, Any]:
        """The marks of one row as they are stored."""
        names = [self._mark(name) for name in OWN_MARKS]
        records = self._ask("retrieve", ids=[key], with_payload=names)
        return dict(records[0].payload or {}) if records else {}

    def forget(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        if ids:
            self._ask("delete", points_selector=list(ids), **ORDERED)

    def _mark(self, name: str) -> str:
        return self._columns.mark(name)


def _entry(record: Any, names: Sequence[str]) -> LedgerEntry:
    """What a point of the ledger says, whose values of `_TOLD` have these names."""
    payload = record.payload or {}
    generation, model, fingerprint, stamp, signature, probe, copied = map(payload.get, names)
    return LedgerEntry(
        generation=generation,
        model=model,
        fingerprint=fingerprint,
        stamp=stamp,
        signature=tuple(signature) if signature else _UNSIGNED,
        probe=Probe(*probe) if probe else None,
        payload=copied,
        vector=record.vector,
    )
