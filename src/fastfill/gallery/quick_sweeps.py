"""Sweeps that find some of what others wrote, without a look at every row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from fastfill.gallery.store import Rows, Settled


@runtime_checkable
class QuickSweeps(Protocol):
    """A store that can tell many of others' writes by a filter; optional for an adapter.

    Such sweeps come between those that look at every row, which are rarer then.
    """

    def can_sweep_quickly(self) -> bool:
        """Is it so here?"""
        ...

    def quick_sweep(self, settled: Settled, *, batch: int) -> Iterator[Rows]:
        """Rows whose added vector is not right, with it, as far as a filter finds them."""
        ...
