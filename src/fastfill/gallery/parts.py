"""Which part of a collection is meant: the one that is named, else the one migrated last.

Each part has columns and documents of its own, so that several parts of one collection can be
migrated one after the other. One document of the whole collection names the part migrated last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fastfill.gallery.documents import JsonDocument
from fastfill.gallery.state import State, load_state
from fastfill.gallery.store import Store
from fastfill.gallery.where import Where, as_where, part_tag

OVER = ("complete", "rolled back")  # phases in which another part may begin


@dataclass(frozen=True)
class LatestPart(JsonDocument):
    """The rows that the latest migration of the collection is about."""

    NAME: ClassVar[str] = "part"
    where: Where = ()

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], version: int) -> Self:
        """Lists of JSON as the pairs that they were."""
        return cls(as_where(plain["where"]))


@contextmanager
def documents_of(store: Store, where: Where) -> Iterator[Store]:
    """The store with the documents of some part."""
    part, store.part = store.part, part_tag(where)
    try:
        yield store
    finally:
        store.part = part


def choose_part(store: Store, where: Mapping[str, Any] | None) -> Where:
    """The rows that are meant from now on, whose documents the store then loads and saves.

    >>> from fastfill.gallery import MemoryStore
    >>> store = MemoryStore({"id": [1], "tenant": [7], "vector": [[1.0]]})
    >>> choose_part(store, {"tenant": 7}), choose_part(store, None)
    ((('tenant', '7'),), ())
    """
    chosen = _part_of_latest(store) if where is None else as_where(where)
    store.part = part_tag(chosen)
    return chosen


def _part_of_latest(store: Store) -> Where:
    """Once nothing of a migration is left, all rows are meant again."""
    latest, state = latest_migration(store)
    return () if state is None or state.phase == "rolled back" or state.closed else latest


def latest_migration(store: Store) -> tuple[Where, State | None]:
    """The rows that were migrated last, or are, and the state of that."""
    with documents_of(store, ()):
        latest = (LatestPart.load(store) or LatestPart()).where
    with documents_of(store, latest):
        return latest, load_state(store)


def note_part(store: Store, where: Where) -> None:
    """Remember that this part is migrated now; a collection without parts needs no note."""
    with documents_of(store, ()):
        if where or LatestPart.load(store) is not None:
            LatestPart.change(store, lambda _: LatestPart(where))
