"""Chroma for the crash harness: a real server that can be killed."""

from __future__ import annotations

import random
import tempfile
from typing import Any

import numpy as np

from benchmarks.shared.chroma_server import ChromaServer
from benchmarks.shared.crash_worlds import Item
from fastfill.gallery import Id


class TemporaryChromaServer(ChromaServer):
    """A server over a folder that goes with it."""

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(
            prefix="crash-chroma-", ignore_cleanup_errors=True
        )
        super().__init__(self._temporary.name)

    def close(self) -> None:
        """End it and remove its files."""
        self.stop()
        self._temporary.cleanup()


class ChromaWorld:
    """A collection of its own on a server that several worlds share."""

    def __init__(self, items: dict[str, Item], server: ChromaServer) -> None:
        self._server = server
        name = f"items_{random.randrange(10**9)}"
        self.url = f"chroma+http://127.0.0.1:{server.port}#{name}"
        self._client: Any = server.client()
        self._collection: Any = self._client.create_collection(name, embedding_function=None)
        self._write("add", items)

    def _write(self, method: str, items: dict[str, Item]) -> None:
        getattr(self._collection, method)(
            ids=list(items),
            embeddings=[list(value.vector) for value in items.values()],
            metadatas=[{"text": value.text, "album": value.album} for value in items.values()],
        )

    def insert(self, key: str, value: Item) -> None:
        """Add a record, as an application that does not know of the migration."""
        self._write("add", {key: value})

    def update(self, key: str, value: Item) -> None:
        """Change one record."""
        self._write("update", {key: value})

    def delete(self, key: str) -> None:
        """Delete one record."""
        self._collection.delete(ids=[key])

    def everything(self) -> dict[Id, Item]:
        """The owner's part of all records."""
        answer = self._collection.get(include=["metadatas", "embeddings"])
        rows = zip(answer["ids"], answer["metadatas"], answer["embeddings"], strict=True)
        items: dict[Id, Item] = {}
        for key, metadata, vector in rows:
            extra = metadata.keys() - {"text", "album"}
            if extra:
                raise AssertionError(f"{key}: metadata has {extra}")
            numbers = np.asarray(vector, np.float32)  # the answer has decimals of these
            items[key] = Item(metadata["text"], tuple(numbers.tolist()), metadata["album"])
        return items

    def kill_server(self) -> None:
        """Kill and restart the server."""
        self._server.kill()

    def close(self) -> None:
        """Leave the collection to the server's end."""
        self._client.close()
