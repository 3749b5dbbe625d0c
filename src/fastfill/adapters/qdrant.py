"""Qdrant: `qdrant://HOST:PORT#COLLECTION[.VECTOR]`, `qdrant+local://PATH#COLLECTION[.VECTOR]`.

What the design rests on, in Qdrant's terms:
- the owner's payload and vectors are never written. Marks are kept in a collection of our own, the
  ledger, by the same ids; only ids that the owner's collection has count;
- the added vector is another named vector of the owner's points where these have names and the
  server can add one; else the ledger holds it, as a second collection behind an alias, together
  with a copy of the payload for filters;
- a write is conditional on the ledger's stamp, and on the content having been read again just
  before. Qdrant cannot compare a vector, so content that changes in between is not refused but
  found: the marks are of the content that was read, and their fingerprint is not that of the row;
- a named vector and the ledger are two operations. The row is marked as being written before and
  as written after, so one that was left in the middle is neither trusted nor adopted;
- a scan goes by rising ids, so that rows which are written meanwhile are not met again.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Collection as Some
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastfill.errors import MissingExtraError, StoreError, some
from fastfill.features import Distance, Matrix
from fastfill.gallery import (
    MARKS,
    Columns,
    Description,
    Generation,
    Hits,
    Id,
    Marks,
    Rows,
    Settled,
    Side,
)

try:
    from qdrant_client import models

    from fastfill.adapters.qdrant_connection import Connection, open_folder, open_server
    from fastfill.adapters.qdrant_documents import QdrantDocuments
    from fastfill.adapters.qdrant_ledger import Ledger
    from fastfill.adapters.qdrant_owner import Collection, find_collection
    from fastfill.adapters.qdrant_rows import Layout
    from fastfill.adapters.qdrant_search import nearest
    from fastfill.adapters.qdrant_values import UNNAMED, all_of, has_vector, is_empty
    from fastfill.adapters.qdrant_writing import copy_payloads, upsert, write
except ImportError as error:
    raise MissingExtraError("qdrant-client", "qdrant", "A qdrant:// URL") from error

__all__ = ["QdrantStore", "open_folder", "open_server"]

PLAIN = "vector"  # what we call the vector of a collection that has just one
BATCH_NUMBERS = 500_000  # floats of a request: as JSON below the 32 MiB that a server takes
GREEN = 120.0  # seconds to wait for the server's index


class QdrantStore(QdrantDocuments):
    """One vector of one collection."""

    def __init__(self, connection: Connection, collection: str, vector: str | None = None) -> None:
        self._connection = connection
        self._collection = find_collection(connection, collection)
        self._owner = Collection(connection, self._collection)
        self.column = vector or PLAIN
        self.name = f"{connection.name}#{collection}" + (f".{vector}" if vector else "")
        self._old = vector or UNNAMED
        self._columns: Columns | None = None
        self._known: Layout | None = None
        self._check(self._owner.vectors())

    def _check(self, have: dict[str, Any]) -> None:
        if self._old in have:
            self._owner.distance(self._old)
            if have[self._old].multivector_config is not None:
                raise StoreError(f"{self.name} holds many vectors for a point, not one.")
        elif not have:
            raise StoreError(f"{self.name}: the collection has no dense vectors.")
        elif not self._old:
            raise StoreError(f"{self.name}: which vector? Add one of .{', .'.join(have)}.")
        elif not self._documents_exist():  # after `complete --drop-old` its name is gone
            named = [f"'{name}'" for name in have if name != UNNAMED]
            raise StoreError(
                f"{self.name}: the collection has no vector named '{self._old}', only "
                f"{some(named) or 'one without a name'}."
            )

    # --- what is there -------------------------------------------------------------------------

    @property
    def columns(self) -> Columns:
        """The names in use."""
        if self._columns is None:
            raise StoreError(f"{self.name}: say first which columns hold the id and the input.")
        return self._columns

    def bind(self, columns: Columns) -> None:
        """Say where the input is; points are known by their ids."""
        if columns.id != "id":
            raise StoreError(
                f"{self.name}: Qdrant's points are known by their ids, not by '{columns.id}'. "
                "Leave --id out."
            )
        filled = all_of(but=[is_empty(columns.input or "")])
        if columns.input is not None and not self._owner.any(filled) and self._owner.any():
            raise StoreError(
                f"{self.name}: no point has '{columns.input}' in its payload, only "
                f"{some(self._owner.keys()) or 'nothing'}."
            )
        self._columns, self._known = columns, None

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        self._known = layout = self._look()
        vectors = self._owner.vectors()
        names = ["id", *self._owner.keys()]
        names += [name or PLAIN for name in vectors if name != self._old]
        names += [self.column] if layout.old_dim else []
        names += [self.columns.new] if layout.new_dim else []
        names += [self.columns.mark(name) for name in MARKS] if layout.marked() else []
        return Description(
            count=self._owner.count,
            old_dim=layout.old_dim or layout.new_dim or 0,
            new_dim=layout.new_dim,
            distance=self._owner.distance(self._old) if self._old in vectors else None,
            columns=tuple(dict.fromkeys(names)),
            batch=_batch(layout),
        )

    @property
    def _layout(self) -> Layout:
        """Where everything is; looked at again until there is an added vector."""
        if self._known is None or self._known.new_dim is None:
            self._known = self._look()
        return self._known

    def _look(self) -> Layout:
        columns, vectors = self.columns, self._owner.vectors()
        ledger = Ledger(self._connection, self._collection, columns)
        there = ledger.exists()
        inside = ledger.collection.dim(columns.new) if there else None
        beside = columns.new in vectors
        return Layout(
            owner=self._owner,
            ledger=ledger,
            columns=columns,
            old=self._old,
            old_dim=int(vectors[self._old].size) if self._owner.has_any(self._old) else 0,
            new_dim=int(vectors[columns.new].size) if beside else inside,
            beside=beside,
            ledgered=there,
        )

    # --- expand and contract -------------------------------------------------------------------

    def expand(self, dim: int) -> None:
        """Add a named vector, or a second collection where there can be none; and the ledger."""
        layout = self._look()
        if layout.new_dim not in (None, dim):
            raise StoreError(
                f"{self.name}: vector '{self.columns.new}' has {layout.new_dim} dimensions, not "
                f"{dim}. Roll the migration back before another model."
            )
        old = self._owner.vectors().get(self._old)
        if old is None:
            raise StoreError(f"{self.name}: the old vectors have been dropped.")
        if layout.beside or (self._old != UNNAMED and self._connection.names_vectors):
            # The ledger first: an added vector without one would be taken for someone else's.
            layout.ledger.create(self._owner.info(), {})
            config = models.DenseVectorConfig(size=dim, distance=old.distance)
            self._owner.ask(
                "create_vector_name",
                vector_name=self.columns.new,
                vector_name_config=models.DenseVectorNameConfig(dense=config),
            )
        else:
            params = models.VectorParams(
                size=dim,
                distance=old.distance,
                hnsw_config=old.hnsw_config,
                quantization_config=old.quantization_config,
                on_disk=old.on_disk,
            )
            layout.ledger.create(self._owner.info(), {self.columns.new: params})
        self._known = None

    def contract(self) -> None:
        """Drop the added vector and the ledger."""
        layout = self._look()
        if layout.beside:
            self._owner.ask("delete_vector_name", vector_name=self.columns.new)
        layout.ledger.drop()
        self._known = None

    def drop_old(self) -> None:
        """Drop the old vectors and the marks."""
        layout = self._look()
        if layout.beside:
            self._owner.ask("delete_vector_name", vector_name=self._old)
            layout.ledger.drop()
        else:  # a vector without a name, or on an older server, leaves its place behind
            if layout.old_dim:
                self._owner.ask("delete_vectors", vectors=[self._old], points=all_of(), wait=True)
            layout.ledger.unmark()
        self._known = None

    # --- reading -------------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""
        layout = self._layout
        if not changed:
            yield from self._unmarked(layout, settled, batch, new)
            return
        # The second collection's copies of payloads are brought up to date on the way.
        payload = layout.payload if layout.beside else True
        for points in self._owner.pages(batch, vectors=layout.vectors(True), payload=payload):
            if layout.ledgered and not layout.beside:
                copy_payloads(layout, points)
            rows = layout.rows(points, new=True)
            marks = zip(rows.generation, rows.model, *rows.seen.T[[0, 3]], strict=True)
            wrong = [not _right(settled, g, m) or now != then for g, m, now, then in marks]
            if any(wrong):
                yield rows.take(np.array(wrong, dtype=bool))

    def _unmarked(self, layout: Layout, settled: Settled, batch: int, new: bool) -> Iterator[Rows]:
        for points in self._owner.pages(batch, payload=False):
            ids = [point.id for point in points]
            marks = layout.marks(ids)
            right = {k for k, e in marks.items() if _right(settled, e.generation, e.model)}
            rows = layout.read([key for key in ids if key not in right], new=new)
            if len(rows):
                yield rows

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation, in the order of their ids."""
        layout = self._layout
        if generation is None:
            vectors = layout.vectors(new)
            for points in self._owner.pages(batch, vectors=vectors, payload=layout.payload):
                yield layout.rows(points, new=new)
            return
        for ids in layout.ledger.ids(generation, batch) if layout.ledgered else ():
            rows = layout.read(ids, new=new)
            rows = rows.take(np.array([g == generation for g in rows.generation], dtype=bool))
            if len(rows):
                yield rows

    def read(self, ids: Sequence[Id], *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now."""
        return self._layout.read(ids, new=new)

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """One key of the payload of these points."""
        if not self._owner.any(all_of(but=[is_empty(column)])):
            raise StoreError(f"{self.name}: no point has '{column}' in its payload.")
        points = self._owner.points(ids, payload=[column])
        return {point.id: (point.payload or {}).get(column) for point in points}

    def pick(self, generation: Generation, limit: int, exclude: Some[Id]) -> list[Id]:
        """Ids of a generation by falling priority; rows that their owner has deleted go."""
        layout, left_out = self._layout, set(exclude)
        while layout.ledgered:
            found = layout.ledger.first(generation, limit + len(left_out))
            chosen = [key for key in found if key not in left_out][:limit]
            there = self._owner.present(chosen)
            if len(there) == len(chosen):
                return chosen
            layout.ledger.forget([key for key in chosen if key not in there])
        return []

    def sample(self, limit: int, seed: int) -> list[Id]:
        """Random ids of rows that can be paired and are not new."""
        layout = self._layout
        done = layout.ledger.ids("new") if layout.ledgered else iter(())
        new = {key for page in done for key in layout.marks(page)}
        wanted = all_of(has_vector(self._old), but=[is_empty(self.columns.input or "")])
        pages = self._owner.pages(wanted=wanted, payload=False) if layout.old_dim else iter(())
        ids = [point.id for page in pages for point in page if point.id not in new]
        return random.Random(seed).sample(ids, min(limit, len(ids)))

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model); those whose vector was not written or is gone have none."""
        layout = self._layout
        found: Counter[tuple[str | None, str | None]] = Counter()
        for points in self._owner.pages(payload=False):
            ids = [point.id for point in points]
            marks = layout.marks(ids)
            found.update((entry.generation, entry.model) for entry in marks.values())
            found[None, None] += len(ids) - len(marks)
        return {key: number for key, number in found.items() if number}

    # --- writing -------------------------------------------------------------------------------

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """Write added vectors and marks where the row is still what was read."""
        layout, written = self._layout, 0
        step = _batch(layout)
        for start in range(0, len(rows), step):
            part = np.arange(start, min(start + step, len(rows)))
            numbers = [None if v is None else v[part] for v in (marks.variance, marks.priority)]
            some_marks = Marks(marks.generation, marks.model, *numbers)
            chosen = None if vectors is None else vectors[part]
            written += write(layout, rows.take(part), chosen, some_marks)
        return written

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id."""
        names = {name or PLAIN: name for name in self._owner.vectors()}
        names.pop(self.columns.new, None)
        upsert(self._layout, values, names)

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        if len(ids):
            self._owner.ask("delete", points_selector=list(ids), wait=True)
            if self._layout.ledgered:
                self._layout.ledger.forget(list(ids))

    # --- searching -----------------------------------------------------------------------------

    def search(
        self,
        vector: ArrayLike,
        k: int,
        *,
        side: Side,
        distance: Distance,
        where: Mapping[str, Any] | None = None,
        exact: bool = False,
    ) -> Hits:
        """The k nearest rows."""
        return nearest(
            self._layout, vector, k, side=side, distance=distance, where=where or {}, exact=exact
        )

    def indexed(self, side: Side) -> bool:
        """Does the server index vectors? Local mode looks at every one."""
        return not self._connection.local and self._owner.info().config.hnsw_config.m != 0

    def build_index(self, side: Side, distance: Distance) -> None:
        """Wait, not for ever, for the index that the server builds by itself."""
        home = self._owner if side == "old" else self._layout.home
        deadline = time.monotonic() + GREEN
        while home.info().status != models.CollectionStatus.GREEN and time.monotonic() < deadline:
            time.sleep(0.5)

    def optimize(self) -> None:
        """Forget what the ledger knows of rows that their owner has deleted."""
        layout = self._look()
        for ids in layout.ledger.ids() if layout.ledgered else ():
            there = self._owner.present(ids)
            layout.ledger.forget([key for key in ids if key not in there])

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


def _right(settled: Settled, generation: str | None, model: str | None) -> bool:
    right = {"aligned": settled.aligned, "new": settled.new, "waiting": settled.new}
    return model is not None and model == right.get(generation or "")


def _batch(layout: Layout) -> int:
    dim = max(layout.old_dim, layout.new_dim or 1)
    return int(np.clip(BATCH_NUMBERS // dim, 64, 2_048))
