"""`fastfill doctor`: what stores can tell of themselves."""

from __future__ import annotations

from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.gallery import Gallery, Inspectable
from fastfill.migrate.doctor import diagnose
from fastfill.wiring import open_store

ROWS, DIM = 40, 4


def values(key: str | None) -> dict[str, list[Any]]:
    """Rows of which one has no text and one a vector of zeros; None for numbers as ids."""
    vectors = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
    vectors[7] = 0
    texts: list[Any] = [f"text {n}" for n in range(ROWS)]
    texts[8] = None
    ids = [n if key is None else f"{key}{n}" for n in range(ROWS)]
    return {"id": ids, "text": texts, "album": [1] * ROWS, "vector": vectors.tolist()}


def wrong(url: str) -> dict[str, str]:
    """The checks that are not well, and what they say."""
    store = open_store(url)
    try:
        found = diagnose(Gallery(store, input="text"))
    finally:
        store.close()
    assert found.random
    return {check.name: check.text for check in found.checks if check.level != "ok"}


def test_a_folder_of_chroma_is_looked_at(tmp_path: Path) -> None:
    """Type, index and disk are told; records without input, or zero, are found."""
    pytest.importorskip("chromadb", reason="chromadb is not installed")
    from chroma_world import fill, open_owner

    owner = open_owner(tmp_path)
    fill(owner, values(""))
    assert wrong(f"chroma://{tmp_path}#photos").keys() == {"missing inputs", "zero vectors"}
    store = Gallery(open_store(f"chroma://{tmp_path}#photos"), input="text").store
    assert isinstance(store, Inspectable)
    seen = store.inspect(10, seed=1)
    store.close()
    assert (seen.kind, len(seen.ids), seen.dims) == ("4 dimensions, l2", 10, {DIM: 10})
    assert [(index.kind, index.distance) for index in seen.indexes] == [("hnsw", "l2")]
    assert seen.free_bytes
    assert not seen.missing_permissions


def test_an_index_of_redis_is_looked_at(redis_owner: Any, redis_place: str) -> None:
    """A vector that Redis has left out of its index is found by its length."""
    from redis_world import fill

    fill(redis_owner, values("photo:"), dim=DIM)
    url = f"{redis_place}#photos.vector"
    assert wrong(url).keys() == {"missing inputs", "zero vectors"}
    for n in range(10, 20):
        redis_owner.hset(f"photo:{n}", "vector", np.zeros(3, np.float32).tobytes())
    found = wrong(url)
    assert "indexes" in found
    assert "lacks more than a tenth of the rows" in found["indexes"]
    assert "10 of 3" in found["mixed dimensions"]


def test_the_memory_and_the_rights_of_redis_are_told(redis_owner: Any, redis_place: str) -> None:
    """What is left of `maxmemory`, and commands that the user may not run."""
    from redis_world import fill

    fill(redis_owner, values("photo:"), dim=DIM)
    store = Gallery(open_store(f"{redis_place}#photos.vector"), input="text").store
    assert isinstance(store, Inspectable)
    assert store.inspect(10, seed=1).free_bytes is None
    try:
        redis_owner.config_set("maxmemory", "1gb")
        redis_owner.execute_command("ACL", "SETUSER", "default", "-hdel")
        seen = store.inspect(10, seed=1)
    finally:
        redis_owner.config_set("maxmemory", "0")
        redis_owner.execute_command("ACL", "SETUSER", "default", "+hdel")
        store.close()
    assert seen.free_bytes is not None
    assert 0 < seen.free_bytes < 1 << 30
    assert seen.missing_permissions == ("run HDEL",)


def versions(url: str) -> str:
    """What the doctor says of them."""
    with closing(open_store(url)) as store:
        found = diagnose(Gallery(store, input="text", distance="l2"))
    return next(check.text for check in found.checks if check.name == "versions")


def test_the_versions_of_postgresql_are_told(postgres: str) -> None:
    """That of the server, and of pgvector in this database."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    with psycopg.connect(postgres) as owner:
        owner.execute("CREATE TABLE photos (id int PRIMARY KEY, text text, vector vector(3))")
        [server] = owner.execute("SHOW server_version").fetchone()
        query = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
        [extension] = owner.execute(query).fetchone()
    assert versions(f"{postgres}#photos.vector") == f"PostgreSQL {server}, pgvector {extension}"


def test_the_version_of_qdrant_is_told(qdrant_owner: Any, qdrant_server: str) -> None:
    """That of the server, not of the client."""
    from qdrant_world import fill

    fill(qdrant_owner, values(None), vector="vector", dim=DIM)
    told = qdrant_owner.info().version
    assert versions(f"qdrant://{qdrant_server}#photos.vector") == f"Qdrant {told}"


def test_the_version_of_chroma_is_told(chroma_owner: Any, chroma_place: str) -> None:
    """As the server tells it."""
    from chroma_world import fill

    fill(chroma_owner, values(""))
    assert versions(f"{chroma_place}#photos") == f"Chroma {chroma_owner.get_version()}"


def test_the_versions_of_redis_are_told(redis_owner: Any, redis_place: str) -> None:
    """That of the server, and of its search module, whose number Redis tells as one."""
    from redis_world import fill

    fill(redis_owner, values("photo:"), dim=DIM)
    info = redis_owner.info("everything")
    told = f"Redis {info['redis_version']}, search module {info['search_version']}"
    assert versions(f"{redis_place}#photos.vector") == told


def test_the_versions_of_sqlite_are_told(tmp_path: Path) -> None:
    """That of the library in use, which may not be Python's own, and of the extension."""
    sqlite_vec = pytest.importorskip("sqlite_vec", reason="sqlite-vec is not installed")
    from sqlite_world import fill

    from fastfill.adapters.sqlite.connection import client

    columns = "id INTEGER PRIMARY KEY, text TEXT, album INTEGER, vector BLOB"
    fill(tmp_path / "photos.db", values(None), f"CREATE TABLE photos ({columns})")
    told = versions(f"sqlite://{tmp_path / 'photos.db'}#photos.vector")
    assert told == f"SQLite {client().sqlite_version}, sqlite-vec {sqlite_vec.__version__}"


def test_the_version_of_lancedb_is_told(tmp_path: Path) -> None:
    """The package is the whole database."""
    lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
    rows = [{"id": 1, "text": "a", "vector": [1.0, 0.0]}]
    lancedb.connect(tmp_path).create_table("photos", rows)
    told = versions(f"lance://{tmp_path}#photos.vector")
    assert told == f"LanceDB {version('lancedb')}"
