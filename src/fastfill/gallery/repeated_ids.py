"""Ids that several rows bear, in stores that do not keep them apart by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

NAMED = 5  # ids that are told, of all that are counted


@dataclass(frozen=True)
class RepeatedIds:
    """How many values of the id column more than one row bears, some of them, and rows without.

    >>> str(RepeatedIds(1_200, ("p21", "p7")))
    '1,200 of its values are in more than one row (p21, p7, …)'
    >>> bool(RepeatedIds())
    False
    """

    count: int = 0
    ids: tuple[Any, ...] = ()  # some of them
    missing: int = 0  # rows without an id

    def __bool__(self) -> bool:
        return bool(self.count or self.missing)

    def __str__(self) -> str:
        shown = [*map(str, self.ids[:NAMED]), *(["…"] if self.count > len(self.ids) else [])]
        values = f"{self.count:,} of its values are" if self.count > 1 else "one of its values is"
        repeated = f"{values} in more than one row ({', '.join(shown)})"
        without = f"{self.missing:,} rows have none" if self.missing > 1 else "a row has none"
        parts = ((repeated, self.count), (without, self.missing))
        return " and ".join(text for text, there in parts if there)


@runtime_checkable
class MayRepeatIds(Protocol):
    """A store in which nothing but the application keeps ids apart; optional for an adapter."""

    def repeated_ids(self) -> RepeatedIds:
        """Look at the ids of all rows that are migrated, and at nothing else of them."""
        ...


def repeated_ids_of(store: object) -> RepeatedIds | None:
    """What a look at all ids finds; None where the store itself keeps them apart."""
    return store.repeated_ids() if isinstance(store, MayRepeatIds) else None
