"""Leases: which worker is busy with which items, and until when.

Leases only keep workers from doing the same work twice; that no item is written twice, and none by
a worker that is late, is the compare-and-set of the write. They are one document, replaced by
compare-and-set, so that claiming touches no row of the owner's and blocks no one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from fastfill.gallery import Documents, Id
from fastfill.migrate.notes import change_note, read_note

LEASES = "leases"  # of rows
REFITTING = "refitting"  # of the map


class Leases:
    """The claims of all workers, seen by one of them.

    >>> from fastfill.gallery import MemoryStore
    >>> store = MemoryStore({"id": [1], "vector": [[1.0]]})
    >>> ann, bob = Leases(store, "ann", seconds=60), Leases(store, "bob", seconds=60)
    >>> ann.claim([1, 2]), bob.claim([2, 3])
    ([1, 2], [3])
    >>> ann.release(); bob.claim([2, 3])
    [2, 3]
    """

    def __init__(
        self,
        documents: Documents,
        owner: str,
        *,
        seconds: float,
        name: str = LEASES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._documents = documents
        self._name = name
        self._owner = owner
        self._seconds = seconds
        self._clock = clock

    def held_by_others(self) -> set[Id]:
        """Ids that another worker holds now."""
        return self._others(read_note(self._documents, self._name))

    def claim(self, ids: Sequence[Id], beside: Sequence[Id] = ()) -> list[Id]:
        """Those of the ids that nobody else holds, now held by this worker.

        It lets go of all others but those `beside`, which it has claimed before.
        """
        mine: list[Id] = []

        def change(note: dict[str, Any]) -> dict[str, Any]:
            nonlocal mine
            others = self._others(note)
            mine = [key for key in ids if key not in others]
            still = [key for key in beside if key not in others]
            return {**self._alive(note), self._owner: self._entry([*still, *mine])}

        change_note(self._documents, self._name, change)
        return mine

    def release(self) -> None:
        """Hold nothing any more."""

        def change(note: dict[str, Any]) -> dict[str, Any]:
            return {owner: entry for owner, entry in note.items() if owner != self._owner}

        change_note(self._documents, self._name, change)

    def _entry(self, ids: Sequence[Id]) -> dict[str, Any]:
        return {"until": self._clock() + self._seconds, "ids": list(ids)}

    def _alive(self, note: dict[str, Any]) -> dict[str, Any]:
        now = self._clock()
        return {owner: entry for owner, entry in note.items() if entry["until"] > now}

    def _others(self, note: dict[str, Any]) -> set[Id]:
        alive = self._alive(note)
        return {
            key for owner, entry in alive.items() if owner != self._owner for key in entry["ids"]
        }
