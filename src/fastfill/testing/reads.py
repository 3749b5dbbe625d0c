"""Reading rows, one by one and many at a time."""

from __future__ import annotations

import numpy as np

from fastfill.gallery import Id, Settled
from fastfill.testing.world import (
    COLUMNS,
    NEW_DIM,
    OLD_DIM,
    SETTLED,
    StoreChecks,
    marks,
    new_vectors,
    read_sorted,
    refused,
    snapshot,
)


class ReadChecks(StoreChecks):
    """Rows come as they are, each once."""

    def test_reads_rows_by_id(self) -> None:
        """Rows come with their content; ids that do not exist are left out."""
        store, reference = self.both()
        ids: list[Id] = [self.key(3), self.key(999), self.key(17)]
        mine, right = read_sorted(store, ids), read_sorted(reference, ids)
        assert mine.ids.tolist() == right.ids.tolist()
        assert sorted(map(str, mine.ids)) == self.texts(3, 17)
        assert mine.inputs.tolist() == right.inputs.tolist()
        np.testing.assert_array_equal(mine.old, right.old)
        assert mine.generation.tolist() == [None, None]
        assert len(store.read([])) == 0

    def test_reads_one_more_column(self) -> None:
        """Values of a column of the owner's come by id; a column that is not there is refused."""
        store, reference = self.both()
        ids: list[Id] = [self.key(3), self.key(999), self.key(17)]
        texts = self.values()["text"]
        for column, expected in (("album", [0, 2]), ("text", [texts[3], texts[17]])):
            by_id = store.values_of(column, ids)
            assert by_id == reference.values_of(column, ids)
            assert [by_id[self.key(3)], by_id[self.key(17)]] == expected
        assert store.values_of("album", []) == {}
        assert refused(lambda: store.values_of("nothing", ids))

    def test_missing_vectors_and_inputs(self) -> None:
        """A row without an old vector or without an input is read as such and can be written."""
        data = self.values_with_gaps(6, vector=1, text=2)
        store, reference = self.both(data)
        assert snapshot(store) == snapshot(reference)
        for each in (store, reference):
            rows = read_sorted(each, data["id"])
            assert rows.ids[~rows.usable].tolist() == data["id"][1:2] * self.vectors_optional
            assert each.write(rows, new_vectors(rows), marks("new", rows)) == 6
        assert snapshot(store) == snapshot(reference)

    def test_unsettled_rows_are_found_once(self) -> None:
        """At first every row is unsettled; rows written while looking are not seen again."""
        store, _ = self.both()
        seen: list[Id] = []
        for rows in store.unsettled(SETTLED, batch=7, changed=False):
            seen.extend(rows.ids)
            store.write(rows, new_vectors(rows), marks("aligned", rows))
        assert sorted(map(str, seen)) == self.texts(*range(30))
        assert not list(store.unsettled(SETTLED, batch=7, changed=True))

    def test_rows_of_another_model_are_unsettled(self) -> None:
        """Aligned rows of another alignment and new rows of another model are work to do."""
        store, reference = self.both()
        for each in (store, reference):
            self.align_all(each)
            rows = read_sorted(each, self.values()["id"][:5])
            each.write(rows, new_vectors(rows, 1), marks("new", rows))
            for settled, expected in (
                (Settled("map", "model"), 0),
                (Settled("other", "model"), 25),
                (Settled("map", "other"), 5),
                (Settled(None, "model"), 25),
            ):
                blocks = each.unsettled(settled, batch=100, changed=False)
                assert sum(map(len, blocks)) == expected
        assert snapshot(store) == snapshot(reference)

    def test_what_others_write_is_found(self) -> None:
        """Inserted rows have no marks; a changed vector or text changes the fingerprint."""
        store, _ = self.both()
        self.align_all(store)
        store.upsert(self.values(2, first=100))
        store.upsert({"id": [self.key(1)], "text": ["edited"]})
        store.upsert({"id": [self.key(2)], "vector": [[1.0] * OLD_DIM]})
        store.upsert({"id": [self.key(3)], "album": [77]})
        store.delete([self.key(4)])
        changed = [str(k) for r in store.unsettled(SETTLED, batch=9, changed=True) for k in r.ids]
        assert sorted(changed) == self.texts(1, 2, 100, 101)
        unmarked = [str(k) for r in store.unsettled(SETTLED, batch=9, changed=False) for k in r.ids]
        assert sorted(unmarked) == self.texts(100, 101)

    def test_a_vector_written_by_the_application_is_seen(self) -> None:
        """A row without marks that has an added vector comes with it when asked."""
        store, _ = self.both()
        self.align_all(store)
        extra = self.values(1, first=200)
        store.upsert({**extra, COLUMNS.new: [[0.5] * NEW_DIM]})
        (rows,) = store.unsettled(SETTLED, batch=9, changed=False, new=True)
        assert rows.new is not None
        np.testing.assert_array_equal(rows.new, np.full((1, NEW_DIM), 0.5, np.float32))

    def test_scans_a_generation(self) -> None:
        """Scanning by generation gives those rows, with the added vectors when asked."""
        store, reference = self.both()
        for each in (store, reference):
            rows = read_sorted(each, self.values()["id"][:4])
            each.write(rows, new_vectors(rows), marks("new", rows))
            blocks = list(each.scan("new", batch=3, new=True))
            assert sorted(str(k) for b in blocks for k in b.ids) == self.texts(*range(4))
            for block in blocks:
                assert block.new is not None
                np.testing.assert_allclose(block.new, new_vectors(block), rtol=1e-6)
            assert not list(each.scan("aligned", batch=3, new=False))

    def test_an_estimate_is_what_is_counted(self) -> None:
        """Where a store keeps numbers, they are those of a count while nobody else writes."""
        store, _ = self.both()
        store.save("state", b"{}", 0)
        self.align_all(store)
        store.counts()
        rows = read_sorted(store, self.values()["id"][:4])
        store.write(rows, new_vectors(rows), marks("new", rows))
        estimate = store.estimate()
        assert estimate is None or estimate == store.counts()

    def test_the_clock_goes_on(self) -> None:
        """The store's clock is that of the epoch, and does not stand."""
        store, _ = self.both()
        first = store.now()
        assert 1.6e9 < first <= store.now()
