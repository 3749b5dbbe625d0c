"""A hand-written migration over Qdrant's client: nothing is compared.

`start` writes whole points again, which takes one request for a batch; `backfill` writes the added
vectors, and the marks of a batch at once: then all points of a batch have the same, which says what
they are, not of which content. With `whole` it writes whole points with marks of their own, as
`start` does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from qdrant_client import models

from benchmarks.shared.live_tables import DIM, QDRANT_BATCH, qdrant_client
from benchmarks.shared.overhead_loops import make_vectors


def hand_qdrant(place: str, rows: int, step: str, *, whole: bool = False) -> float:
    """A named vector beside the old one, and marks in the payload."""
    client = qdrant_client(place)
    make_vectors("start", np.zeros((1, DIM), np.float32), None)
    began = time.perf_counter()
    if step == "start":
        _start(client)
    elif whole:
        _backfill_whole(client)
    else:
        _backfill(client)
    took = time.perf_counter() - began
    client.close()
    return took


def _start(client: Any) -> None:
    params = models.DenseVectorNameConfig(
        dense=models.DenseVectorConfig(size=DIM, distance=models.Distance.EUCLID)
    )
    client.create_vector_name("items", "new", params)
    kinds = {
        "generation": models.PayloadSchemaType.KEYWORD,
        "priority": models.PayloadSchemaType.FLOAT,
    }
    for name, kind in kinds.items():
        client.create_payload_index("items", name, kind, wait=True)
    for records in _pages(client):
        old = np.array([record.vector["vector"] for record in records], np.float32)
        new, variance = make_vectors("start", old, None)
        _write_whole(client, records, new, [_marks("aligned", float(each)) for each in variance])


def _write_whole(client: Any, records: list[Any], new: Any, marks: list[dict[str, Any]]) -> None:
    points = [
        models.PointStruct(
            id=record.id,
            vector={"vector": record.vector["vector"], "new": vector.tolist()},
            payload={**record.payload, **own},
        )
        for record, vector, own in zip(records, new, marks, strict=True)
    ]
    client.upsert("items", points, wait=True)


def _most_urgent(client: Any, **wanted: Any) -> Iterator[tuple[list[Any], Any]]:
    """Batches by falling priority, with their new vectors; each must be written before the next."""
    aligned = models.FieldCondition(key="generation", match=models.MatchValue(value="aligned"))
    order = models.OrderBy(key="priority", direction=models.Direction.DESC)
    while True:
        records, _ = client.scroll(
            "items",
            scroll_filter=models.Filter(must=[aligned]),
            order_by=order,
            limit=QDRANT_BATCH,
            **wanted,
        )
        if not records:
            return
        texts = [record.payload["text"] for record in records]
        yield records, make_vectors("backfill", None, texts)[0]


def _backfill_whole(client: Any) -> None:
    for records, new in _most_urgent(client, with_payload=True, with_vectors=["vector"]):
        _write_whole(client, records, new, [_marks("new", 0.0) for _ in records])


def _backfill(client: Any) -> None:
    for records, new in _most_urgent(client, with_payload=["text"]):
        points = [
            models.PointVectors(id=record.id, vector={"new": vector.tolist()})
            for record, vector in zip(records, new, strict=True)
        ]
        client.update_vectors("items", points, wait=True)
        ids = [record.id for record in records]
        client.set_payload("items", _marks("new", 0.0), points=ids, wait=True)


def _marks(generation: str, variance: float) -> dict[str, Any]:
    numbers = {"variance": variance, "priority": variance}
    return {"generation": generation, "model": "model", **numbers, "print": "0" * 32}


def _pages(client: Any) -> Iterator[list[Any]]:
    """All points in the order of their ids, which a write does not change."""
    offset = None
    while True:
        records, offset = client.scroll(
            "items", limit=QDRANT_BATCH, offset=offset, with_vectors=["vector"]
        )
        if records:
            yield records
        if offset is None:
            return
