"""The cut-over under the owner's name: both collections are renamed, one after the other.

A collection keeps its identity under another name. A process that has opened the owner's goes on
with it, and gets the new vectors when it opens the collection by its name again.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastfill.adapters.chroma.collection import PAGE, ChromaRecord, pages_of
from fastfill.adapters.chroma.context import ChromaContext
from fastfill.adapters.chroma.layout import DIM, OWN_MARKS, ChromaLayout, content_hash
from fastfill.adapters.chroma.reads import ChromaReads
from fastfill.errors import StoreError
from fastfill.gallery import Columns, Id, Settled

OF_THE_INDEX = "hnsw:"  # metadata that says how a collection was made, and cannot be given to one


class ChromaSwaps:
    """Between the two renamings, which take milliseconds, no collection has the owner's name."""

    def __init__(self, context: ChromaContext, reads: ChromaReads) -> None:
        self._context, self._reads = context, reads

    def check_swap(self, columns: Columns) -> None:
        """Refuse a name that is taken."""
        names, kept = self._context.connection.names(), self._kept(columns)
        if {kept, self._context.collection, self._context.place(columns.new)} <= names:
            raise StoreError(
                f"{self._context.name}: there is already a collection '{kept}'. Rename it: the old "
                "vectors get that name."
            )

    def swap(self, columns: Columns, settled: Settled) -> int:
        """Look for rows in the way, rename, look again: a writer may have been as quick."""
        context = self._context
        if context.place(columns.new) not in context.connection.names():
            return 0  # it was done, although nobody heard of it
        context.use_columns(columns, {"id", columns.input or ""})
        layout = context.look()
        rows = self._unsettled(settled)
        if not rows:
            self._rename(layout, columns)
            rows = self._unsettled(settled)  # the collections are those of before
        if rows:
            self._rename_back(columns)
        return rows

    def swap_back(self, columns: Columns, dim: int) -> None:
        """Rename both collections again, with what the application has changed in between."""
        context = self._context
        names = context.connection.names()
        if self._kept(columns) not in names:
            return
        if context.place(columns.new) not in names:
            context.use_columns(columns.swapped, {"id", columns.input or ""})
            carry_back(context.look(), context.name)
        self._rename_back(columns)

    def end_swap(self, columns: Columns, swapped: bool) -> None:
        """Nothing is left over."""

    def _kept(self, columns: Columns) -> str:
        return self._context.place(columns.swapped.old)

    def _unsettled(self, settled: Settled) -> int:
        return sum(map(len, self._reads.unsettled(settled, batch=PAGE, changed=True)))

    def _rename(self, layout: ChromaLayout, columns: Columns) -> None:
        context, owners = self._context, layout.owner.metadata
        kept = {k: v for k, v in owners.items() if not k.startswith(OF_THE_INDEX)}
        context.connection.rename(context.collection, self._kept(columns))
        context.connection.rename(
            context.place(columns.new), context.collection, {**kept, DIM: layout.new_dim}
        )

    def _rename_back(self, columns: Columns) -> None:
        """From wherever it stands: what has the owner's name beside the old one is the new one."""
        context, kept = self._context, self._kept(columns)
        names = context.connection.names()
        if kept not in names:
            return
        second = context.place(columns.new)
        if second not in names:
            context.connection.rename(context.collection, second)
        context.connection.rename(kept, context.collection)


def carry_back(layout: ChromaLayout, name: str) -> None:
    """Give the old collection what the application has written to the new one since the swap."""
    if layout.old is None:
        return
    there, before = set(layout.owner.ids()), set(layout.old.ids())
    without = sorted(map(str, there - before))
    if without:
        raise StoreError(
            f"{name}: {len(without):,} records, such as '{without[0]}', have been added since the "
            "swap, and a record of Chroma cannot be without an old vector. Add them to "
            f"'{layout.old.name}' with one, or delete them, and swap back then."
        )
    layout.old.forget(list(before - there))
    for page in pages_of(sorted(there, key=str), PAGE):
        _copy_back(layout, page)


def _copy_back(layout: ChromaLayout, ids: Sequence[Id]) -> None:
    own = {layout.columns.mark(name) for name in OWN_MARKS}
    before = {} if layout.old is None else layout.old.records(ids)
    changed = {}
    for key, record in layout.owner.records(ids).items():
        values = {k: v for k, v in record.metadata.items() if k not in own}
        if content_hash(ChromaRecord(values, record.document)) != content_hash(before[key]):
            gone = dict.fromkeys(before[key].metadata.keys() - values.keys())
            changed[key] = ChromaRecord({**gone, **values}, record.document)
    if layout.old is not None:
        layout.old.update(changed)
