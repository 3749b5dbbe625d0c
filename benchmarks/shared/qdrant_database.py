"""Collections and aliases over Qdrant's embedded engine: what a server keeps around its shards.

Points, vectors, filters and conditions are the engine's own, the one that the server is made of. A
collection is one shard in a folder. Collections appear and vanish by renaming their folder, so a
killed process leaves each of them whole; a shard replays its write-ahead log when it is opened.
"""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import qdrant_edge as edge
from qdrant_client import models

from benchmarks.shared.qdrant_requests import (
    as_distance,
    as_filter,
    as_kind,
    as_order,
    as_point_vectors,
    as_points,
    hit,
    kind_of,
    page,
    record,
)

VERSION = "1.18.0"  # the first server with all that this engine does
NO_VECTORS = "none"  # a sparse vector that nobody uses: the engine wants at least one
Update = edge.UpdateOperation


class QdrantDatabase:
    """A folder of collections; whoever calls takes turns."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._shards: dict[str, Any] = {}
        for each in self._folder.glob("*.new"):
            shutil.rmtree(each)
        for each in sorted(self._folder.glob("*.shard")):
            self._shards[each.stem] = edge.EdgeShard.load(str(each))

    # --- collections and aliases ---------------------------------------------------------------

    def aliases(self) -> dict[str, str]:
        """Aliases with their collections."""
        file = self._folder / "aliases.json"
        every = json.loads(file.read_text()) if file.exists() else {}
        return {alias: name for alias, name in every.items() if name in self._shards}

    def names(self) -> list[str]:
        """Of all collections."""
        return list(self._shards)

    def exists(self, name: str) -> bool:
        """Is there such a collection or alias?"""
        return name in self._shards or name in self.aliases()

    def create(self, name: str, wanted: models.CreateCollection) -> bool:
        """Make a collection."""
        if self.exists(name):
            raise ValueError(f"Wrong input: Collection `{name}` already exists!")
        given = wanted.vectors if wanted.vectors is not None else {}
        params = {"": given} if isinstance(given, models.VectorParams) else given
        vectors = {
            key: edge.EdgeVectorParams(size=each.size, distance=as_distance(each.distance))
            for key, each in params.items()
        }
        config = edge.EdgeConfig(
            vectors=vectors or None,
            sparse_vectors=None if vectors else {NO_VECTORS: edge.EdgeSparseVectorParams()},
        )
        making = self._folder / f"{uuid.uuid4().hex}.new"
        edge.EdgeShard.create(str(making), config).close()
        self._shards[name] = edge.EdgeShard.load(str(making.rename(self._path(name))))
        return True

    def drop(self, name: str) -> bool:
        """Delete a collection; its aliases go with it."""
        shard = self._shards.pop(name, None)
        if shard is not None:
            shard.close()
            shutil.rmtree(self._path(name).rename(self._folder / f"{uuid.uuid4().hex}.new"))
        return shard is not None

    def change_aliases(self, actions: Any) -> bool:
        """Create, delete and rename aliases: all of it, or with an error nothing."""
        every = self.aliases()
        for action in actions:
            if isinstance(action, models.CreateAliasOperation):
                name, real = action.create_alias.alias_name, action.create_alias.collection_name
            elif isinstance(action, models.RenameAliasOperation):
                name = action.rename_alias.new_alias_name
                real = every.pop(action.rename_alias.old_alias_name)
            else:
                every.pop(action.delete_alias.alias_name, None)
                continue
            if name in self._shards:
                raise ValueError(f"Wrong input: Collection `{name}` already exists!")
            if real not in self._shards:
                raise KeyError(f"Collection `{real}` doesn't exist!")
            every[name] = real
        draft = self._folder / "aliases.draft"
        draft.write_text(json.dumps(every))
        draft.replace(self._folder / "aliases.json")
        return True

    def info(self, name: str) -> models.CollectionInfo:
        """What is known of a collection: its vectors and indexes are the shard's."""
        shard = self._shard(name)
        told, schema = shard.info(), {}
        for key, index in told.payload_schema.items():
            schema[key] = models.PayloadIndexInfo(data_type=kind_of(index), points=index.points)
        return models.CollectionInfo(
            status=models.CollectionStatus.GREEN,
            optimizer_status=models.OptimizersStatusOneOf.OK,
            indexed_vectors_count=told.indexed_vectors_count,
            points_count=told.points_count,
            segments_count=told.segments_count,
            payload_schema=schema,
            config=models.CollectionConfig(
                params=models.CollectionParams(vectors=self._vectors(name)),
                hnsw_config=models.HnswConfig(m=16, ef_construct=100, full_scan_threshold=10_000),
                wal_config=models.WalConfig(wal_capacity_mb=32, wal_segments_ahead=0),
                optimizer_config=models.OptimizersConfig(
                    deleted_threshold=0.2,
                    vacuum_min_vector_number=1_000,
                    default_segment_number=0,
                    flush_interval_sec=5,
                ),
            ),
        )

    def _vectors(self, name: str) -> Any:
        real = self.aliases().get(name, name)
        config = json.loads((self._path(real) / "edge_config.json").read_text())
        vectors = {
            key: models.VectorParams(size=each["size"], distance=models.Distance(each["distance"]))
            for key, each in config["vectors"].items()
        }
        return vectors[""] if list(vectors) == [""] else vectors

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.shard"

    def _shard(self, name: str) -> Any:
        shard = self._shards.get(self.aliases().get(name, name))
        if shard is None:
            raise KeyError(f"Collection `{name}` doesn't exist!")
        return shard

    # --- vectors and indexes -------------------------------------------------------------------

    def create_vector(self, name: str, vector: str, body: Any) -> Any:
        """Add a named vector."""
        wanted = body.dense
        return self._update(
            name, Update.create_dense_vector(vector, wanted.size, as_distance(wanted.distance))
        )

    def drop_vector(self, name: str, vector: str) -> Any:
        """Delete a named vector."""
        return self._update(name, Update.delete_vector_name(vector))

    def create_index(self, name: str, body: models.CreateFieldIndex) -> Any:
        """Index a key of the payload."""
        return self._update(
            name, Update.create_field_index(body.field_name, as_kind(body.field_schema))
        )

    # --- points --------------------------------------------------------------------------------

    def scroll(self, name: str, body: models.ScrollRequest) -> Any:
        """A page of points."""
        request = edge.ScrollRequest(
            offset=body.offset,
            limit=body.limit or 10,
            filter=as_filter(body.filter),
            with_payload=body.with_payload,
            with_vector=body.with_vector or False,
            order_by=as_order(body.order_by),
        )
        return page(self._shard(name).scroll(request))

    def retrieve(self, name: str, body: models.PointRequest) -> Any:
        """Points by their ids."""
        payload = True if body.with_payload is None else body.with_payload
        points = self._shard(name).retrieve(body.ids, payload, body.with_vector or False)
        return [record(point) for point in points]

    def count(self, name: str, body: models.CountRequest) -> Any:
        """How many points there are."""
        wanted = edge.CountRequest(filter=as_filter(body.filter), exact=True)
        return {"count": self._shard(name).count(wanted)}

    def facet(self, name: str, body: models.FacetRequest) -> Any:
        """How many points have each value of a key."""
        if body.key not in self._shard(name).info().payload_schema:
            raise ValueError(f"Bad request: No appropriate index for faceting: `{body.key}`")
        wanted = edge.FacetRequest(
            body.key, limit=body.limit or 10, exact=bool(body.exact), filter=as_filter(body.filter)
        )
        hits = self._shard(name).facet(wanted).hits
        return {"hits": [{"value": each.value, "count": each.count} for each in hits]}

    def query(self, name: str, body: models.QueryRequest) -> Any:
        """The nearest points, or random ones."""
        query: Any = body.query
        if isinstance(query, models.SampleQuery):
            wanted: Any = edge.Sample.Random
        else:
            wanted = edge.Query.Nearest(getattr(query, "nearest", query), using=body.using)
        exact = bool(body.params and body.params.exact)
        request = edge.QueryRequest(
            limit=body.limit or 10,
            query=wanted,
            filter=as_filter(body.filter),
            with_payload=body.with_payload or False,
            params=edge.SearchParams(exact=True) if exact else None,
        )
        return {"points": [hit(point) for point in self._shard(name).query(request)]}

    def upsert(self, name: str, body: models.PointsList) -> Any:
        """Write whole points, those that exist on a condition."""
        condition = as_filter(body.update_filter)
        return self._update(name, Update.upsert_points(as_points(body.points), condition))

    def put_vectors(self, name: str, body: models.UpdateVectors) -> Any:
        """Write vectors of points that exist."""
        return self._update(name, Update.update_vectors(as_point_vectors(body.points)))

    def chosen(self, name: str, operation: str, body: Any, *values: Any) -> Any:
        """An operation on the points that the body names, or that fit its filter."""
        if getattr(body, "points", None):
            return self._update(name, getattr(Update, operation)(body.points, *values))
        by_filter = getattr(Update, f"{operation}_by_filter")
        return self._update(name, by_filter(as_filter(body.filter), *values))

    def _update(self, name: str, operation: Any) -> Any:
        self._shard(name).update(operation)
        return {"operation_id": 0, "status": "completed"}
