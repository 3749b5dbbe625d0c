"""Searching either side, by the server's own distance or by another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from qdrant_client import models

from fastfill.adapters.qdrant_ledger import Entry
from fastfill.adapters.qdrant_owner import Collection
from fastfill.adapters.qdrant_rows import Layout
from fastfill.adapters.qdrant_values import all_of, as_matrix, equals, has_vector
from fastfill.features import Distance, pairwise
from fastfill.gallery import Hits, Id, Side, objects

Found = list[tuple[Id, float]]


def nearest(
    layout: Layout,
    vector: ArrayLike,
    k: int,
    *,
    side: Side,
    distance: Distance,
    where: Mapping[str, Any],
    exact: bool,
) -> Hits:
    """The k nearest of the points that the owner has."""
    query = np.asarray(vector, dtype=np.float32)
    collection = layout.owner if side == "old" else layout.home
    name = layout.old if side == "old" else layout.columns.new
    conditions = [equals(key, value) for key, value in where.items()]
    wanted = k
    while True:
        if distance == collection.distance(name):
            found = _ask(collection, query, wanted, name, distance, conditions, exact)
        else:
            found = _scan(collection, query, wanted, name, distance, conditions)
        ids = [key for key, _ in found]
        entries = layout.ledger.entries(ids) if layout.ledgered else {}
        last = len(found) < wanted
        if collection is not layout.owner:
            found = _not_deleted(layout, found, entries)
        if last or len(found) >= k:
            break
        wanted *= 2
    found = found[:k]
    return Hits(
        objects([key for key, _ in found]),
        np.array([far for _, far in found], dtype=np.float32),
        objects([entries[key].generation if key in entries else None for key, _ in found]),
    )


def _not_deleted(layout: Layout, found: Found, entries: Mapping[Id, Entry]) -> Found:
    """Without what we have written of items that the owner has deleted since."""
    ours = [key for key, _ in found if key in entries and entries[key].stamp is not None]
    gone = set(ours) - layout.owner.present(ours)
    return [hit for hit in found if hit[0] not in gone]


def _ask(
    collection: Collection,
    query: NDArray[np.float32],
    k: int,
    name: str,
    distance: Distance,
    conditions: list[Any],
    exact: bool,
) -> Found:
    answer = collection.ask(
        "query_points",
        query=query.tolist(),
        using=name or None,
        query_filter=all_of(*conditions) if conditions else None,
        limit=k,
        search_params=models.SearchParams(exact=True) if exact else None,
        with_payload=False,
    )
    return [(hit.id, _distance(hit.score, distance)) for hit in answer.points]


def _distance(score: float, distance: Distance) -> float:
    """Qdrant's score as a distance: it gives the cosine, the product, or the root of l2."""
    if distance == "l2":
        return score * score
    return 1 - score if distance == "cosine" else -score


def _scan(
    collection: Collection,
    query: NDArray[np.float32],
    k: int,
    name: str,
    distance: Distance,
    conditions: list[Any],
) -> Found:
    """Exact, by reading all vectors: Qdrant compares by the distance it was set up with only."""
    best: Found = []
    dim = collection.dim(name) or 1
    wanted = all_of(*conditions, has_vector(name))
    for points in collection.pages(wanted=wanted, vectors=[name], payload=False):
        away = pairwise(query[None, :], as_matrix(points, name, dim), distance)[0]
        best += [(point.id, float(far)) for point, far in zip(points, away, strict=True)]
        best = sorted(best, key=lambda hit: hit[1])[:k]
    return best
