"""The suite that every store adapter passes: operation by operation against the reference.

Subclass it in a test module of your adapter and say how a collection is made; pytest does the rest:

    class TestMyStore(StoreSuite):
        def make(self, values, distance=None):
            ...create a collection with these columns, open it...
            return store

`values` has the columns `id`, `text`, `album` and `vector` (lists of floats, some of them None).
A store that cannot hold any text as an id says in `key` what the ids are like.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.features import DISTANCES, Distance, Matrix
from fastfill.gallery import (
    Columns,
    Generation,
    Id,
    Marks,
    MemoryStore,
    Picked,
    Rows,
    Settled,
    Side,
    Store,
)

OLD_DIM, NEW_DIM = 8, 12
COLUMNS = Columns(id="id", input="text", old="vector")
QUERY = np.linspace(-1, 1, NEW_DIM).astype(np.float32)
SIDES: tuple[tuple[Side, Matrix], ...] = (("old", QUERY[:OLD_DIM]), ("new", QUERY))
SETTLED = Settled(aligned="map", new="model")


def quoted(number: int) -> Id:
    """An id with a quote in it."""
    return f"it's {number}"


def values(
    rows: int = 30, first: int = 0, seed: int = 0, key: Callable[[int], Id] = quoted
) -> dict[str, list[Any]]:
    """Columns of a small collection: ids of any kind, texts of all kinds."""
    rng = np.random.default_rng([seed, first])
    numbers = range(first, first + rows)
    return {
        "id": [key(n) for n in numbers],
        "text": [f"text {n} ü\n'\"" for n in numbers],
        "album": [n % 3 for n in numbers],
        "vector": [rng.standard_normal(OLD_DIM).astype(np.float32).tolist() for _ in numbers],
    }


def new_vectors(rows: Rows, salt: float = 0.0) -> Matrix:
    """(n, NEW_DIM) vectors that depend on the row's content alone."""
    old = np.nan_to_num(rows.old)
    length = np.array([len(text or "") for text in rows.inputs], dtype=np.float32)
    wide = np.concatenate([old, old[:, : NEW_DIM - OLD_DIM] + 1], axis=1) + salt
    return np.asarray(wide + length[:, None], dtype=np.float32)


def marks(generation: str, rows: Rows, model: str | None = None) -> Marks:
    """Marks with a priority that falls with the position."""
    numbers = np.arange(len(rows), dtype=np.float32)
    model = model or {"aligned": "map", "new": "model", "waiting": "model"}[generation]
    return Marks(generation, model, variance=numbers / 10, priority=-numbers)  # type: ignore[arg-type]


Snapshot = dict[Id, tuple[Any, ...]]


def snapshot(store: Store) -> Snapshot:
    """Everything that can be read, by id."""
    expanded = store.describe().new_dim is not None
    found: Snapshot = {}
    for rows in store.scan(None, batch=7, new=expanded):
        for position, key in enumerate(rows.ids):
            assert key not in found, f"{key} was read twice"
            found[key] = (
                _rounded(rows.old[position]),
                rows.inputs[position],
                rows.generation[position],
                rows.model[position],
                None if rows.new is None else _rounded(rows.new[position]),
            )
    return found


def _rounded(vector: NDArray[np.float32]) -> tuple[float, ...] | None:
    return None if np.isnan(vector).any() else tuple(np.round(vector, 4).tolist())


def bound(store: Store) -> Store:
    """The store with its columns named."""
    store.bind(COLUMNS)
    return store


def read_sorted(
    store: Store, rows: Sequence[Id] | Picked, new: bool = False, old: bool = True
) -> Rows:
    """Rows in the order of their ids, so that two stores can be compared."""
    found = store.read(rows, old=old, new=new)
    return found.take(np.argsort(found.ids.astype(str), kind="stable"))


def picked(
    store: Store, generation: Generation, limit: int, exclude: Collection[Id] = ()
) -> list[Id]:
    """The ids of what is picked."""
    return list(store.pick(generation, limit, exclude).ids)


class StoreSuite:
    """What a store must do, each test on the adapter and on the reference."""

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """A store over a fresh collection with these columns."""
        raise StoreSuiteError("Subclass StoreSuite and say in `make` how a collection is made.")

    def key(self, number: int) -> Id:
        """The id of an item."""
        return quoted(number)

    def values(self, rows: int = 30, first: int = 0) -> dict[str, list[Any]]:
        """Columns of a small collection."""
        return values(rows, first, key=self.key)

    def texts(self, *numbers: int) -> list[str]:
        """The ids of these items as texts, in order."""
        return sorted(str(self.key(number)) for number in numbers)

    def both(self, data: Mapping[str, Sequence[Any]] | None = None) -> tuple[Store, Store]:
        """The adapter and the reference over the same rows, expanded."""
        data = self.values() if data is None else data
        stores: tuple[Store, Store] = (self.make(data), MemoryStore(data))
        for store in stores:
            bound(store).expand(NEW_DIM)
        return stores

    def align_all(self, store: Store) -> None:
        """Settle every row as aligned."""
        for rows in store.unsettled(SETTLED, batch=11, changed=False):
            store.write(rows, new_vectors(rows), marks("aligned", rows))

    # --- what is there -------------------------------------------------------------------------

    def test_describes_the_collection(self) -> None:
        """Rows, dimensions and columns are those of the collection; nothing is added by looking."""
        store = bound(self.make(self.values(30)))
        found = store.describe()
        assert (found.rows, found.old_dim, found.new_dim) == (30, OLD_DIM, None)
        assert {"id", "text", "album", "vector"} <= set(found.columns)
        assert not set(COLUMNS.added) & set(found.columns)
        assert found.batch >= 1

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
        from fastfill.errors import StoreError

        store, _ = self.both()
        try:
            store.expand(NEW_DIM + 1)
        except StoreError:
            return
        raise AssertionError("expanding to another dimension was accepted")

    def test_contracting_restores_the_collection(self) -> None:
        """After contracting twice only the owner's columns and values are left."""
        store, _ = self.both()
        self.align_all(store)
        store.contract()
        store.contract()
        found = store.describe()
        assert not set(COLUMNS.added) & set(found.columns)
        assert found.new_dim is None
        old = {key: row[:2] for key, row in snapshot(bound(MemoryStore(self.values()))).items()}
        assert {key: row[:2] for key, row in snapshot(store).items()} == old

    def test_dropping_the_old_vectors_keeps_the_new(self) -> None:
        """After `drop_old` the added vectors are still searched, the old and the marks are gone."""
        store, _ = self.both()
        self.align_all(store)
        query = new_vectors(store.read([self.key(4)]))[0]
        store.drop_old()
        store.drop_old()
        found = store.describe()
        assert "vector" not in found.columns
        assert COLUMNS.new in found.columns
        assert COLUMNS.mark("generation") not in found.columns
        assert store.search(query, 1, side="new", distance="l2").ids.tolist() == [self.key(4)]

    # --- reading -------------------------------------------------------------------------------

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
        from fastfill.errors import StoreError

        store, reference = self.both()
        ids: list[Id] = [self.key(3), self.key(999), self.key(17)]
        texts = self.values()["text"]
        for column, expected in (("album", [0, 2]), ("text", [texts[3], texts[17]])):
            found = store.values_of(column, ids)
            assert found == reference.values_of(column, ids)
            assert [found[self.key(3)], found[self.key(17)]] == expected
        assert store.values_of("album", []) == {}
        try:
            store.values_of("nothing", ids)
        except StoreError:
            return
        raise AssertionError("a column that does not exist was read")

    def test_missing_vectors_and_inputs(self) -> None:
        """A row without an old vector or without an input is read as such and can be written."""
        data = self.values(6)
        data["vector"][1] = None
        data["text"][2] = None
        store, reference = self.both(data)
        assert snapshot(store) == snapshot(reference)
        for each in (store, reference):
            rows = read_sorted(each, data["id"])
            assert rows.ids[~rows.usable].tolist() == [data["id"][1]]
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
                found = each.unsettled(settled, batch=100, changed=False)
                assert sum(len(rows) for rows in found) == expected
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
        found = [str(k) for r in store.unsettled(SETTLED, batch=9, changed=True) for k in r.ids]
        assert sorted(found) == self.texts(1, 2, 100, 101)
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
        data = self.values(10)
        data["vector"][1] = None
        data["text"][2] = None
        store, _ = self.both(data)
        rows = store.read([self.key(3)])
        store.write(rows, new_vectors(rows), marks("new", rows))
        sample = store.sample(100, seed=1)
        assert sorted(map(str, sample)) == self.texts(0, 4, 5, 6, 7, 8, 9)
        assert len(set(store.sample(3, seed=1))) == 3

    # --- writing -------------------------------------------------------------------------------

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
            assert each.write(rows, new_vectors(rows, 5), marks("new", rows)) == 3
            assert each.write(rows, new_vectors(rows, 6), marks("new", rows)) == 0
        assert snapshot(store) == snapshot(reference)

    def test_rows_read_without_old_vectors_are_written_if_they_are_the_same(self) -> None:
        """What is read for an encoder alone is compared as any other row, vector and all."""
        store, reference = self.both()
        names = [self.key(number) for number in range(6)]
        for each in (store, reference):
            self.align_all(each)
            each.upsert({"id": names[1:2], "album": [7]})
            each.upsert({"id": names[2:3], "text": ["edited before"]})
            rows = read_sorted(each, names, old=False)
            assert "edited before" in rows.inputs.tolist()
            each.upsert({"id": names[3:4], "text": ["edited after"]})
            each.upsert({"id": names[4:5], "vector": [[2.0] * OLD_DIM]})
            vectors = np.ones((len(rows), NEW_DIM), np.float32)
            assert each.write(rows, vectors, marks("new", rows)) == 4
            each.upsert({"id": names, "album": [8] * len(names)})  # fingerprints are looked at then
        assert snapshot(store) == snapshot(reference)
        left = [key for rows in store.unsettled(SETTLED, batch=4, changed=True) for key in rows.ids]
        assert sorted(map(str, left)) == sorted(map(str, names[3:5]))

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

    # --- searching -----------------------------------------------------------------------------

    def test_searches_both_sides(self) -> None:
        """Neighbours, distances and generations are those of the reference, with a filter too."""
        store, reference = self.both()
        for each in (store, reference):
            self.align_all(each)
        for distance, where in product(DISTANCES, (None, {"album": 1})):
            for side, vector in SIDES:
                mine, right = (
                    each.search(vector, 6, side=side, distance=distance, where=where, exact=True)
                    for each in (store, reference)
                )
                assert mine.ids.tolist() == right.ids.tolist()
                np.testing.assert_allclose(mine.distances, right.distances, rtol=1e-3, atol=1e-4)
                assert mine.generation.tolist() == right.generation.tolist()

    def test_rows_without_a_vector_are_not_found(self) -> None:
        """Before anything is written the added column has no neighbours to give."""
        store, _ = self.both()
        hits = store.search(np.ones(NEW_DIM), 5, side="new", distance="l2")
        assert len(hits.ids) == 0

    # --- documents -----------------------------------------------------------------------------

    def test_documents_are_replaced_by_compare_and_set(self) -> None:
        """A document is written only by whoever knows its version."""
        store, _ = self.both()
        assert store.load("a/1") is None
        assert store.save("a/1", b"\x00one'", 0)
        assert not store.save("a/1", b"late", 0)
        document = store.load("a/1")
        assert document is not None
        assert document.value == b"\x00one'"
        assert store.save("a/1", b"two", document.version)
        assert not store.save("a/1", b"three", document.version)
        assert not store.save("a/9", b"nine", 5)
        latest = store.load("a/1")
        assert latest is not None
        assert latest.value == b"two"

    def test_documents_are_listed_and_removed(self) -> None:
        """Names are listed by prefix and in order; removing what is not there is no error."""
        store, _ = self.both()
        for name in ("b/2", "a_1", "b/1", "b%"):
            assert store.save(name, b"-", 0)
        assert store.names("b/") == ["b/1", "b/2"]
        store.remove(["b/1", "c"])
        assert store.names("b") == ["b%", "b/2"]
        assert store.save("b/1", b"again", 0)

    def test_optimizing_changes_no_row(self) -> None:
        """Compaction leaves every row as it was."""
        store, _ = self.both()
        self.align_all(store)
        before = snapshot(store)
        store.optimize()
        assert snapshot(store) == before


class StoreSuiteError(Exception):
    """The suite was used without saying how a collection is made."""
