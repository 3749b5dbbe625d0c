"""What the parts of a Chroma store share: the connection, the collections, and where all is."""

from __future__ import annotations

from typing import Any

from fastfill.adapters.chroma.collection import ChromaCollection
from fastfill.adapters.chroma.connection import ChromaConnection
from fastfill.adapters.chroma.layout import DIM, ChromaLayout
from fastfill.errors import StoreError, some
from fastfill.gallery import Columns
from fastfill.gallery.base import StoreContext

VECTOR = "vector"  # what we call the one vector of a record


class ChromaContext(StoreContext):
    """The vectors of one collection."""

    def __init__(self, connection: ChromaConnection, collection: str) -> None:
        super().__init__(f"{connection.name}#{collection}", VECTOR)
        self.connection = connection
        self.collection = collection
        self._layout: ChromaLayout | None = None

    def find(self, name: str) -> ChromaCollection | None:
        """A collection as it is now, or None."""
        collection: Any = self.connection.find(name)
        return None if collection is None else ChromaCollection(self.connection, collection)

    def check_collection(self, dropped: bool) -> None:
        """Refuse a collection that is not there, unless a migration may have `dropped` it."""
        if not dropped and self.find(self.collection) is None:
            have = sorted(self.connection.names())
            raise StoreError(
                f"{self.connection.name} has no collection '{self.collection}', only "
                f"{some(have) or 'none at all'}."
            )

    def close(self) -> None:
        """Let go of the connection."""
        self.connection.close()

    # --- where everything is -------------------------------------------------------------------

    def place(self, column: str) -> str:
        """The name of the collection that holds a column of vectors."""
        return self.collection if column == VECTOR else f"{self.collection}__{column}"

    @property
    def second(self) -> str:
        """The name of the collection of the added vectors."""
        return self.place(self.columns.new)

    @property
    def layout(self) -> ChromaLayout:
        """Where everything is; looked at again until there is a second collection."""
        if self._layout is None or self._layout.added is None:
            self._layout = self.look()
        return self._layout

    def look(self) -> ChromaLayout:
        """Ask Chroma where everything is."""
        swapped = self.columns.new == VECTOR
        self._layout = self._look_swapped() if swapped else self._look_plain(self.columns)
        return self._layout

    def _look_plain(self, columns: Columns) -> ChromaLayout:
        """The owner's collection may be renamed already, half-way of a swap."""
        added = self._ours(self.place(columns.new))
        old = self.find(self.collection) or self.find(self.place(columns.swapped.old))
        return self._lay_out(old or added, old, added, named=columns == self.columns)

    def _look_swapped(self) -> ChromaLayout:
        """The rows are those of the collection that the application has now."""
        before = self.columns.swapped_back
        old, second = self.find(self.place(self.columns.old)), self._ours(self.place(before.new))
        if old is None and second is not None:  # swapped back, and the state does not say so yet
            return self._look_plain(before)
        added = self._ours(self.collection) or second
        return self._lay_out(added, old, added, named=True)

    def _lay_out(
        self,
        rows: ChromaCollection | None,
        old: ChromaCollection | None,
        added: ChromaCollection | None,
        *,
        named: bool,
    ) -> ChromaLayout:
        if rows is None:
            raise StoreError(f"{self.name}: the collection has been deleted.")
        dim = 0 if old is None else old.dim()
        return ChromaLayout(rows, old, added, self.columns, dim, named and old is not None)

    def _ours(self, name: str) -> ChromaCollection | None:
        """A collection of added vectors; None where there is none, or somebody else's."""
        found = self.find(name)
        return found if found is not None and DIM in found.metadata else None
