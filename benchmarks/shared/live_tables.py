"""Tables of made-up items for benchmarks of migrations, in each of the stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastfill.align import Alignment
from fastfill.features import Features, Pairs

DIM = 256
BLOCK = 20_000
CHROMA_BATCH = 4_096
REDIS_BATCH = 2_000
SQLITE_BATCH = 4_096
QDRANT_BATCH = 1_000


def vectors(first: int, count: int) -> Any:
    """Old vectors of items, the same in every process."""
    return np.random.default_rng(first).standard_normal((count, DIM)).astype(np.float32)


def toy_alignment() -> Alignment:
    """A linear map between two toy models."""
    old = vectors(0, 2_000)
    new = old @ np.random.default_rng(1).standard_normal((DIM, DIM)).astype(np.float32) / 16
    return Alignment.fit(Pairs(Features(old), Features(new)), method="ridge", distance="l2")


def fill_lance(place: str, rows: int, index: bool) -> str:
    """A table of `rows` items; returns its URL."""
    import lancedb
    import pyarrow as pa

    database, table = lancedb.connect(place), None
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        flat = pa.array(vectors(first, count).ravel())
        block = pa.table(
            {
                "id": [f"item-{n}" for n in range(first, first + count)],
                "text": [f"text of item {n}" for n in range(first, first + count)],
                "vector": pa.FixedSizeListArray.from_arrays(flat, DIM),
            }
        )
        if table is None:
            table = database.create_table("items", block)
        else:
            table.add(block)
    if index and table is not None:
        from lancedb.index import IvfSq

        table.optimize()
        table.create_index("vector", config=IvfSq(distance_type="l2"))
    return f"lance://{place}#items.vector"


def fill_postgres(place: str, rows: int, index: bool) -> str:
    """A table of `rows` items; returns its URL."""
    import psycopg

    from fastfill.adapters.postgres.binary import vector_bytes

    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(
            "DROP TABLE IF EXISTS items, items_by_hand, items_ff_vector, items_ff_vector_notes, "
            "fastfill_documents"
        )
        connection.execute(
            f"CREATE TABLE items (id text PRIMARY KEY, text text, vector vector({DIM}))"
        )
        for first in range(0, rows, BLOCK):
            count = min(BLOCK, rows - first)
            block = vector_bytes(vectors(first, count))
            with connection.cursor().copy("COPY items FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["text", "text", "bytea"])  # a vector's own bytes
                for n, vector in enumerate(block, first):
                    copy.write_row((f"item-{n}", f"text of item {n}", vector))
        connection.execute("ANALYZE items")
        if index:
            # Every update of a row adds to the index again; with HNSW either loop takes an hour.
            connection.execute("CREATE INDEX ON items USING ivfflat (vector vector_l2_ops)")
    return f"{place}#items.vector"


def fill_chroma(place: str, rows: int, index: bool) -> str:
    """A collection of `rows` items in a folder; returns its URL. Chroma always has an index."""
    import chromadb
    from chromadb.config import Settings

    client = chromadb.PersistentClient(place, settings=Settings(anonymized_telemetry=False))
    collection = client.create_collection("items", embedding_function=None)
    for first in range(0, rows, CHROMA_BATCH):
        numbers = range(first, min(first + CHROMA_BATCH, rows))
        collection.add(
            ids=[f"item-{n}" for n in numbers],
            embeddings=vectors(first, len(numbers)),
            metadatas=[{"text": f"text of item {n}"} for n in numbers],
        )
    client.close()
    return f"chroma://{place}#items"


def fill_redis(place: str, rows: int, index: bool) -> str:
    """Hashes of `rows` items and an index of them, approximate or exact; returns its URL."""
    import redis

    host, _, port = place.removeprefix("redis://").partition(":")
    client = redis.Redis(host=host, port=int(port), protocol=2)
    client.execute_command(
        *("FT.CREATE", "items", "ON", "HASH", "PREFIX", 1, "item:", "SCHEMA", "vector", "VECTOR"),
        *("HNSW" if index else "FLAT", 6, "TYPE", "FLOAT32", "DIM", DIM, "DISTANCE_METRIC", "L2"),
    )
    for first in range(0, rows, REDIS_BATCH):
        pipeline: Any = client.pipeline(transaction=False)
        for n, vector in enumerate(vectors(first, min(REDIS_BATCH, rows - first)), first):
            fields = {"text": f"text of item {n}", "vector": vector.tobytes()}
            pipeline.hset(f"item:{n}", mapping=fields)
        pipeline.execute()
    client.close()
    return f"{place}#items.vector"


def fill_sqlite(place: str, rows: int, index: bool) -> str:
    """A table of `rows` items in a file; returns its URL. sqlite-vec has no index of vectors."""
    from pathlib import Path

    from fastfill.adapters.sqlite.connection import open_file

    path = Path(place) / "items.db"
    path.touch()
    connection = open_file(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE items (id TEXT PRIMARY KEY, text TEXT, vector BLOB)")
    for first in range(0, rows, SQLITE_BATCH):
        block = enumerate(vectors(first, min(SQLITE_BATCH, rows - first)), first)
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO items VALUES (?, ?, ?)",
            [(f"item-{n}", f"text of item {n}", vector.tobytes()) for n, vector in block],
        )
        connection.execute("COMMIT")
    connection.close()
    return f"sqlite://{path}#items.vector"


def qdrant_client(place: str) -> Any:
    """A client of the server at `qdrant://HOST:PORT`."""
    from qdrant_client import QdrantClient

    host, _, port = place.removeprefix("qdrant://").partition(":")
    return QdrantClient(host=host, port=int(port), check_compatibility=False, timeout=60)


def fill_qdrant(place: str, rows: int, index: bool) -> str:
    """A collection of `rows` points with a named vector; returns its URL."""
    from qdrant_client import models

    client = qdrant_client(place)
    params = models.VectorParams(size=DIM, distance=models.Distance.EUCLID)
    client.create_collection("items", {"vector": params})
    for first in range(0, rows, QDRANT_BATCH):
        block = enumerate(vectors(first, min(QDRANT_BATCH, rows - first)), first)
        points = [
            models.PointStruct(
                id=n, vector={"vector": vector.tolist()}, payload={"text": f"text of item {n}"}
            )
            for n, vector in block
        ]
        client.upsert("items", points, wait=True)
    client.close()
    return f"{place}#items.vector"


FILL: dict[str, Callable[[str, int, bool], str]] = {
    "lance": fill_lance,
    "postgres": fill_postgres,
    "chroma": fill_chroma,
    "redis": fill_redis,
    "sqlite": fill_sqlite,
    "qdrant": fill_qdrant,
}


def free(texts: Any) -> Any:
    """An encoder that costs nothing: every text has the same vector."""
    return np.broadcast_to(np.linspace(0.1, 1, DIM, dtype=np.float32), (len(texts), DIM))
