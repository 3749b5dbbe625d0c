"""The way to Chroma: a server, or a folder that this process opens, behind the same calls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import chromadb
import httpx
from chromadb.config import Settings
from chromadb.errors import ChromaError, NotFoundError

from fastfill.errors import InputError, StoreError
from fastfill.gallery.base import backoff

KEY = "CHROMA_API_KEY"
PORT = 8_000
TRIES = 8  # of a read that meets a record which is being deleted
DELETED_MEANWHILE = "Error finding id"  # what Chroma says then
T = TypeVar("T")
QUIET = Settings(anonymized_telemetry=False)


class ChromaConnection:
    """A client whose errors are sentences for people."""

    def __init__(self, client: Any, name: str, *, local: bool) -> None:
        self._client = client
        self.name = name
        self.local = local

    @property
    def client(self) -> Any:
        """The client, until it is closed."""
        if self._client is None:
            raise StoreError(f"{self.name} has been closed.")
        return self._client

    @property
    def folder(self) -> Path | None:
        """The folder that this process has opened; None of a server."""
        return Path(self.name.removeprefix("chroma://")) if self.local else None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What goes wrong inside is a `StoreError` with one line."""
        try:
            yield
        except httpx.HTTPError as error:
            raise StoreError(f"{self.name} cannot be reached: {_reason(error)}") from error
        except (ChromaError, ValueError, TypeError) as error:
            raise StoreError(f"{self.name}: {_reason(error)}") from error

    def read(self, work: Callable[[], T]) -> T:
        """Read again where a record was deleted while Chroma was looking for its vector."""
        for wait in islice(backoff(0.01, 0.5), TRIES):
            try:
                return work()
            except ChromaError as error:
                if DELETED_MEANWHILE not in str(error):
                    raise
                time.sleep(wait)
        return work()

    def find(self, name: str) -> Any | None:
        """The collection of this name as it is now, or None; its own embedder stays out of it."""
        with self.errors():
            try:
                return self.client.get_collection(name, embedding_function=None)
            except NotFoundError:
                return None

    def names(self) -> set[str]:
        """Of all collections."""
        with self.errors():
            return {str(each.name) for each in self.client.list_collections()}

    def create(self, name: str, metadata: dict[str, Any], hnsw: dict[str, Any]) -> Any:
        """Make a collection; where another process was faster, take its own."""
        with self.errors():
            return self.client.get_or_create_collection(
                name, metadata=metadata, configuration={"hnsw": hnsw}, embedding_function=None
            )

    def rename(self, name: str, other: str, metadata: dict[str, Any] | None = None) -> None:
        """Give a collection another name, and metadata, if it is there."""
        collection = self.find(name)
        if collection is not None:
            with self.errors():
                collection.modify(name=other, metadata=metadata)

    def drop(self, name: str) -> None:
        """Delete a collection, if it is there."""
        with self.errors():
            try:
                self.client.delete_collection(name)
            except NotFoundError:
                return

    def close(self) -> None:
        """Let go of the client; a folder stays open while others of this process use it."""
        if self._client is not None:
            close_client(self._client)
        self._client = None


def close_client(client: Any) -> None:
    """Close a client and its two connections to a server, which its own `close` leaves open."""
    servers = [client._server, client._admin_client._server]
    client.close()
    for server in servers:
        if hasattr(server, "_session"):
            server._session.close()


def open_server(place: str, *, https: bool = False) -> ChromaConnection:
    """The server at HOST[:PORT], with the key of the environment if there is one."""
    host, _, port = place.strip("/").partition(":")
    if "@" in place:
        raise InputError(f"Keep the key out of the URL: put it into {KEY}.")
    if not host or not (port or str(PORT)).isdigit():
        raise InputError(f"'{place}' is not a server: use chroma+http://HOST:PORT#COLLECTION.")
    name = f"chroma+{'https' if https else 'http'}://{host}:{port or PORT}"
    key = os.environ.get(KEY)
    try:
        client = chromadb.HttpClient(
            host,
            int(port or PORT),
            ssl=https,
            headers={"x-chroma-token": key} if key else None,
            settings=Settings(anonymized_telemetry=False),
            **_database(),
        )
    except (ChromaError, httpx.HTTPError, ValueError) as error:
        raise StoreError(f"{name} cannot be reached: {_reason(error)}") from error
    return ChromaConnection(client, name, local=False)


def open_folder(place: str) -> ChromaConnection:
    """The folder, opened by this process."""
    if not (Path(place) / "chroma.sqlite3").is_file():
        raise StoreError(f"{place} is not a folder of Chroma's.")
    name = f"chroma://{place}"
    try:
        client = _enter(place)
    except (ChromaError, ValueError) as error:
        raise StoreError(f"{name}: {_reason(error)}") from error
    return ChromaConnection(client, name, local=True)


def _enter(place: str) -> Any:
    try:
        return chromadb.PersistentClient(place, settings=QUIET, **_database())
    except ValueError as error:
        if "different settings" not in str(error):
            raise
        # The application has opened the folder in this process, with settings of its own choice.
        return chromadb.PersistentClient(place, **_database())


def _database() -> dict[str, str]:
    """Tenant and database of the environment, where there are any."""
    wanted = {"tenant": "CHROMA_TENANT", "database": "CHROMA_DATABASE"}
    return {name: os.environ[key] for name, key in wanted.items() if os.environ.get(key)}


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
