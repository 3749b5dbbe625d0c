"""What the parts of a Qdrant store share: the connection, the collections, and where all is."""

from __future__ import annotations

from fastfill.adapters.qdrant.collection import QdrantCollection, find_collection
from fastfill.adapters.qdrant.connection import QdrantConnection
from fastfill.adapters.qdrant.layout import QdrantLayout
from fastfill.adapters.qdrant.ledger import QdrantLedger
from fastfill.adapters.qdrant.points import UNNAMED
from fastfill.errors import StoreError, some
from fastfill.gallery.base import StoreContext

PLAIN = "vector"  # what we call the vector of a collection that has just one


class QdrantContext(StoreContext):
    """One vector of one collection."""

    def __init__(self, connection: QdrantConnection, collection: str, vector: str | None) -> None:
        place = f"{connection.name}#{collection}" + (f".{vector}" if vector else "")
        super().__init__(place, vector or PLAIN)
        self.connection = connection
        self.collection = find_collection(connection, collection)  # behind an alias, perhaps
        self.owner = QdrantCollection(connection, self.collection)
        self.old = vector or UNNAMED  # Qdrant's name of the old vector
        self._layout: QdrantLayout | None = None

    def check_vector(self, dropped: bool) -> None:
        """Refuse a vector that is not there, unless a migration may have `dropped` it."""
        have = self.owner.vectors()
        if self.old in have:
            self.owner.distance(self.old)
            if have[self.old].multivector_config is not None:
                raise StoreError(f"{self.name} holds many vectors for a point, not one.")
        elif not have:
            raise StoreError(f"{self.name}: the collection has no dense vectors.")
        elif not self.old:
            raise StoreError(f"{self.name}: which vector? Add one of .{', .'.join(have)}.")
        elif not dropped:  # after `complete --drop-old` its name is gone
            named = [f"'{name}'" for name in have if name != UNNAMED]
            raise StoreError(
                f"{self.name}: the collection has no vector named '{self.old}', only "
                f"{some(named) or 'one without a name'}."
            )

    def close(self) -> None:
        """Let go of the connection."""
        self.connection.close()

    # --- where everything is -------------------------------------------------------------------

    @property
    def layout(self) -> QdrantLayout:
        """Where everything is; looked at again until there is an added vector."""
        if self._layout is None or self._layout.new_dim is None:
            self._layout = self.look()
        return self._layout

    def forget_layout(self) -> None:
        """Look again before the layout is next used."""
        self._layout = None

    @property
    def ledger(self) -> QdrantLedger:
        """The collection of our own."""
        return QdrantLedger(self.connection, self.collection, self.columns)

    def look(self) -> QdrantLayout:
        """Ask the server where everything is."""
        columns, vectors, ledger = self.columns, self.owner.vectors(), self.ledger
        there = ledger.exists()
        inside = ledger.collection.dim(columns.new) if there else None
        beside = columns.new in vectors
        self._layout = QdrantLayout(
            owner=self.owner,
            ledger=ledger,
            columns=columns,
            old=self.old,
            old_dim=int(vectors[self.old].size) if self.owner.has_any(self.old) else 0,
            new_dim=int(vectors[columns.new].size) if beside else inside,
            beside=beside,
            ledgered=there,
        )
        return self._layout
