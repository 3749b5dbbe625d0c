"""Writing: compare-and-set, row by row."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fastfill.gallery import Store
from fastfill.testing.world import (
    NEW_DIM,
    OLD_DIM,
    SETTLED,
    StoreChecks,
    marks,
    new_vectors,
    picked,
    read_sorted,
    snapshot,
)


class WriteChecks(StoreChecks):
    """A row is written only if it is what was read."""

    def test_writes_vectors_and_marks(self) -> None:
        """Vectors and marks are written, nothing of the owner's changes, counts agree."""
        store, reference = self.both()
        for each in (store, reference):
            self.align_all(each)
            rows = read_sorted(each, self.values()["id"][5:12])
            assert each.write(rows, new_vectors(rows, 3), marks("new", rows)) == 7
        assert snapshot(store) == snapshot(reference)
        assert store.counts() == reference.counts() == {("aligned", "map"): 23, ("new", "model"): 7}

    def test_waiting_rows_have_no_vector(self) -> None:
        """A row can be marked as waiting; it then has no added vector and is picked by priority."""
        store, reference = self.both()
        for each in (store, reference):
            self.align_all(each)
            rows = read_sorted(each, [self.key(1)])
            assert each.write(rows, None, marks("waiting", rows)) == 1
            assert picked(each, "waiting", 9) == [self.key(1)]
        assert snapshot(store) == snapshot(reference)

    def test_rows_changed_since_they_were_read_are_not_written(self) -> None:
        """Compare-and-set: a changed text, vector or mark, or a deleted row, is left alone."""
        store, reference = self.both()
        for each in (store, reference):
            self.align_all(each)
            rows = read_sorted(each, self.values()["id"][:8])
            names = rows.ids.tolist()
            each.upsert({"id": [names[0]], "text": ["edited"]})
            each.upsert({"id": [names[1]], "vector": [[2.0] * OLD_DIM]})
            each.upsert({"id": [names[2]], "album": [99]})
            each.delete([names[3]])
            other = read_sorted(each, [names[4]])
            each.write(other, new_vectors(other, 9), marks("new", other))
            each.upsert({"id": [names[5]], "text": [None]})
            realigned = read_sorted(each, [names[6]])
            each.write(realigned, new_vectors(realigned, 8), marks("aligned", realigned, "another"))
            assert each.write(rows, new_vectors(rows, 5), marks("new", rows)) == 2
            assert each.write(rows, new_vectors(rows, 6), marks("new", rows)) == 0
        assert snapshot(store) == snapshot(reference)

    def test_rows_read_without_old_vectors_are_written_if_they_are_the_same(self) -> None:
        """What is read for an encoder alone is written where what was encoded is the same."""
        store, reference = self.both()
        names = [self.key(number) for number in range(6)]
        for each in (store, reference):
            self.align_all(each)
            each.upsert({"id": names[1:2], "album": [7]})
            each.upsert({"id": names[2:3], "text": ["edited before"]})
            rows = read_sorted(each, names, old=False)
            assert "edited before" in rows.inputs.tolist()
            each.upsert({"id": names[3:4], "text": ["edited after"]})
            vectors = np.ones((len(rows), NEW_DIM), np.float32)
            assert each.write(rows, vectors, marks("new", rows)) == 5
            each.upsert({"id": names, "album": [8] * len(names)})  # fingerprints are looked at then
        assert snapshot(store) == snapshot(reference)
        assert self._unsettled(store) == [str(names[3])]

    def test_a_vector_changed_since_its_row_was_read_without_it_is_found(self) -> None:
        """Whether such a row is written or not, and also if it changed before: a sweep sees it."""
        store, _ = self.both()
        names = [self.key(number) for number in range(3)]
        self.align_all(store)
        store.upsert({"id": names[:1], "vector": [[3.0] * OLD_DIM]})
        rows = read_sorted(store, names, old=False)
        store.upsert({"id": names[1:2], "vector": [[2.0] * OLD_DIM]})
        vectors = np.ones((len(rows), NEW_DIM), np.float32)
        assert store.write(rows, vectors, marks("new", rows)) >= 1
        found = self._unsettled(store)
        assert str(names[1]) in found
        assert str(names[2]) not in found
        # The first was another one before it was read: its new vector is of what was read.
        assert set(found) <= {str(names[0]), str(names[1])}

    def _unsettled(self, store: Store) -> list[str]:
        every = store.unsettled(SETTLED, batch=4, changed=True)
        return sorted(str(key) for rows in every for key in rows.ids)

    def test_rows_may_be_read_beside_a_write_by_another_thread(self) -> None:
        """A batch that one thread has read before another batch was written can be written too."""
        store, reference = self.both()
        for each in (store, reference):
            self.align_all(each)
            first = read_sorted(each, self.values()["id"][:5])
            with ThreadPoolExecutor(1) as thread:
                next_ids = self.values()["id"][5:10]
                ahead = thread.submit(read_sorted, each, next_ids, old=False).result()
                assert each.write(first, new_vectors(first), marks("new", first)) == 5
            vectors = np.ones((5, NEW_DIM), np.float32)
            assert each.write(ahead, vectors, marks("new", ahead)) == 5
        assert snapshot(store) == snapshot(reference)

    def test_an_empty_write_is_nothing(self) -> None:
        """Writing no rows writes nothing."""
        store, _ = self.both()
        rows = store.read([])
        assert store.write(rows, np.zeros((0, NEW_DIM), np.float32), marks("new", rows)) == 0
