"""What a store can tell about itself before a migration: types, indexes, space, permissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from fastfill.features import Distance
from fastfill.gallery.store import Id


@dataclass(frozen=True)
class VectorIndex:
    """An approximate index on the vector column.

    >>> VectorIndex("photos_hnsw", "hnsw", "cosine").valid
    True
    """

    name: str
    kind: str  # as the store calls it
    distance: Distance | None  # None: not one of ours
    valid: bool = True  # complete, and used by searches
    unindexed: int = 0  # rows that were written after it was built


@dataclass(frozen=True)
class Inspection:
    """A look at one vector column that changes nothing.

    >>> Inspection("vector(3)", ids=[1, 2], dims={3: 2}).missing_permissions
    ()
    """

    kind: str  # the type of the column, in the store's words
    ids: Sequence[Id]  # of random rows, with or without vectors and inputs
    dims: Mapping[int, int] = field(default_factory=dict)  # dimensions -> rows of `ids`
    indexes: tuple[VectorIndex, ...] = ()
    stored_bytes: int | None = None  # None: the store does not tell
    free_bytes: int | None = None
    missing_permissions: tuple[str, ...] = ()  # what a migration needs and this user may not do
    software: tuple[str, ...] = ()  # what answers, each with its version


@runtime_checkable
class Inspectable(Protocol):
    """A store that knows more of itself than every store must; optional for an adapter."""

    def inspect(self, sample: int, seed: int) -> Inspection:
        """Look at the column, and draw up to `sample` random rows; changes nothing."""
        ...
