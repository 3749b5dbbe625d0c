"""A real Chroma server for tests and benchmarks: the one that its wheel brings."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
STARTS_IN = 120.0  # seconds, on a busy machine


class ChromaServer:
    """`chroma run` over a folder; it can be killed and started again on the same port."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = int(free.getsockname()[1])
        self._start()

    def client(self) -> Any:
        """A client as an application would make it, without telemetry."""
        import chromadb
        from chromadb.config import Settings

        return chromadb.HttpClient(HOST, self.port, settings=Settings(anonymized_telemetry=False))

    def _start(self) -> None:
        command = Path(sys.executable).with_name("chroma")
        self._process = subprocess.Popen(
            [command, "run", "--path", self._folder, "--host", HOST, "--port", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "ANONYMIZED_TELEMETRY": "False"},
        )
        deadline = time.monotonic() + STARTS_IN
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError("chroma run has not started")
            time.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0

    def kill(self) -> None:
        """SIGKILL, then start it again."""
        self.stop()
        self._start()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
