"""The cut-over under the owner's name: both columns are renamed in one commit."""

from __future__ import annotations

from fastfill.adapters.lance.context import LanceContext
from fastfill.adapters.lance.reads import LanceReads
from fastfill.gallery import Columns, Settled
from fastfill.gallery.base import batch_rows

LOOKED_AT = 1 << 20  # floats of the vectors that are looked at together


class LanceSwaps:
    """Indexes follow their columns. There are no locks, so what is written beside is undone."""

    def __init__(self, context: LanceContext, reads: LanceReads) -> None:
        self._context, self._reads = context, reads

    def check_swap(self, columns: Columns) -> None:
        """Refuse a name that is taken."""
        names = self._context.names()
        if columns.new in names:
            self._context.require_free(columns.swapped.old, names)

    def swap(self, columns: Columns, settled: Settled) -> int:
        """Look for rows in the way, rename, look again: a writer may have been as quick."""
        if columns.new not in self._context.names():  # it was done, although nobody heard of it
            return 0
        rows = self._unsettled(columns, settled)
        if not rows:
            self._rename(columns, columns.swapped)
            rows = self._unsettled(columns.swapped, settled)
            if rows:
                self._rename(columns.swapped, columns)
                self._context.use_columns(columns, self._context.names())
        return rows

    def swap_back(self, columns: Columns, dim: int) -> None:
        """Rename both columns again."""
        if columns.swapped.old in self._context.names():
            self._rename(columns.swapped, columns)

    def end_swap(self, columns: Columns, swapped: bool) -> None:
        """Nothing is left over."""

    def _unsettled(self, columns: Columns, settled: Settled) -> int:
        context = self._context
        context.use_columns(columns, context.names())
        batch = batch_rows(LOOKED_AT, context.dim(columns.old), least=256, most=65_536)
        return sum(map(len, self._reads.unsettled(settled, batch=batch, changed=True)))

    def _rename(self, before: Columns, after: Columns) -> None:
        changes = [
            {"path": name, "rename": other}
            for name, other in ((before.old, after.old), (before.new, after.new))
        ]
        if before.new == after.old:  # the name must be free before the other column gets it
            changes.reverse()
        context = self._context
        context.connection.commit(lambda: context.table.alter_columns(*changes))
