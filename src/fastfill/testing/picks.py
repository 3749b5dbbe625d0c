"""Picking rows by priority, and samples of them."""

from __future__ import annotations

import numpy as np

from fastfill.testing.world import (
    NEW_DIM,
    OLD_DIM,
    StoreChecks,
    marks,
    new_vectors,
    picked,
    read_sorted,
    snapshot,
)


class PickChecks(StoreChecks):
    """What is picked is read as it is when it is read."""

    def test_picks_by_priority(self) -> None:
        """Ids come by falling priority, without the excluded ones."""
        store, reference = self.both()
        ids = self.values()["id"]
        for each in (store, reference):
            rows = read_sorted(each, ids)
            each.write(rows, new_vectors(rows), marks("aligned", rows))
            order = rows.ids.tolist()
            assert picked(each, "aligned", 5) == order[:5]
            without = {order[0], order[2]}
            assert picked(each, "aligned", 3, without) == [order[1], order[3], order[4]]
            first = read_sorted(each, order[:2])
            each.write(first, new_vectors(first), marks("new", first))
            assert picked(each, "aligned", 2) == order[2:4]
            assert picked(each, "waiting", 2) == []
            assert len(each.pick("aligned", 1_000, ())) == 28

    def test_a_pick_can_be_taken_in_parts(self) -> None:
        """Parts of a pick, one after the other, are read and written as the whole would be."""
        store, reference = self.both()
        for each in (store, reference):
            self.align_all(each)
            every = each.pick("aligned", 100, ())
            assert len(every) == 30
            for first in range(0, 30, 8):
                rows = read_sorted(each, every.take(slice(first, first + 8)), old=False)
                assert sorted(map(str, rows.ids)) == sorted(map(str, every.ids[first : first + 8]))
                vectors = np.ones((len(rows), NEW_DIM), np.float32)
                assert each.write(rows, vectors, marks("new", rows)) == len(rows)
            assert len(each.read(every.take([]))) == 0
        assert snapshot(store) == snapshot(reference)

    def test_what_was_picked_is_read_as_it_is_now(self) -> None:
        """Rows that were written, changed, deleted or moved since the pick come as they are."""
        store, reference = self.both()
        for each in (store, reference):
            rows = read_sorted(each, self.values()["id"])
            each.write(rows, new_vectors(rows), marks("aligned", rows))
        mine, right = (each.pick("aligned", 12, ()) for each in (store, reference))
        assert mine.ids.tolist() == right.ids.tolist()
        for each, every in ((store, mine), (reference, right)):
            names = every.ids.tolist()
            done = read_sorted(each, every.take([0, 3]))
            each.write(done, new_vectors(done, 1), marks("new", done))
            each.upsert({"id": names[4:5], "text": ["edited"]})
            each.upsert({"id": names[5:6], "vector": [[2.0] * OLD_DIM]})
            each.delete(names[6:8])
            each.optimize()
        now, then = read_sorted(store, mine, new=True), read_sorted(reference, right, new=True)
        assert len(now) == 10
        for name in ("ids", "inputs", "generation", "model"):
            assert getattr(now, name).tolist() == getattr(then, name).tolist()
        np.testing.assert_allclose(now.old, then.old, rtol=1e-6)
        assert store.write(now, new_vectors(now, 2), marks("new", now)) == 10
        assert reference.write(then, new_vectors(then, 2), marks("new", then)) == 10
        assert snapshot(store) == snapshot(reference)

    def test_samples_rows_that_can_be_paired(self) -> None:
        """A sample has no row without an old vector or input, and none that is new already."""
        data = self.values_with_gaps(10, vector=1, text=2)
        store, _ = self.both(data)
        rows = store.read([self.key(3)])
        store.write(rows, new_vectors(rows), marks("new", rows))
        sample = store.sample(100, seed=1)
        with_vectors = (0, 4, 5, 6, 7, 8, 9, *([] if self.vectors_optional else [1]))
        assert sorted(map(str, sample)) == self.texts(*with_vectors)
        assert len(set(store.sample(3, seed=1))) == 3

    def test_samples_rows_that_are_new(self) -> None:
        """Such a sample has no row but those that are new, and not always the same of them."""
        store, reference = self.both()
        for each in (store, reference):
            self.align_all(each)
            assert each.sample(5, seed=1, new=True) == []
            rows = read_sorted(each, self.values()["id"][:20])
            each.write(rows, new_vectors(rows), marks("new", rows))
            assert sorted(map(str, each.sample(100, seed=1, new=True))) == self.texts(*range(20))
            samples = [each.sample(4, seed, new=True) for seed in range(8)]
            assert all(len(set(sample)) == 4 for sample in samples)
            assert len({key for sample in samples for key in sample}) > 4
