"""The audit trail: who did what to the migration, and when; kept in the store."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fastfill.gallery import Documents

AUDIT = "audit/"  # names of the entries begin so


def whoami() -> str:
    """Who does this: user, host and process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


def record(documents: Documents, event: str, details: Mapping[str, Any] | None = None) -> None:
    """Append one event."""
    entry = {"time": datetime.now(UTC).isoformat(), "who": whoami(), "event": event}
    value = json.dumps({**entry, **(details or {})}).encode()
    number = len(documents.names(AUDIT))
    while not documents.save(f"{AUDIT}{number + 1:08d}", value, 0):
        number += 1


class AuditReader:
    """Reads the trail; entries are only ever added, so each one is read once.

    >>> from fastfill.gallery import MemoryStore
    >>> store = MemoryStore({"id": [1], "vector": [[1.0]]})
    >>> reader = AuditReader(store)
    >>> record(store, "paused"); len(reader.read())
    1
    >>> record(store, "resumed", {"rate": 5}); [event["event"] for event in reader.read()]
    ['paused', 'resumed']
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._entries: dict[str, dict[str, Any]] = {}

    def read(self) -> list[dict[str, Any]]:
        """All events, oldest first."""
        names = self._documents.names(AUDIT)
        for name in names:
            if name not in self._entries:
                entry = self._documents.load(name)
                if entry is not None:
                    self._entries[name] = json.loads(entry.value)
        return [self._entries[name] for name in names if name in self._entries]
