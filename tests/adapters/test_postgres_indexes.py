"""What is repeated on PostgreSQL reads the rows that it needs, whatever the size of the table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from fastfill.features import Distance
from fastfill.gallery import Columns, Layout, Marks, Settled, Store
from fastfill.testing.picks import PickChecks
from fastfill.testing.reads import ReadChecks
from tests.adapters.test_postgres_store import create_table

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

DIM = 3
ROWS = 3_000
SETTLED = Settled("map", "model")
ODD_TEXTS = ["", "\\", "\\x41", "a\\\\b", "é 漢 😀", "'; --", None]


@pytest.fixture(autouse=True)
def _as_if_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows get the indexes of a large table that is worked on for long."""
    monkeypatch.setattr("fastfill.adapters.postgres.indexes.LARGE", 0)
    monkeypatch.setattr("fastfill.adapters.postgres.indexes.AT_WORK", 0.0)


class TestReadsByIndex(ReadChecks, PickChecks):
    """The suite's reads while the indexes are there."""

    @pytest.fixture(autouse=True)
    def _database(self, postgres: str) -> Iterator[None]:
        self.uri, self.opened = postgres, list[Store]()
        yield
        for store in self.opened:
            store.close()

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """A store that builds its indexes as soon as there are marks."""
        from fastfill.adapters.postgres import PostgresStore

        class Indexed(PostgresStore):
            def expand(self, dim: int) -> None:
                super().expand(dim)
                self.optimize()

        create_table(self.uri, values)
        self.opened.append(Indexed(self.uri, "Photos", "vector"))
        return self.opened[-1]


@pytest.fixture
def items(postgres: str) -> Iterator[Any]:
    """The owner's connection to a table `items`, and a number of rows in it."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE items (id int PRIMARY KEY, text text, v vector({DIM}))")
        connection.execute(
            "INSERT INTO items SELECT n, 'text ' || n, ARRAY[n, 1, 2]::vector "
            f"FROM generate_series(1, {ROWS}) n"
        )
        yield connection


def opened(uri: str, layout: Layout = "columns") -> Store:
    """The store over that table."""
    from fastfill.adapters.postgres import PostgresStore

    store = PostgresStore(uri, "items", "v")
    store.bind(Columns(id="id", input="text", old="v", layout=layout))
    return store


def align_all(store: Store, model: str = "map") -> None:
    """Give every row that is not settled an aligned vector."""
    for rows in store.unsettled(Settled(model, "model"), batch=1_000, changed=True):
        priority = np.arange(len(rows), dtype=np.float32)
        store.write(
            rows, np.ones((len(rows), DIM), np.float32), Marks("aligned", model, None, priority)
        )


@pytest.fixture
def aligned(postgres: str, items: Any) -> Iterator[Store]:
    """The store with every row aligned and its indexes built, some rows new."""
    store = opened(postgres)
    store.expand(DIM)
    store.save("state", b"{}", 0)
    align_all(store)
    store.optimize()
    rows = store.read(list(range(1, 51)))
    store.write(rows, np.ones((len(rows), DIM), np.float32), Marks("new", "model"))
    store.counts()
    items.execute("VACUUM ANALYZE items")
    yield store
    store.close()


def rows_read(uri: str, work: Callable[[Store], object]) -> int:
    """How many rows of the table the server reads for this, by its own statistics."""
    query = (
        "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables "
        "WHERE relname = 'items'"
    )

    def total() -> int:
        with psycopg.connect(uri, autocommit=True) as connection:
            return int(connection.execute(query).fetchone()[0])

    before, store = total(), opened(uri)
    work(store)
    store.close()  # the server's processes hand their statistics in when they end
    last = total()
    for _ in range(100):
        time.sleep(0.02)
        if last == (last := total()):
            break
    return last - before


REPEATED: dict[str, Callable[[Store], object]] = {
    "sweep": lambda store: list(store.unsettled(SETTLED, batch=100, changed=True)),
    "progress": lambda store: store.estimate(),
    "pick": lambda store: store.pick("aligned", 10, [7]),
    "first aligned rows": lambda store: next(store.scan("aligned", batch=10, new=True)),
    "new rows": lambda store: list(store.scan("new", batch=10, new=True)),
}


def test_what_is_repeated_reads_few_rows(postgres: str, aligned: Store, items: Any) -> None:
    """A sweep, the progress, a pick and scans read the rows they give, of thousands."""
    items.execute("UPDATE items SET text = 'edited' WHERE id = 2000")
    read = {name: rows_read(postgres, work) for name, work in REPEATED.items()}
    assert {name: rows for name, rows in read.items() if rows > 150} == {}
    assert rows_read(postgres, lambda store: store.counts()) >= ROWS - 1  # that is what it measures


def test_odd_texts_are_settled_and_their_edits_found(aligned: Store, items: Any) -> None:
    """The index says of every text what the fingerprint of its bytes says."""
    for number, text in enumerate(ODD_TEXTS, 10_000):
        items.execute("INSERT INTO items VALUES (%s, %s, '[1,2,3]')", [number, text])
    assert sum(map(len, aligned.unsettled(SETTLED, batch=4, changed=True))) == len(ODD_TEXTS)
    align_all(aligned)
    assert not list(aligned.unsettled(SETTLED, batch=4, changed=True))
    items.execute("UPDATE items SET text = coalesce(text, '') || '\\' WHERE id >= 10000")
    assert sum(map(len, aligned.unsettled(SETTLED, batch=4, changed=True))) == len(ODD_TEXTS)


def test_a_type_that_no_index_can_hold_is_swept_row_by_row(postgres: str, items: Any) -> None:
    """A text made of a time depends on settings: there is no such index, and edits are found."""
    items.execute("ALTER TABLE items ALTER text TYPE timestamptz USING now()")
    store = opened(postgres)
    store.expand(DIM)
    align_all(store)
    store.optimize()
    names = [name for (name,) in items.execute("SELECT indexname FROM pg_indexes").fetchall()]
    assert "items_ff_v_marks" in names
    assert "items_ff_v_changed" not in names
    items.execute("UPDATE items SET text = '2020-01-01' WHERE id = 5")
    (rows,) = store.unsettled(SETTLED, batch=10, changed=True)
    assert rows.ids.tolist() == [5]
    store.close()


def test_a_table_is_read_row_by_row_until_the_work_has_lasted(
    postgres: str, items: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has one index; edits and inserted rows are found all the same, and counted then. Who
    works on gets the other two."""
    monkeypatch.setattr("fastfill.adapters.postgres.indexes.AT_WORK", 3_600.0)
    store = opened(postgres)
    store.expand(DIM)
    store.save("state", b"{}", 0)
    align_all(store)
    store.optimize()
    query = "SELECT indexname FROM pg_indexes WHERE tablename = 'items' ORDER BY 1"
    assert items.execute(query).fetchall() == [("items_ff_v_order",), ("items_pkey",)]
    items.execute("UPDATE items SET text = 'edited' WHERE id IN (7, 2000)")
    items.execute("INSERT INTO items VALUES (20000, 'more', '[1,2,3]')")
    store.counts()
    items.execute("INSERT INTO items VALUES (20001, 'more', '[1,2,3]')")
    found = store.unsettled(SETTLED, batch=3, changed=True)
    assert [rows.ids.tolist() for rows in found] == [[7, 2_000, 20_000], [20_001]]
    assert store.estimate() == {("aligned", "map"): ROWS, (None, None): 1}  # as last counted
    align_all(store)
    assert store.estimate() == store.counts() == {("aligned", "map"): ROWS + 2}
    store._context.opened -= 3_600
    store.optimize()
    assert [row for row in items.execute(query).fetchall() if "_ff_v_" in row[0]] == [
        (f"items_ff_v_{end}",) for end in ("changed", "marks", "order")
    ]
    store.close()


@pytest.mark.parametrize("layout", ["columns", "side"])
@pytest.mark.parametrize("changed", [False, True])
def test_few_and_many_rows_are_found_alike(
    postgres: str, items: Any, monkeypatch: pytest.MonkeyPatch, layout: Layout, changed: bool
) -> None:
    """By their keys or by pages, a sweep or a scan without an index gives every row once."""
    monkeypatch.setattr("fastfill.adapters.postgres.indexes.LARGE", 1 << 40)
    store = opened(postgres, layout)
    store.expand(DIM)
    align_all(store, "map before")
    rows = store.read(list(range(1, ROWS, 7)))
    store.write(rows, np.ones((len(rows), DIM), np.float32), Marks("new", "model"))
    items.execute("UPDATE items SET text = 'edited' WHERE id % 10 = 0")
    items.execute("INSERT INTO items VALUES (20000, 'more', '[1,2,3]')")
    new = set(range(1, ROWS, 7))
    wanted = {n for n in [*range(1, ROWS + 1), 20_000] if n not in new}
    wanted |= {n for n in new if changed and n % 10 == 0}
    for few in (1, len(new), len(new) + 1, len(wanted), len(wanted) + 1):
        monkeypatch.setattr("fastfill.adapters.postgres.reads.FEW", few)
        found = [rows.ids.tolist() for rows in store.unsettled(SETTLED, batch=500, changed=changed)]
        assert max(map(len, found)) <= 500
        assert sorted(id for ids in found for id in ids) == sorted(wanted)
        scanned = [rows.ids.tolist() for rows in store.scan("new", batch=200, new=True)]
        assert max(map(len, scanned)) <= 200
        assert [id for ids in scanned for id in ids] == sorted(new)
    store.close()


def test_only_one_worker_builds_an_index(postgres: str, aligned: Store, items: Any) -> None:
    """Workers that find an index missing do not get into each other's way."""
    items.execute("DROP INDEX items_ff_v_marks, items_ff_v_changed, items_ff_v_order")
    stores = [opened(postgres) for _ in range(3)]
    workers = [threading.Thread(target=store.optimize) for store in stores]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for store in stores:
        store.close()
    query = "SELECT count(*) FROM pg_index WHERE indrelid = 'items'::regclass AND indisvalid"
    assert items.execute(query).fetchone() == (4,)


def test_estimates_follow_the_writes_of_all_processes(postgres: str, aligned: Store) -> None:
    """The numbers are those of a count, whoever has written since."""
    other = opened(postgres)
    for store, ids in ((aligned, [100, 101]), (other, [102]), (aligned, [103])):
        rows = store.read(ids)
        store.write(rows, np.ones((len(rows), DIM), np.float32), Marks("new", "model"))
    kept = other.estimate()
    assert kept == aligned.estimate() == aligned.counts()
    assert kept is not None
    assert kept["new", "model"] == 54
    other.close()


def test_estimates_see_what_was_inserted(aligned: Store, items: Any) -> None:
    """Rows of the application are counted before a sweep has seen them."""
    items.execute("INSERT INTO items VALUES (20000, 'more', '[1,2,3]')")
    assert aligned.estimate() == aligned.counts()


def test_a_count_is_counted_again_in_time(aligned: Store, items: Any) -> None:
    """After a while deleted rows are noticed: there is no estimate, so rows are counted."""
    items.execute("DELETE FROM items WHERE id > 2000")
    items.execute(
        "UPDATE fastfill_documents SET value = convert_to(regexp_replace(convert_from(value, "
        """'UTF8'), '"until": [0-9.]+', '"until": 1.0'), 'UTF8') WHERE name LIKE '%row counts'"""
    )
    assert aligned.estimate() is None
    assert sum(aligned.counts().values()) == 2_000
    assert aligned.estimate() == aligned.counts()


def test_nothing_of_the_counts_is_left_after_a_rollback(aligned: Store) -> None:
    """Their documents go with the marks."""
    aligned.contract()
    assert aligned.names("row counts") == []


def test_writes_end_before_anyone_waits_long(aligned: Store, items: Any) -> None:
    """A batch that takes long is written in several transactions, each row once."""
    items.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(0.004); RETURN new; END $$"
    )
    items.execute("CREATE TRIGGER slow BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION slow()")
    rows = aligned.read(list(range(1_001, 1_301)))  # 1.2 seconds of writing
    assert aligned.write(rows, np.zeros((300, DIM), np.float32), Marks("new", "model")) == 300
    query = "SELECT count(DISTINCT xmin::text) FROM items WHERE id BETWEEN 1001 AND 1300"
    assert items.execute(query).fetchone()[0] >= 3
    assert aligned.counts()["new", "model"] == 350


def test_rows_that_are_written_again_take_the_room_of_their_old_versions(
    postgres: str, items: Any
) -> None:
    """Without VACUUM a backfill adds far fewer pages than it writes versions of rows."""
    items.execute("ALTER TABLE items SET (autovacuum_enabled = off)")
    store = opened(postgres)
    store.expand(DIM)
    align_all(store)
    sizes = []
    for ids in np.array_split(np.arange(1, ROWS + 1), [0, ROWS // 2]):
        rows = store.read(ids.tolist())
        store.write(rows, np.ones((len(rows), DIM), np.float32), Marks("new", "model"))
        sizes.append(int(items.execute("SELECT pg_relation_size('items')").fetchone()[0]))
    store.close()
    versions = sizes[0] / 2  # before: the owner's rows, which are dead, and the aligned ones
    assert sizes[-1] - sizes[0] < 0.4 * versions


def test_a_sample_of_a_large_table_is_random(
    aligned: Store, items: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come from random places, each once, from all parts alike, and none that is new."""
    from fastfill.adapters.postgres import sampling

    monkeypatch.setattr(sampling, "SMALL", 1)
    items.execute("DELETE FROM items WHERE id % 2 = 0 AND id < 1500")
    samples = [aligned.sample(200, seed) for seed in range(3)]
    assert [len(set(sample)) for sample in samples] == [200, 200, 200]
    assert samples[0] != samples[1]
    assert aligned.sample(200, 0) == samples[0]
    ids = np.array([key for sample in samples for key in sample], dtype=int)
    assert ids.min() > 50
    left = {n for n in range(51, ROWS + 1) if n >= 1_500 or n % 2}
    assert set(ids.tolist()) <= left
    early = sum(n < 1_500 for n in left) / len(left)  # of 600, 200 ± 11 are expected
    assert abs((ids < 1_500).sum() - early * len(ids)) < 60
