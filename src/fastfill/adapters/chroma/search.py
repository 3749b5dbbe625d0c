"""Searching either side, from Chroma's index or by reading all vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.adapters.chroma.collection import (
    DOCUMENT,
    PAGE,
    ChromaCollection,
    ChromaRecord,
    as_matrix,
    equals,
    pages_of,
)
from fastfill.adapters.chroma.context import ChromaContext
from fastfill.adapters.chroma.layout import WAITING, ChromaLayout
from fastfill.features import Distance, pairwise
from fastfill.gallery import Hits, Id, Side, objects, wanted_sides

Nearest = list[tuple[Id, float]]  # ids and distances


class ChromaSearch:
    """Chroma looks after its indexes by itself."""

    def __init__(self, context: ChromaContext) -> None:
        self._context = context

    def search(
        self,
        vector: ArrayLike,
        k: int,
        *,
        side: Side,
        distance: Distance,
        where: Mapping[str, Any] | None = None,
        exact: bool = False,
        vectors: bool | Side = False,
    ) -> Hits:
        """The k nearest of the records that the owner has."""
        layout = self._context.layout
        collection = layout.old if side == "old" else layout.added
        nearest: Nearest = []
        if collection is not None:
            asked = np.asarray(vector, dtype=np.float32)
            query = ChromaQuery(asked, collection, distance, dict(where or {}), exact)
            nearest = _of_the_owner(layout, query, k)
        ids = [key for key, _ in nearest]
        entries = layout.entries(ids)
        return Hits(
            objects(ids),
            np.array([far for _, far in nearest], dtype=np.float32),
            objects([layout.mark(entries[k], "generation") if k in entries else None for k in ids]),
            **{each: layout.vectors_of(ids, each) for each in wanted_sides(vectors)},
        )

    def indexed(self, side: Side) -> bool:
        """Chroma indexes all vectors."""
        return True

    def build_index(self, side: Side, distance: Distance) -> None:
        """Nothing to do: Chroma adds vectors to its index as they are written."""

    def optimize(self) -> None:
        """Forget rows of the second collection that their owner has deleted."""
        layout = self._context.look()
        if layout.added is not None and layout.added is not layout.owner:
            ids = layout.added.ids()  # before the owner's: a row that is added now is in neither
            there = set(layout.owner.ids())
            layout.added.forget([key for key in ids if key not in there])


@dataclass(frozen=True, eq=False)
class ChromaQuery:
    """What is asked of one collection."""

    vector: NDArray[np.float32]
    collection: ChromaCollection
    distance: Distance
    where: dict[str, Any]
    exact: bool

    def nearest(self, k: int) -> Nearest:
        """The k nearest records of the collection."""
        if self.exact or self.distance != self.collection.distance or self._beyond_chroma:
            return self._scan(k)
        hits = self.collection.nearest(self.vector, k, equals(self.where) if self.where else None)
        # Chroma gives 1 - product where we have -product; the other two are the same.
        shift = 1.0 if self.distance == "ip" else 0.0
        return [(key, far - shift) for key, far in hits]

    @property
    def _beyond_chroma(self) -> bool:
        """Chroma has no condition on an id, on a whole document, or on what is not there."""
        return any(v is None or name in ("id", DOCUMENT) for name, v in self.where.items())

    def _scan(self, k: int) -> Nearest:
        """Exact, by reading all vectors: Chroma compares by the distance it was set up with."""
        best: Nearest = []
        condition = None if self._beyond_chroma or not self.where else equals(self.where)
        for page in pages_of(self.collection.ids(condition), PAGE):
            records = self.collection.records(page, vectors=True)
            chosen = [key for key, record in records.items() if self._fits(key, record)]
            if not chosen:
                continue
            matrix = as_matrix([records[key] for key in chosen], len(self.vector))
            away = pairwise(self.vector[None, :], matrix, self.distance)[0]
            best += list(zip(chosen, map(float, away), strict=True))
            best = sorted(best, key=lambda hit: hit[1])[:k]
        return best

    def _fits(self, key: Id, record: ChromaRecord) -> bool:
        values = self.where.items()
        return all((key if name == "id" else record.value(name)) == v for name, v in values)


def _of_the_owner(layout: ChromaLayout, query: ChromaQuery, k: int) -> Nearest:
    """The k nearest records that the owner still has and that have a vector."""
    wanted = k
    while True:
        nearest = query.nearest(wanted)
        every = len(nearest) < wanted
        if query.collection is not layout.owner:
            ids = [key for key, _ in nearest]
            there, entries = layout.owner.present(ids), layout.entries(ids)
            waiting = {k for k, e in entries.items() if layout.mark(e, "generation") == WAITING}
            nearest = [hit for hit in nearest if hit[0] in there and hit[0] not in waiting]
        if every or len(nearest) >= k:
            return nearest[:k]
        wanted *= 2
