"""Columns: what is there, what a migration adds and takes away."""

from __future__ import annotations

from fastfill.gallery import MemoryStore
from fastfill.testing.world import (
    COLUMNS,
    NEW_DIM,
    OLD_DIM,
    StoreChecks,
    bound,
    new_vectors,
    refused,
    snapshot,
)


class SchemaChecks(StoreChecks):
    """Expanding and contracting touch nothing of the owner's."""

    def test_describes_the_collection(self) -> None:
        """Rows, dimensions and columns are those of the collection; nothing is added by looking."""
        store = bound(self.make(self.values(30)))
        described = store.describe()
        assert (described.rows, described.old_dim, described.new_dim) == (30, OLD_DIM, None)
        assert {"id", "text", "album", "vector"} <= set(described.columns)
        assert not set(COLUMNS.added) & set(described.columns)
        assert described.batch >= 1

    def test_names_what_a_migration_adds(self) -> None:
        """The vector comes first; the names are free until they are added, and afterwards again."""
        for store in (self.make(self.values()), MemoryStore(self.values())):
            bound(store)
            assert store.added[0] == COLUMNS.new
            assert len(set(store.added)) == len(store.added)
            assert store.occupied() == ()
            assert store.save("state", b"of a migration", 0)
            assert store.occupied() == ()
            store.expand(NEW_DIM)
            assert store.occupied()[0] == COLUMNS.new
            assert set(store.occupied()) <= set(store.added)
            store.contract()
            assert store.occupied() == ()

    def test_expanding_twice_changes_nothing(self) -> None:
        """Expanding is idempotent and touches no column of the owner's."""
        store, reference = self.both()
        self.align_all(store)
        before = snapshot(store)
        store.expand(NEW_DIM)
        assert snapshot(store) == before
        assert store.describe().new_dim == NEW_DIM == reference.describe().new_dim

    def test_another_dimension_is_refused(self) -> None:
        """The added column keeps its dimension."""
        store, _ = self.both()
        assert refused(lambda: store.expand(NEW_DIM + 1))

    def test_contracting_restores_the_collection(self) -> None:
        """After contracting twice only the owner's columns and values are left."""
        store, _ = self.both()
        self.align_all(store)
        store.contract()
        store.contract()
        described = store.describe()
        assert not set(COLUMNS.added) & set(described.columns)
        assert described.new_dim is None
        old = {key: row[:2] for key, row in snapshot(bound(MemoryStore(self.values()))).items()}
        assert {key: row[:2] for key, row in snapshot(store).items()} == old

    def test_dropping_the_old_vectors_keeps_the_new(self) -> None:
        """After `drop_old` the added vectors are still searched, the old and the marks are gone."""
        store, _ = self.both()
        self.align_all(store)
        query = new_vectors(store.read([self.key(4)]))[0]
        store.drop_old()
        store.drop_old()
        described = store.describe()
        assert "vector" not in described.columns
        assert COLUMNS.new in described.columns
        assert COLUMNS.mark("generation") not in described.columns
        assert store.search(query, 1, side="new", distance="l2").ids.tolist() == [self.key(4)]
