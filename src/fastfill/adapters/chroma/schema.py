"""The collections: what there is, what a migration adds and takes away."""

from __future__ import annotations

from fastfill.adapters.chroma.collection import ChromaRecord, pages_of
from fastfill.adapters.chroma.context import ChromaContext
from fastfill.adapters.chroma.documents import ChromaDocuments
from fastfill.adapters.chroma.layout import DIM, OWN_MARKS, ChromaLayout
from fastfill.errors import StoreError, some
from fastfill.gallery import MARKS, Columns, Description

INDEX_SETTINGS = ("space", "ef_construction", "ef_search", "max_neighbors")


class ChromaSchema:
    """A second collection, by the same ids, for the added vectors and the marks."""

    def __init__(self, context: ChromaContext, documents: ChromaDocuments) -> None:
        self._context, self._documents = context, documents

    # --- names ---------------------------------------------------------------------------------

    @property
    def added(self) -> tuple[str, ...]:
        """The vector, the second collection, the documents."""
        return (self._context.columns.new, self._context.second, self._documents.name)

    def occupied(self) -> tuple[str, ...]:
        """Those of the `added` names that exist already."""
        context, taken = self._context, self._context.connection.names()
        if not self._documents.foreign():
            taken.discard(self._documents.name)
        if context.second in taken:
            taken.add(context.columns.new)
        return tuple(name for name in self.added if name in taken)

    def bind(self, columns: Columns) -> None:
        """Say where the input is; records are known by their ids."""
        context, owner = self._context, self._context.find(self._context.collection)
        if columns.id != "id":
            raise StoreError(
                f"{context.name}: Chroma's records are known by their ids, not by '{columns.id}'. "
                "Leave --id out."
            )
        missing = columns.input is not None and owner is not None and owner.count()
        if missing and owner is not None and not owner.has_key(columns.input or ""):
            raise StoreError(
                f"{context.name}: no record has '{columns.input}', only "
                f"{some(owner.keys()) or 'a vector'}."
            )
        context.use_columns(columns, {"id", columns.input or ""})
        context.look()

    # --- what there is -------------------------------------------------------------------------

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        layout = self._context.look()
        return Description(
            count=layout.owner.count,
            old_dim=layout.old_dim or layout.new_dim or 0,
            new_dim=layout.new_dim,
            distance=layout.owner.distance,
            columns=self._columns(layout),
            batch=layout.batch,
            parallel=not self._context.connection.local,
        )

    def _columns(self, layout: ChromaLayout) -> tuple[str, ...]:
        columns = self._context.columns
        own = {columns.mark(name) for name in OWN_MARKS}
        names = ["id", *filter(lambda name: name not in own, layout.owner.keys())]
        names += [columns.old] if layout.named else []
        names += [columns.new] if layout.added is not None else []
        names += [columns.mark(name) for name in MARKS] if layout.marked() else []
        return tuple(dict.fromkeys(names))

    # --- expand and contract -------------------------------------------------------------------

    def expand(self, dim: int) -> None:
        """Make the second collection, indexed as the owner's is."""
        context, layout = self._context, self._context.look()
        context.require_dim(dim, layout.new_dim)
        if layout.dropped:
            raise StoreError(f"{context.name}: the old vectors have been dropped.")
        if layout.added is None and context.find(context.second) is not None:
            raise StoreError(
                f"{context.name}: the collection '{context.second}' is not FastFill's. Rename it: "
                "FastFill keeps the added vectors in one of that name."
            )
        settings = layout.owner.settings
        index = {name: settings[name] for name in INDEX_SETTINGS if name in settings}
        context.connection.create(context.second, {DIM: dim}, index)
        context.look()

    def contract(self) -> None:
        """Delete the second collection."""
        if self._context.look().added is not None:
            self._context.connection.drop(self._context.second)
        self._context.look()

    def drop_old(self) -> None:
        """Delete the owner's collection, whose records live on in the second one, and the marks.

        A record of Chroma cannot be without its vector.
        """
        context, layout = self._context, self._context.look()
        if layout.added is None:
            raise StoreError(f"{context.name}: there are no added vectors that could replace it.")
        if layout.added is not layout.owner:
            for page in pages_of(layout.owner.ids(), layout.batch):
                layout.follow(layout.owner.records(page), layout.entries(page))
            layout.added.forget(list(set(layout.added.ids()) - set(layout.owner.ids())))
        if layout.old is not None:
            context.connection.drop(layout.old.name)
        unmarked = dict.fromkeys(context.columns.mark(name) for name in OWN_MARKS)
        for page in pages_of(layout.added.ids(), layout.batch):
            layout.added.update({key: ChromaRecord(unmarked) for key in page})
        context.look()
