"""The way to Qdrant: a server, or a folder in the client's local mode, behind the same calls."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from fastfill.errors import InputError, StoreError

KEY = "QDRANT_API_KEY"
PORT = 6_333
TIMEOUT = 60  # seconds
CONDITIONAL = (1, 16)  # the first version whose updates take a condition
NAMING = (1, 18)  # the first version that adds a named vector to a collection that exists
ORDERED: dict[str, Any] = {"wait": True, "ordering": models.WriteOrdering.STRONG}
AGREED: dict[str, Any] = {"consistency": models.ReadConsistencyType.QUORUM}

# Local mode locks its folder, so all stores of a process share one client for a folder. It is not
# made for threads, so they take turns.
_folders: weakref.WeakValueDictionary[str, _LocalClient] = weakref.WeakValueDictionary()


class _LocalClient(QdrantClient):
    """A folder's client with the lock of those who share it."""

    def __init__(self, path: str) -> None:
        super().__init__(path=path, force_disable_check_same_thread=True)
        self.turn = threading.RLock()


class QdrantConnection:
    """A client whose errors are sentences for people."""

    def __init__(self, client: Any, name: str, turn: Any = None) -> None:
        self.name = name
        self.local = turn is not None
        self._client = client
        self._turn = turn or nullcontext()
        told = self.ask("info").version
        self.version = _version(told)
        self.software = f"{'qdrant-client' if self.local else 'Qdrant'} {told}"  # which answers
        if self.version < CONDITIONAL:
            raise StoreError(
                f"{name} is Qdrant {_dotted(self.version)}; FastFill needs {_dotted(CONDITIONAL)} "
                "or newer, whose updates take a condition."
            )

    @property
    def names_vectors(self) -> bool:
        """Can a named vector be added to a collection that exists?"""
        return self.version >= NAMING

    def names(self) -> set[str]:
        """Of all collections and aliases."""
        collections = {each.name for each in self.ask("get_collections").collections}
        return collections | {alias.alias_name for alias in self.ask("get_aliases").aliases}

    def ask(self, method: str, *, missing_ok: bool = False, **options: Any) -> Any:
        """Call the client; with `missing_ok` points that are gone are no error."""
        return self._call(lambda client: getattr(client, method)(**options), missing_ok)

    def send(
        self,
        verb: str,
        collection: str,
        path: str,
        data: bytes,
        *,
        params: dict[str, str] | None = None,
        missing_ok: bool = False,
    ) -> Any:
        """The plain result of a request to a server about the points of a collection."""
        request: dict[str, Any] = {
            "type_": dict,
            "method": verb,
            "url": f"/collections/{{collection_name}}/points{path}",
            "path_params": {"collection_name": collection},
            "headers": {"Content-Type": "application/json"},
            "params": params or {},
            "content": data,
        }
        answer = self._call(lambda client: client.http.client.request(**request), missing_ok)
        return None if answer is None else answer["result"]

    def _call(self, work: Callable[[Any], Any], missing_ok: bool) -> Any:
        if self._client is None:
            raise StoreError(f"{self.name} has been closed.")
        try:
            with self._turn, warnings.catch_warnings():
                if self.local:
                    warnings.simplefilter("ignore")
                return work(self._client)
        except UnexpectedResponse as error:
            if missing_ok and error.status_code == 404:
                return None
            raise StoreError(f"{self.name}: {_reason(error)}") from error
        except ResponseHandlingException as error:
            raise StoreError(f"{self.name} cannot be reached: {error.source}") from error
        except KeyError as error:  # local mode's 404
            if missing_ok:
                return None
            raise StoreError(f"{self.name}: there is no point {error}.") from error
        except (ValueError, RuntimeError, OSError) as error:
            raise StoreError(f"{self.name}: {str(error).splitlines()[0]}") from error

    def close(self) -> None:
        """Let go of the server; a folder is let go of by the last store that uses it."""
        if self._client is not None and not self.local:
            self._client.close()
        self._client = None


def open_server(place: str, *, https: bool = False) -> QdrantConnection:
    """The server at HOST[:PORT], with the key of the environment if there is one."""
    host, _, port = place.strip("/").partition(":")
    if "@" in place:
        raise InputError(f"Keep the key out of the URL: put it into {KEY}.")
    if not host or not (port or str(PORT)).isdigit():
        raise InputError(f"'{place}' is not a server: use qdrant://HOST:PORT#COLLECTION[.VECTOR].")
    client = QdrantClient(
        host=host,
        port=int(port or PORT),
        https=https,
        api_key=os.environ.get(KEY) or None,
        timeout=TIMEOUT,
        check_compatibility=False,
    )
    scheme = "qdrant+https" if https else "qdrant"
    return QdrantConnection(client, f"{scheme}://{host}:{port or PORT}")


def open_folder(place: str) -> QdrantConnection:
    """The folder in local mode, which one process has at a time."""
    path = Path(place)
    if not (path / "meta.json").is_file():
        raise StoreError(f"{place} is not a folder of Qdrant's local mode.")
    key = str(path.resolve())
    client = _folders.get(key)
    if client is None:
        client = _folders[key] = _enter(place)
    return QdrantConnection(client, f"qdrant+local://{place}", client.turn)


def _enter(place: str) -> _LocalClient:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # large collections are slow; a refused lock is left open
        try:
            return _LocalClient(place)
        except RuntimeError:
            reason = f"{place} is in use by another process or client"
    raise StoreError(f"{reason}: local mode lets in one at a time. Close it, or run a server.")


def _version(text: str) -> tuple[int, int]:
    """
    >>> _version("1.18.2")
    (1, 18)
    """
    major, minor, *_ = [*text.split("-")[0].split("."), "0"]
    return int(major), int(minor)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _reason(error: UnexpectedResponse) -> str:
    """What the server says, in one line."""
    if error.status_code in (401, 403):
        return f"the server wants another key ({error.status_code}). Put it into {KEY}."
    try:
        told = error.structured()["status"]["error"]
    except (ValueError, KeyError, TypeError):
        told = f"{error.status_code} {error.reason_phrase}"
    return str(told).splitlines()[0]
