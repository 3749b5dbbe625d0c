"""What the job notes in the store beside its state: audit trail, control, failures."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from fastfill.gallery import Documents, Id, update

AUDIT, CONTROL, FAILURES, SWEPT = "audit/", "control", "failures", "swept"
PANEL, FORECAST = "panel", "forecast"  # rows to measure quality on; what is expected and was found


def whoami() -> str:
    """Who does this: user, host and process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


def record(documents: Documents, event: str, **details: Any) -> None:
    """Append one event to the audit trail."""
    entry = {"time": datetime.now(UTC).isoformat(), "who": whoami(), "event": event, **details}
    value = json.dumps(entry).encode()
    number = len(documents.names(AUDIT))
    while not documents.save(f"{AUDIT}{number + 1:08d}", value, 0):
        number += 1


def history(documents: Documents) -> list[dict[str, Any]]:
    """The audit trail, oldest first."""
    found = (documents.load(name) for name in documents.names(AUDIT))
    return [json.loads(document.value) for document in found if document is not None]


def read_note(documents: Documents, name: str) -> dict[str, Any]:
    """A JSON object, empty where there is none."""
    document = documents.load(name)
    return {} if document is None else dict(json.loads(document.value))


def change_note(
    documents: Documents, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Replace a JSON object by compare-and-set."""
    note: dict[str, Any] = {}

    def rewrite(value: bytes | None) -> bytes:
        nonlocal note
        note = change({} if value is None else json.loads(value))
        return json.dumps(note).encode()

    update(documents, name, rewrite)
    return note


def note_sweep(documents: Documents, began: float) -> None:
    """A sweep that began then has seen every row."""
    change_note(documents, SWEPT, lambda note: {"at": max(began, note.get("at", 0.0))})


def last_sweep(documents: Documents) -> float:
    """When the latest whole sweep began, in seconds of the epoch."""
    return float(read_note(documents, SWEPT).get("at", 0.0))


class Failures:
    """Items that the encoder could not embed, with the number of tries and the last error.

    Ids are stored with their type, because JSON knows only texts as keys.
    """

    def __init__(self, documents: Documents, tries: int) -> None:
        self._documents = documents
        self._tries = tries

    def all(self) -> dict[Id, tuple[int, str]]:
        """Every item that has failed: tries and last error."""
        note = read_note(self._documents, FAILURES)
        return {json.loads(key): (value[0], value[1]) for key, value in note.items()}

    def set_aside(self) -> dict[Id, str]:
        """Items that are not tried again, with the last error."""
        return {key: error for key, (tries, error) in self.all().items() if tries >= self._tries}

    def add(self, errors: Mapping[Id, str]) -> None:
        """Count one more try of each."""

        def change(note: dict[str, Any]) -> dict[str, Any]:
            for key, error in errors.items():
                name = json.dumps(key)
                note[name] = [note.get(name, [0])[0] + 1, error[:300]]
            return note

        if errors:
            change_note(self._documents, FAILURES, change)

    def forgive(self, ids: Iterable[Id] | None = None) -> None:
        """Forget the failures of these items, or of all."""
        known = read_note(self._documents, FAILURES)
        if not known:
            return
        names = set(known) if ids is None else {json.dumps(key) for key in ids} & set(known)
        if names:
            change_note(
                self._documents,
                FAILURES,
                lambda note: {key: value for key, value in note.items() if key not in names},
            )
