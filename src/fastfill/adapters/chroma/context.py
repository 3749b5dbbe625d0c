"""What the parts of a Chroma store share: the connection, the collections, and where all is."""

from __future__ import annotations

from typing import Any

from fastfill.adapters.chroma.collection import ChromaCollection
from fastfill.adapters.chroma.connection import ChromaConnection
from fastfill.adapters.chroma.layout import DIM, ChromaLayout
from fastfill.errors import StoreError, some
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

    @property
    def second(self) -> str:
        """The name of the collection of the added vectors."""
        return f"{self.collection}__{self.columns.new}"

    @property
    def layout(self) -> ChromaLayout:
        """Where everything is; looked at again until there is a second collection."""
        if self._layout is None or self._layout.added is None:
            self._layout = self.look()
        return self._layout

    def look(self) -> ChromaLayout:
        """Ask Chroma where everything is."""
        owner, added = self.find(self.collection), self.find(self.second)
        if added is not None and DIM not in added.metadata:
            added = None  # somebody else's
        items = owner or added  # after `complete --drop-old` there is only the second collection
        if items is None:
            raise StoreError(f"{self.name}: the collection has been deleted.")
        self._layout = ChromaLayout(
            owner=items,
            added=added,
            columns=self.columns,
            old_dim=0 if owner is None else owner.dim(),
            dropped=owner is None,
        )
        return self._layout
