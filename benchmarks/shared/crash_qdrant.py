"""Qdrant for the crash harness: its engine behind a process that can be killed."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import uuid
from typing import Any

from benchmarks.shared.crash_model import OLD
from benchmarks.shared.crash_worlds import Item
from benchmarks.shared.paths import ROOT
from fastfill.gallery import Id


class QdrantServer:
    """A process that serves a folder; killed and started again on the same port."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="crash-qdrant-")
        self.port = 0
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "benchmarks.shared.qdrant_server", self._folder.name]
        self._process = subprocess.Popen(
            [*command, str(self.port)], stdout=subprocess.PIPE, cwd=ROOT, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """SIGKILL, then start it again."""
        self._stop()
        self._start()

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def close(self) -> None:
        """Stop it and remove its files."""
        self._stop()
        self._folder.cleanup()


class QdrantWorld:
    """A collection of its own on a server that several worlds share; its vector may have a name."""

    def __init__(self, items: dict[str, Item], server: QdrantServer, vector: str) -> None:
        from qdrant_client import QdrantClient, models

        self._models, self._server, self._vector = models, server, vector
        self._name = f"items_{random.randrange(10**9)}"
        self.url = f"qdrant://127.0.0.1:{server.port}#{self._name}{'.' * bool(vector)}{vector}"
        self._client: Any = QdrantClient(
            host="127.0.0.1", port=server.port, check_compatibility=False, timeout=60
        )
        params: Any = models.VectorParams(size=OLD, distance=models.Distance.EUCLID)
        self._client.create_collection(self._name, {vector: params} if vector else params)
        self._client.upsert(self._name, [self._point(key, value) for key, value in items.items()])

    def _id(self, key: str) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, key))

    def _point(self, key: str, value: Item) -> Any:
        payload = {"key": key, "text": value.text, "album": value.album}
        vector: Any = {self._vector: list(value.vector)}
        return self._models.PointStruct(id=self._id(key), vector=vector, payload=payload)

    def insert(self, key: str, value: Item) -> None:
        """Write a whole point, as an application that does not know of the migration."""
        self._client.upsert(self._name, [self._point(key, value)], wait=True)

    def update(self, key: str, value: Item) -> None:
        """Write the whole point again, or its payload and its vector one after the other."""
        if random.random() < 0.5:
            self.insert(key, value)
            return
        point = self._point(key, value)
        self._client.set_payload(self._name, point.payload, points=[point.id], wait=True)
        vectors = self._models.PointVectors(id=point.id, vector=point.vector)
        self._client.update_vectors(self._name, [vectors], wait=True)

    def delete(self, key: str) -> None:
        """Delete one point."""
        self._client.delete(self._name, [self._id(key)], wait=True)

    def everything(self) -> dict[Id, Item]:
        """The owner's part of all points."""
        records, _ = self._client.scroll(self._name, limit=10**6, with_vectors=True)
        found: dict[Id, Item] = {}
        for record in records:
            vectors = record.vector
            vector = vectors[self._vector] if isinstance(vectors, dict) else vectors
            payload = record.payload
            extra = payload.keys() - {"key", "text", "album"}
            if extra:
                raise AssertionError(f"{payload['key']}: payload has {extra}")
            found[payload["key"]] = Item(payload["text"], tuple(vector), payload["album"])
        return found

    def kill_server(self) -> None:
        """Kill and restart the server."""
        self._server.kill()

    def close(self) -> None:
        """Leave the collection to the server's end."""
        self._client.close()
