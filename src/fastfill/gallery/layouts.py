"""Where a store keeps what a migration adds: in the owner's table, or in a table beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from fastfill.gallery.store import Layout

LAYOUTS: tuple[Layout, ...] = ("columns", "side")
LayoutOption = Literal["auto", "columns", "side"]


@dataclass(frozen=True)
class LayoutChoice:
    """A layout, and why.

    >>> print(LayoutChoice("side", "because the table has 2 triggers"))
    layout side, because the table has 2 triggers: the owner's table is not changed
    """

    layout: Layout
    reason: str
    only: bool = False  # has the store no other?

    def __str__(self) -> str:
        what = {
            "columns": "added to the owner's table",
            "side": "the owner's table is not changed",
        }
        return f"layout {self.layout}, {self.reason}: {what[self.layout]}"


@runtime_checkable
class HasLayouts(Protocol):
    """A store that can keep what is added beside the owner's table; optional for an adapter."""

    def choose_layout(self) -> LayoutChoice:
        """What suits the table as it is; refuses one that cannot be migrated, changes nothing."""
        ...


@runtime_checkable
class NotesWrites(Protocol):
    """A store that can have every write to the owner's table noted; optional for an adapter.

    A sweep then looks at what was noted. Where it tells without, these methods do nothing.
    """

    def check_noting(self) -> None:
        """Refuse where this user may not have writes noted; changes nothing."""
        ...

    def note_writes(self) -> None:
        """Note every write from now on; what notes them already stays."""
        ...

    def stop_noting(self) -> None:
        """Take away what notes them, and the notes."""
        ...
