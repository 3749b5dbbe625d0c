"""Leases: which worker is busy with which items, and until when.

Leases only keep workers from doing the same work twice; that no item is written twice, and none by
a worker that is late, is the compare-and-set of the write. Each worker has a document of its own,
which nobody else replaces, so that a claim touches no row of the owner's and no write is in vain.

A worker announces in its document what it wants to hold, and then looks at those of the others. It
holds an item once it has seen, after its own announcement, that nobody else announces it: of two
that want the same one, the later to announce sees the other. Where both see each other, the one
whose document's name comes first waits a moment until the other has given way. A lease that has run
out is never renewed: its worker goes on under another name, so that what is left of the dead can be
removed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from fastfill.gallery import Documents, Id, JsonDocument

ROWS, REFIT = "leases", "refitting"  # what is leased: rows, and learning from them again
FORGOTTEN = 600.0  # seconds after its end at which the lease of a worker that died is removed
LOOK_AGAIN, LOOKS = 0.05, 6  # seconds between two looks at those who are to give way, and how many


@dataclass(frozen=True)
class Lease(JsonDocument):
    """What one worker holds or wants to hold, and until when (seconds of the epoch)."""

    NAME: ClassVar[str] = "lease"

    owner: str
    until: float
    ids: Sequence[Id] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values; a lease has thousands of ids, which `asdict` would copy one by one."""
        return dict(vars(self))


@dataclass(frozen=True)
class SharedLeases(JsonDocument):
    """The leases of all workers in one document, as FastFill 0.1 wrote them."""

    NAME: ClassVar[str] = ROWS

    leases: Mapping[str, Lease] = field(default_factory=dict)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], version: int) -> Self:
        """The first ones had no name around them."""
        entries = plain if version == 0 else plain["leases"]
        return cls({who: Lease(who, e["until"], e["ids"]) for who, e in entries.items()})


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
        kind: str = ROWS,
        clock: Callable[[], float] | None = None,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._documents, self._kind = documents, kind
        self._owner, self._seconds = owner, seconds
        self._clock = clock or documents.now  # workers' own clocks may differ
        self._rest = rest
        self.ahead = 0  # other workers whose names come first, at the last look
        self._begin()

    def _begin(self) -> None:
        """Hold nothing, under a name that nobody has ever had."""
        self._name, self._version = f"{self._kind}/{uuid.uuid4().hex}", 0
        self._lease = Lease(self._owner, 0.0)

    def held_by_others(self) -> set[Id]:
        """Ids that another worker holds now."""
        return _ids(self._look()[1].values())

    def others_end_in(self) -> float:
        """Seconds until the last lease of another worker ends, if none is renewed."""
        now, found = self._look()
        return max((lease.until - now for lease in found.values()), default=0.0)

    def claim(self, ids: Sequence[Id], keep: Sequence[Id] = ()) -> list[Id]:
        """Those of the ids that nobody else holds, now held by this worker.

        It lets go of all that it held before, but for those to `keep`.
        """
        others = self.held_by_others()
        firm = self._still_held(keep)
        wanted = [key for key in dict.fromkeys((*keep, *ids)) if key in firm or key not in others]
        if not wanted:
            self.release()
            return []
        name, until = self._name, self._lease.until
        self._save(Lease(self._owner, self._clock() + self._seconds, wanted))
        now, found = self._look()
        renewed = name == self._name and now < until  # before it had run out
        self._settle(found, firm if renewed else set())
        mine = set(self._lease.ids)
        return [key for key in ids if key in mine]

    def _still_held(self, ids: Sequence[Id]) -> set[Id]:
        """Those of the ids that are this worker's; a lease that has run out is given up."""
        if self._lease.until <= self._clock():
            self.release()
        return set(self._lease.ids) & set(ids)

    def release(self) -> None:
        """Hold nothing any more."""
        if self._version:
            self._documents.remove([self._name])
        self._begin()

    # --- among those who want the same ----------------------------------------------------------

    def _settle(self, others: dict[str, Lease], firm: set[Id]) -> None:
        """Give up what others hold, or want and come first; wait for those who come later."""
        first = _ids(lease for name, lease in others.items() if name < self._name)
        self._give_up(first - firm)
        later = {name: lease for name, lease in others.items() if name > self._name}
        for _ in range(LOOKS):
            if not self._wanted(later, firm):
                return
            self._rest(LOOK_AGAIN)
            later = self._alive(later, self._clock())
        self._give_up(self._wanted(later, firm))

    def _wanted(self, others: dict[str, Lease], firm: set[Id]) -> set[Id]:
        return (_ids(others.values()) & set(self._lease.ids)) - firm

    def _give_up(self, lost: set[Id]) -> None:
        left = [key for key in self._lease.ids if key not in lost]
        if len(left) < len(self._lease.ids):
            self._save(Lease(self._owner, self._lease.until, left))

    def _save(self, lease: Lease) -> None:
        value = lease.to_bytes()
        if not self._documents.save(self._name, value, self._version):
            self._begin()  # it was taken for that of a dead worker, and removed
            self._documents.save(self._name, value, 0)
        self._version += 1
        self._lease = lease

    # --- the documents of others ----------------------------------------------------------------

    def _look(self) -> tuple[float, dict[str, Lease]]:
        """Leases of others that have not run out, by name, and the time before they were read."""
        now = self._clock()
        names = [name for name in self._documents.names(self._kind) if name != self._name]
        alive = self._alive(names, now)
        self.ahead = sum(name < self._name for name in alive)
        return now, alive

    def _alive(self, names: Iterable[str], now: float) -> dict[str, Lease]:
        found: dict[str, Lease] = {}
        for name in names:
            document = self._documents.load(name)
            if document is None:  # released
                continue
            lease = self._read(name, document.value, now)
            if lease.until > now:
                found[name] = lease
            elif lease.until + FORGOTTEN < now:
                self._documents.remove([name])
        return found

    def _read(self, name: str, value: bytes, now: float) -> Lease:
        if name != self._kind:
            return Lease.from_bytes(value)
        leases = SharedLeases.from_bytes(value).leases.values()
        until = max((lease.until for lease in leases), default=0.0)
        return Lease("", until, [*_ids(lease for lease in leases if lease.until > now)])


def lease_names(documents: Documents) -> list[str]:
    """The names of all documents that leases are kept in."""
    return [*documents.names(ROWS), *documents.names(REFIT)]


def _ids(leases: Iterable[Lease]) -> set[Id]:
    return {key for lease in leases for key in lease.ids}
