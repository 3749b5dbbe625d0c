"""What others write while names are exchanged, in a store that cannot lock them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from fastfill.gallery.store import Id

NAMED = 5  # ids that are told, of all that are counted


@dataclass(frozen=True)
class LateWrites:
    """Rows that others wrote during a cut-over, and that were left as they are.

    >>> str(LateWrites("deleted meanwhile", "Delete them too", (7, 8)))
    '2 rows were deleted meanwhile (7, 8). Delete them too.'
    """

    what: str
    advice: str
    ids: tuple[Id, ...]

    def __str__(self) -> str:
        count = len(self.ids)
        rows = f"{count:,} row{'s were' if count > 1 else ' was'}"
        more = ", ..." if count > NAMED else ""
        return f"{rows} {self.what} ({', '.join(map(str, self.ids[:NAMED]))}{more}). {self.advice}."

    @property
    def entry(self) -> dict[str, Any]:
        """For the audit trail."""
        return {"what": self.what, "rows": len(self.ids), "ids": list(self.ids[:NAMED])}


@runtime_checkable
class SeesLateWrites(Protocol):
    """A store in whose cut-over others can write; optional for an adapter."""

    def late_writes(self) -> tuple[LateWrites, ...]:
        """What was left as it is in the latest `swap` or `swap_back` of this object."""
        ...


def late_writes_of(store: object) -> tuple[LateWrites, ...]:
    """What a store has left as it is; nothing where nobody can write meanwhile."""
    return store.late_writes() if isinstance(store, SeesLateWrites) else ()
