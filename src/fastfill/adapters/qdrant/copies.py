"""A copy of a collection that is kept up to date until an alias stands for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from qdrant_client import models

from fastfill.adapters.qdrant.collection import QdrantCollection
from fastfill.adapters.qdrant.layout import QdrantLayout
from fastfill.adapters.qdrant.points import UNNAMED, payload_hash
from fastfill.gallery import Id

PASSES = 5  # over a collection to which others go on writing
Apply = Callable[[list[Any]], Any]  # what is done with points that have changed


def all_vectors(collection: QdrantCollection) -> list[str]:
    """The names of its vectors, dense and sparse."""
    sparse = collection.info().config.params.sparse_vectors
    return [*collection.vectors(), *(sparse or {})]


def vectors_of(point: Any) -> dict[str, Any]:
    """All vectors of a point by their names."""
    vectors = point.vector
    if vectors is None:
        return {}
    return dict(vectors) if isinstance(vectors, dict) else {UNNAMED: vectors}


def other_vectors(layout: QdrantLayout, point: Any) -> dict[str, Any]:
    """The vectors of a point that are no part of the migration."""
    own = (layout.old, layout.new)
    return {name: vector for name, vector in vectors_of(point).items() if name not in own}


def create_copy(layout: QdrantLayout, copy: QdrantCollection) -> None:
    """An empty collection like the owner's, whose old vector has the dimensions of the new one."""
    owner, size = layout.owner, {"size": layout.new_dim or 1}
    info = owner.info()
    params, config = info.config.params, info.config
    vectors = {
        name: wanted.model_copy(update=size) if name == layout.old else wanted
        for name, wanted in owner.vectors().items()
        if name != layout.new
    }
    copy.create(
        vectors_config=vectors[UNNAMED] if list(vectors) == [UNNAMED] else vectors,
        sparse_vectors_config=params.sparse_vectors,
        shard_number=params.shard_number,
        replication_factor=params.replication_factor,
        write_consistency_factor=params.write_consistency_factor,
        on_disk_payload=params.on_disk_payload,
        hnsw_config=_changes(models.HnswConfigDiff, config.hnsw_config),
        optimizers_config=_changes(models.OptimizersConfigDiff, config.optimizer_config),
        quantization_config=config.quantization_config,
    )
    for field, index in info.payload_schema.items():
        kind = index.params or index.data_type
        copy.ask("create_payload_index", field_name=field, field_schema=kind, wait=True)


def _changes(kind: Any, config: Any) -> Any:
    """A configuration as a wish."""
    values = config.model_dump(exclude_none=True)
    return kind(**{name: value for name, value in values.items() if name in kind.model_fields})


class Follower:
    """Passes over a collection, each of which sees what has changed since the one before."""

    def __init__(self, source: QdrantCollection, batch: int) -> None:
        self._source, self._batch = source, batch
        self._names = all_vectors(source)
        self.seen: dict[Id, Seen] = {}  # what each point was

    def follow(self, apply: Apply, forget: Callable[[Sequence[Id]], None]) -> int:
        """Apply what has changed, forget what is gone; how many points were these?"""
        changed, there = 0, set[Id]()
        for points in self._source.pages(self._batch, vectors=self._names, payload=True):
            there.update(point.id for point in points)
            now = {point.id: Seen.of(point) for point in points}
            fresh = [point for point in points if self.seen.get(point.id) != now[point.id]]
            if fresh:
                apply(fresh)
                self.seen |= {point.id: now[point.id] for point in fresh}
            changed += len(fresh)
        gone = [key for key in self.seen if key not in there]
        forget(gone)
        for key in gone:
            del self.seen[key]
        return changed + len(gone)


class Seen(NamedTuple):
    """A point as it was, as hashes."""

    payload: str
    vectors: str

    @classmethod
    def of(cls, point: Any) -> Seen:
        """A point as it is."""
        return cls(payload_hash(point.payload), payload_hash(vectors_of(point)))

    def vectors_changed(self, point: Any) -> bool:
        """Has any vector been written since?"""
        return self.vectors != payload_hash(vectors_of(point))


def same_vectors(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Are these the same, but for the last digits, which Qdrant changes when it normalises?"""
    return _rounded(one) == _rounded(other)


def _rounded(vectors: dict[str, Any]) -> dict[str, Any]:
    return {
        name: np.round(vector, 4).tolist() if isinstance(vector, list) else str(vector)
        for name, vector in vectors.items()
    }
