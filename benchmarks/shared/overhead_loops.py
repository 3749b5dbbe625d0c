"""Hand-written migrations over a bare client, for stores that need few lines: nothing is compared.

They read and write in batches as large as the client likes, vectors and marks as FastFill does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from benchmarks.shared.live_tables import (
    CHROMA_BATCH,
    DIM,
    REDIS_BATCH,
    SQLITE_BATCH,
    free,
    toy_alignment,
)
from fastfill.align import Alignment


@cache
def _alignment() -> Alignment:
    return toy_alignment()


def make_vectors(step: str, old: Any, texts: Any) -> tuple[Any, Any]:
    """Added vectors and their predicted errors: aligned at `start`, new when backfilling."""
    if step == "start":
        done = _alignment()(old)
        return done.vectors, done.variance
    return free(texts), np.zeros(len(texts), np.float32)


def hand_chroma(place: str, rows: int, step: str) -> float:
    """`get` and `upsert` of whole batches into a second collection, by falling priority."""
    import chromadb
    from chromadb.config import Settings

    client = chromadb.PersistentClient(place, settings=Settings(anonymized_telemetry=False))
    owner = client.get_collection("items", embedding_function=None)
    _alignment()
    began = time.perf_counter()
    second = client.get_or_create_collection("items__new", embedding_function=None)
    include: Any = ["metadatas", "embeddings"] if step == "start" else ["metadatas"]
    for ids in _chroma_batches(owner if step == "start" else second, step):
        block = owner.get(ids=ids, include=include)
        metadata: Any = block["metadatas"]
        texts = [each["text"] for each in metadata]
        old = np.asarray(block["embeddings"], np.float32) if step == "start" else None
        new, variance = make_vectors(step, old, texts)
        marks = {"generation": "aligned" if step == "start" else "new", "model": "model"}
        second.upsert(
            ids=block["ids"],
            embeddings=np.ascontiguousarray(new),
            metadatas=[
                {**each, **marks, "variance": float(v), "priority": float(v), "print": "0" * 32}
                for each, v in zip(metadata, variance, strict=True)
            ],
        )
    took = time.perf_counter() - began
    client.close()
    return took


def _chroma_batches(collection: Any, step: str) -> Iterator[list[str]]:
    """All ids as they come, or by falling priority."""
    ids = collection.get(include=[])["ids"]
    if step == "backfill":
        marks = collection.get(include=["metadatas"])
        order = np.argsort([-each["priority"] for each in marks["metadatas"]])
        ids = [marks["ids"][i] for i in order]
    for first in range(0, len(ids), CHROMA_BATCH):
        yield ids[first : first + CHROMA_BATCH]


def hand_redis(place: str, rows: int, step: str) -> float:
    """`HMGET` and `HSET` in pipelines, and an index of the added vectors to pick from."""
    import redis

    host, _, port = place.removeprefix("redis://").partition(":")
    client = redis.Redis(host=host, port=int(port), protocol=2)
    _alignment()
    began = time.perf_counter()
    if step == "start":
        client.execute_command(
            *("FT.CREATE", "items_new", "ON", "HASH", "PREFIX", 1, "item:", "SCHEMA"),
            *("generation", "TAG", "priority", "NUMERIC", "SORTABLE"),
            *("new", "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", DIM, "DISTANCE_METRIC", "L2"),
        )
    for keys in _redis_batches(client, rows, step):
        reading: Any = client.pipeline(transaction=False)
        for key in keys:
            reading.hmget(key, "text", "vector") if step == "start" else reading.hmget(key, "text")
        values = reading.execute()
        old = None
        if step == "start":
            old = np.stack([np.frombuffer(row[1], dtype=np.float32) for row in values])
        new, variance = make_vectors(step, old, [row[0] for row in values])
        writing: Any = client.pipeline(transaction=False)
        marks = {"generation": "aligned" if step == "start" else "new", "model": "model"}
        for key, vector, number in zip(keys, new, variance, strict=True):
            more = {"variance": float(number), "priority": float(number), "print": "0" * 40}
            writing.hset(key, mapping={"new": vector.tobytes(), **marks, **more})
        writing.execute()
    took = time.perf_counter() - began
    client.close()
    return took


def _redis_batches(client: Any, rows: int, step: str) -> Iterator[list[bytes]]:
    """All keys as they come, or by falling priority from the index."""
    if step == "start":
        keys = list(client.scan_iter(match="item:*", count=1_000))
    else:
        query = ("@generation:{aligned}", "SORTBY", "priority", "DESC", "LIMIT", 0, rows)
        keys = client.execute_command("FT.SEARCH", "items_new", *query, "NOCONTENT")[1:]
    for first in range(0, len(keys), REDIS_BATCH):
        yield keys[first : first + REDIS_BATCH]


def hand_sqlite(place: str, rows: int, step: str) -> float:
    """`UPDATE` by id in transactions of whole batches, and an index to pick from."""
    from fastfill.adapters.sqlite.connection import open_file

    connection = open_file(f"{place}/items.db")
    _alignment()
    began = time.perf_counter()
    if step == "start":
        for name in ("new", "generation", "model", "variance", "priority", "print"):
            connection.execute(f"ALTER TABLE items ADD COLUMN {name}")
        connection.execute("CREATE INDEX items_order ON items (generation, priority)")
    update = "UPDATE items SET new = ?, generation = ?, model = 'model', variance = ?, "
    update += "priority = ?, print = ? WHERE id = ?"
    for ids in _sqlite_batches(connection, step):
        marks = ", ".join("?" * len(ids))
        query = f"SELECT id, text, {'vector' if step == 'start' else 'NULL'} FROM items"
        keys, texts, vectors = zip(
            *connection.execute(f"{query} WHERE id IN ({marks})", ids), strict=True
        )
        old = None
        if step == "start":
            old = np.frombuffer(b"".join(vectors), dtype=np.float32).reshape(len(keys), DIM)
        new, variance = make_vectors(step, old, texts)
        generation = "aligned" if step == "start" else "new"
        blobs = [vector.tobytes() for vector in new]
        numbers = [float(number) for number in variance]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            update,
            [
                (blob, generation, number, number, "0" * 32, key)
                for blob, number, key in zip(blobs, numbers, keys, strict=True)
            ],
        )
        connection.execute("COMMIT")
    took = time.perf_counter() - began
    connection.close()
    return took


def _sqlite_batches(connection: Any, step: str) -> Iterator[list[str]]:
    """All ids as they come, or by falling priority from the index."""
    query = "SELECT id FROM items ORDER BY rowid"
    if step == "backfill":
        query = "SELECT id FROM items WHERE generation = 'aligned' ORDER BY priority DESC"
    ids = [key for (key,) in connection.execute(query)]
    for first in range(0, len(ids), SQLITE_BATCH):
        yield ids[first : first + SQLITE_BATCH]
