"""Redis for the crash harness: a real server that can be killed, with its log of commands."""

from __future__ import annotations

import random
import tempfile
from typing import Any

import numpy as np

from benchmarks.shared.crash_model import OLD
from benchmarks.shared.crash_worlds import Item
from benchmarks.shared.redis_server import RedisServer
from fastfill.gallery import Id


class TemporaryRedisServer(RedisServer):
    """A server over a folder that goes with it."""

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="crash-redis-")
        super().__init__(self._temporary.name, durable=True)

    def close(self) -> None:
        """End it and remove its files."""
        self.stop()
        self._temporary.cleanup()


class RedisWorld:
    """An index of its own on a server that several worlds share."""

    def __init__(self, items: dict[str, Item], server: RedisServer) -> None:
        self._server = server
        self._name = f"items_{random.randrange(10**9)}"
        self.url = f"redis://127.0.0.1:{server.port}#{self._name}.vector"
        self._client: Any = server.client()
        self._client.execute_command(
            *("FT.CREATE", self._name, "ON", "HASH", "PREFIX", 1, f"{self._name}:"),
            *("SCHEMA", "text", "TEXT", "album", "NUMERIC", "vector", "VECTOR", "FLAT", 6),
            *("TYPE", "FLOAT32", "DIM", OLD, "DISTANCE_METRIC", "L2"),
        )
        for key, value in items.items():
            self.insert(key, value)

    def insert(self, key: str, value: Item) -> None:
        """Write a hash, as an application that does not know of the migration."""
        vector = np.array(value.vector, dtype=np.float32).tobytes()
        fields = {"text": value.text, "album": value.album, "vector": vector}
        self._client.hset(f"{self._name}:{key}", mapping=fields)

    def update(self, key: str, value: Item) -> None:
        """Change the owner's fields of one hash."""
        self.insert(key, value)

    def delete(self, key: str) -> None:
        """Delete one hash."""
        self._client.delete(f"{self._name}:{key}")

    def everything(self) -> dict[Id, Item]:
        """The owner's fields of all hashes."""
        prefix, items = f"{self._name}:", dict[Id, Item]()
        for key in self._client.scan_iter(match=f"{prefix}*", count=1_000):
            text, album, vector = self._client.hmget(key, "text", "album", "vector")
            if text is None or album is None or vector is None:
                raise AssertionError(f"{key!r} has lost a field of its owner's")
            numbers = tuple(np.frombuffer(vector, dtype=np.float32).tolist())
            items[key.decode().removeprefix(prefix)] = Item(text.decode(), numbers, int(album))
        return items

    def kill_server(self) -> None:
        """Kill and restart the server."""
        self._server.kill()

    def close(self) -> None:
        """Leave the hashes to the server's end."""
        self._client.close()
