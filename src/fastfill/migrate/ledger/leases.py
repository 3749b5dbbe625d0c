"""Leases: which worker is busy with which items, and until when.

Leases only keep workers from doing the same work twice; that no item is written twice, and none by
a worker that is late, is the compare-and-set of the write. They are one document, replaced by
compare-and-set, so that claiming touches no row of the owner's and blocks no one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from fastfill.gallery import Documents, Id, JsonDocument


@dataclass(frozen=True)
class Lease:
    """What one worker holds, and until when (seconds of the epoch)."""

    until: float
    ids: tuple[Id, ...]


@dataclass(frozen=True)
class RowLeases(JsonDocument):
    """The leases of all workers, by their names."""

    NAME: ClassVar[str] = "leases"

    leases: Mapping[str, Lease] = field(default_factory=dict)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], version: int) -> Self:
        """FastFill 0.1 wrote the leases without a name around them."""
        entries = plain if version == 0 else plain["leases"]
        return cls({who: Lease(e["until"], tuple(e["ids"])) for who, e in entries.items()})

    def to_json(self) -> dict[str, Any]:
        """Plain values; a lease has thousands of ids, which `asdict` would copy one by one."""
        return {"leases": {who: vars(lease) for who, lease in self.leases.items()}}

    def alive(self, now: float) -> dict[str, Lease]:
        """Those that have not run out."""
        return {who: lease for who, lease in self.leases.items() if lease.until > now}


@dataclass(frozen=True)
class RefitLease(RowLeases):
    """Which worker learns the map again."""

    NAME: ClassVar[str] = "refitting"


class Leases:
    """The leases of all workers, seen by one of them.

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
        kind: type[RowLeases] = RowLeases,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._documents = documents
        self._kind = kind
        self._owner = owner
        self._seconds = seconds
        self._clock = clock or documents.now  # workers' own clocks may differ

    def held_by_others(self) -> set[Id]:
        """Ids that another worker holds now."""
        table = self._kind.load(self._documents)
        return set() if table is None else self._others(table, self._clock())

    def claim(self, ids: Sequence[Id], keep: Sequence[Id] = ()) -> list[Id]:
        """Those of the ids that nobody else holds, now held by this worker.

        It lets go of all that it held before, but for those to `keep`.
        """
        mine: list[Id] = []

        def change(table: RowLeases | None) -> RowLeases:
            nonlocal mine
            latest = table or self._kind()
            others = self._others(latest, now := self._clock())
            mine = [key for key in ids if key not in others]
            kept = [key for key in keep if key not in others]
            lease = Lease(now + self._seconds, (*kept, *mine))
            return self._kind({**latest.alive(now), self._owner: lease})

        self._kind.change(self._documents, change)
        return mine

    def release(self) -> None:
        """Hold nothing any more."""

        def change(table: RowLeases | None) -> RowLeases:
            leases = {} if table is None else table.leases
            return self._kind({who: lease for who, lease in leases.items() if who != self._owner})

        self._kind.change(self._documents, change)

    def _others(self, table: RowLeases, now: float) -> set[Id]:
        alive = table.alive(now)
        return {key for who, lease in alive.items() if who != self._owner for key in lease.ids}
