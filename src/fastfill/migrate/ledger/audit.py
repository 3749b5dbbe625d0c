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


def history(documents: Documents) -> list[dict[str, Any]]:
    """All events, oldest first."""
    entries = (documents.load(name) for name in documents.names(AUDIT))
    return [json.loads(entry.value) for entry in entries if entry is not None]
