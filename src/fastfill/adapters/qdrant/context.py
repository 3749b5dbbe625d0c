"""What the parts of a Qdrant store share: the connection, the collections, and where all is."""

from __future__ import annotations

from fastfill.adapters.qdrant.collection import Copies, QdrantCollection, find_collection
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
        self.given = collection
        self.old = vector or UNNAMED  # Qdrant's name of the old vector
        self._layout: QdrantLayout | None = None
        self.look_behind_alias()
        self.collection = Copies(self.owner.name, self.column).base

    def look_behind_alias(self) -> None:
        """Find the collection that the name stands for now, which a swap changes."""
        self.owner = QdrantCollection(self.connection, find_collection(self.connection, self.given))

    @property
    def copies(self) -> Copies:
        """The names of the collection's copies."""
        return Copies(self.owner.name, self.column)

    def copied_from(self) -> QdrantCollection:
        """The collection that the present one is a copy of."""
        return QdrantCollection(self.connection, self.copies.before or self.owner.name)

    def existing(self, name: str | None) -> QdrantCollection | None:
        """The collection of this name, if there is one."""
        found = None if name is None else QdrantCollection(self.connection, name)
        return found if found is not None and found.exists() else None

    def switched(self) -> bool:
        """While a swap is under way: does the alias stand for the copy?"""
        copies = self.copies
        return self.existing(copies.before) is not None and self.existing(copies.after) is None

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
        columns = self.columns
        before = columns.swapped_back if columns.new == self.column else columns
        return QdrantLedger(self.connection, self.collection, before)

    def look(self) -> QdrantLayout:
        """Ask the server where everything is."""
        columns, vectors, ledger = self.columns, self.owner.vectors(), self.ledger
        swapped = columns.new == self.column
        new = self.old if swapped else columns.new
        home = self.existing(self.copies.before) if swapped else self.owner
        there = ledger.exists()
        inside = ledger.collection.dim(columns.new) if there and not self.switched() else None
        beside = new in vectors
        probed = there and beside and not swapped and self.owner.can_score()
        has_old = home is not None and home.has_any(self.old)
        self._layout = QdrantLayout(
            owner=self.owner,
            ledger=ledger,
            columns=columns,
            old=self.old,
            old_home=home,
            old_dim=home.dim(self.old) or 0 if home is not None and has_old else 0,
            new=new,
            new_dim=int(vectors[new].size) if beside else inside,
            beside=beside,
            ledgered=there,
            probed=probed,
        )
        return self._layout
