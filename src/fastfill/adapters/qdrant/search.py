"""Searching either side, by the server's own distance or by another one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from qdrant_client import models

from fastfill.adapters.qdrant.collection import QdrantCollection
from fastfill.adapters.qdrant.context import QdrantContext
from fastfill.adapters.qdrant.layout import QdrantLayout
from fastfill.adapters.qdrant.ledger import LedgerEntry
from fastfill.adapters.qdrant.points import all_of, as_matrix, equals, has_vector
from fastfill.features import Distance, pairwise
from fastfill.gallery import Hits, Id, Side, objects, wanted_sides

GREEN = 120.0  # seconds to wait for the server's index
Nearest = list[tuple[Id, float]]  # ids and distances


class QdrantSearch:
    """The server looks after its indexes by itself."""

    def __init__(self, context: QdrantContext) -> None:
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
        """The k nearest of the points that the owner has."""
        layout = self._context.layout
        query = QdrantQuery(
            vector=np.asarray(vector, dtype=np.float32),
            collection=(layout.old_home or layout.owner) if side == "old" else layout.home,
            name=layout.old if side == "old" else layout.new,
            distance=distance,
            conditions=[equals(key, value) for key, value in (where or {}).items()],
            exact=exact,
        )
        nearest, entries = _of_the_owner(layout, query, k)
        ids = [key for key, _ in nearest]
        return Hits(
            objects(ids),
            np.array([far for _, far in nearest], dtype=np.float32),
            objects([entries[key].generation if key in entries else None for key in ids]),
            **{each: layout.vectors_of(ids, each) for each in wanted_sides(vectors)},
        )

    def indexed(self, side: Side) -> bool:
        """Does the server index vectors? Local mode looks at every one."""
        context = self._context
        return not context.connection.local and context.owner.info().config.hnsw_config.m != 0

    def build_index(self, side: Side, distance: Distance) -> None:
        """Wait, not for ever, for the index that the server builds by itself."""
        home = self._context.owner if side == "old" else self._context.layout.home
        deadline = time.monotonic() + GREEN
        while home.info().status != models.CollectionStatus.GREEN and time.monotonic() < deadline:
            self._context.notify("Qdrant is building its index", 0.5)
            time.sleep(0.5)

    def optimize(self) -> None:
        """Forget what the ledger knows of rows that their owner has deleted.

        After a swap it is what the way back knows of them.
        """
        layout = self._context.look()
        if layout.swapped:
            return
        for ids in layout.ledger.ids() if layout.ledgered else ():
            there = layout.owner.present(ids)
            layout.ledger.forget([key for key in ids if key not in there])


@dataclass(frozen=True)
class QdrantQuery:
    """What is asked of one collection."""

    vector: NDArray[np.float32]
    collection: QdrantCollection
    name: str  # of the vectors that are compared
    distance: Distance
    conditions: list[Any]
    exact: bool

    def nearest(self, k: int) -> Nearest:
        """The k nearest points of the collection."""
        if self.distance == self.collection.distance(self.name):
            return self._ask(k)
        return self._scan(k)

    def _ask(self, k: int) -> Nearest:
        answer = self.collection.ask(
            "query_points",
            query=self.vector.tolist(),
            using=self.name or None,
            query_filter=all_of(*self.conditions) if self.conditions else None,
            limit=k,
            search_params=models.SearchParams(exact=True) if self.exact else None,
            with_payload=False,
        )
        return [(hit.id, _distance(hit.score, self.distance)) for hit in answer.points]

    def _scan(self, k: int) -> Nearest:
        """Exact, by reading all vectors: Qdrant compares by the distance it was set up with."""
        best: Nearest = []
        dim = self.collection.dim(self.name) or 1
        wanted = all_of(*self.conditions, has_vector(self.name))
        for points in self.collection.pages(wanted=wanted, vectors=[self.name], payload=False):
            vectors = as_matrix(points, self.name, dim)
            away = pairwise(self.vector[None, :], vectors, self.distance)[0]
            best += [(point.id, float(far)) for point, far in zip(points, away, strict=True)]
            best = sorted(best, key=lambda hit: hit[1])[:k]
        return best


def _of_the_owner(
    layout: QdrantLayout, query: QdrantQuery, k: int
) -> tuple[Nearest, dict[Id, LedgerEntry]]:
    """The k nearest points that the owner still has, and what the ledger says of them."""
    wanted = k
    while True:
        nearest = query.nearest(wanted)
        all_of_them = len(nearest) < wanted
        ids = [key for key, _ in nearest]
        entries = layout.ledger.entries(ids) if layout.ledgered else {}
        if query.collection is not layout.owner:
            nearest = _not_deleted(layout, nearest, entries)
        if all_of_them or len(nearest) >= k:
            return nearest[:k], entries
        wanted *= 2


def _not_deleted(
    layout: QdrantLayout, nearest: Nearest, entries: Mapping[Id, LedgerEntry]
) -> Nearest:
    """Without what we have written of items that the owner has deleted since."""
    ours = [key for key, _ in nearest if key in entries and entries[key].stamp is not None]
    gone = set(ours) - layout.owner.present(ours)
    return [hit for hit in nearest if hit[0] not in gone]


def _distance(score: float, distance: Distance) -> float:
    """Qdrant's score as a distance: it gives the cosine, the product, or the root of l2."""
    if distance == "l2":
        return score * score
    return 1 - score if distance == "cosine" else -score
