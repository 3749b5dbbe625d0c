"""Migrations on a real PostgreSQL: schema changes, locks, wide vectors, several workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.errors import MigrationError, StoreError
from fastfill.gallery import Columns, Gallery, Marks, Settled, Store, change_state
from fastfill.migrate import Migration
from fastfill.migrate.ledger.leases import Leases

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

ROOT = Path(__file__).parents[2]
DIM = 8
MIX = np.random.default_rng(5).standard_normal((DIM, DIM)).astype(np.float32)
ENCODER = """
import os, time
import numpy as np

def encode(texts):
    time.sleep(0.004 * len(texts))
    return np.array([[float(t.split()[1]) + k for k in range(8)] for t in texts], dtype=np.float32)
"""


def encode(texts: Any) -> Any:
    """A new model that is nearly linear in the old one."""
    numbers = np.array([[float(text.split()[1]) + k for k in range(DIM)] for text in texts])
    return np.asarray(numbers, dtype=np.float32)


def old(number: int) -> list[float]:
    """What the old model made of item `number`."""
    rng = np.random.default_rng(number)
    return (rng.standard_normal(DIM) + number / 50).astype(np.float32).tolist()


@pytest.fixture
def connection(postgres: str) -> Iterator[Any]:
    """The owner's connection to a table `app.photos` of 400 rows."""
    with psycopg.connect(postgres, autocommit=True) as opened:
        opened.execute("CREATE SCHEMA app")
        opened.execute(
            "CREATE TABLE app.photos (key bigint PRIMARY KEY, caption text, album int NOT NULL, "
            f'"Vec" vector({DIM}))'
        )
        with opened.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO app.photos VALUES (%s, %s, %s, %s::vector)",
                [(n, f"text {n}", n % 3, str(old(n))) for n in range(400)],
            )
        yield opened


@pytest.fixture
def store(postgres: str, connection: Any) -> Iterator[Store]:
    """The store over that table, by its URL."""
    from fastfill.wiring import open_store

    opened = open_store(f"{postgres}#app.photos.Vec")
    opened.bind(Columns(id="key", input="caption", old="Vec"))
    yield opened
    opened.close()


def test_the_life_of_a_migration(store: Store, connection: Any) -> None:
    """From a start to its completion; the owner's rows and the distance are as they were."""
    connection.execute('CREATE INDEX ON app.photos USING hnsw ("Vec" vector_cosine_ops)')
    before = connection.execute('SELECT key, caption, album, "Vec" FROM app.photos').fetchall()
    migration = Migration(Gallery(store, id="key", input="caption"), encode)
    migration.start(pairs=100, method="ridge")
    assert store.indexed("new")
    assert migration.index_health().recall is not None
    last = [*migration.backfill(throttle=False)][-1]
    assert last.fraction == 1.0
    assert migration.verify().good
    migration.complete()
    after = connection.execute('SELECT key, caption, album, "Vec" FROM app.photos').fetchall()
    assert sorted(before) == sorted(after)
    assert Gallery(store).distance == "cosine"
    assert Gallery(store).search(encode(["text 7"])[0], 3, {"album": 1}).ids[0] == 7
    migration.complete(drop_old=True)
    names = [column.name for column in connection.execute("SELECT * FROM app.photos").description]
    assert names == ["key", "caption", "album", "Vec_new"]


def test_the_statements_can_be_read_first(store: Store, connection: Any) -> None:
    """What would run is shown, and nothing has run."""
    statements = Migration(
        Gallery(store, id="key", input="caption", distance="l2"), encode
    ).statements(DIM)
    text = "\n".join(statements)
    assert 'ALTER TABLE "app"."photos" ADD COLUMN IF NOT EXISTS "Vec_new" vector(8)' in text
    assert "CREATE INDEX CONCURRENTLY" in text
    assert "Vec_new" not in store.describe().columns


def test_wide_vectors_are_half_precision(store: Store) -> None:
    """Above 2,000 dimensions the added column is a `halfvec`, which can still be indexed."""
    store.expand(2_100)
    rows = store.read([1, 2, 3])
    vectors = np.linspace(0, 1, 3 * 2_100, dtype=np.float32).reshape(3, 2_100)
    assert store.write(rows, vectors, Marks("new", "model")) == 3
    again = store.read([1, 2, 3], new=True)
    assert again.new is not None
    order = np.argsort(again.ids.astype(int))
    np.testing.assert_allclose(again.new[order], vectors, atol=1e-3)
    store.build_index("new", "l2")
    hits = store.search(vectors[1], 1, side="new", distance="l2")
    assert hits.ids.tolist() == [2]


def test_schema_changes_do_not_queue_for_ever(
    store: Store, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that stays locked is given up with a sentence, and the lock was not waited for."""
    from fastfill.adapters.postgres import connection as adapter

    monkeypatch.setattr(adapter, "SCHEMA_LOCK", "50ms")
    monkeypatch.setattr(adapter, "SCHEMA_TRIES", 2)
    with connection.transaction():
        connection.execute("LOCK TABLE app.photos IN ACCESS SHARE MODE")
        with pytest.raises(StoreError, match="stayed locked"):
            store.expand(DIM)
    store.expand(DIM)


def test_a_batch_does_without_rows_that_are_locked(store: Store, connection: Any) -> None:
    """The application's open transaction holds a row: the rest of the batch is written."""
    store.expand(DIM)
    rows = store.read(list(range(10)))
    with connection.transaction():
        connection.execute("UPDATE app.photos SET album = 9 WHERE key = 4")
        written = store.write(rows, encode(rows.inputs), Marks("new", "model"))
    assert written == 9
    assert store.counts()[("new", "model")] == 9


def test_dead_rows_in_the_index_do_not_hide_the_others(store: Store, connection: Any) -> None:
    """With an index full of old versions of rows a search still finds k rows."""
    store.expand(DIM)
    connection.execute("ALTER TABLE app.photos SET (autovacuum_enabled = off)")
    store.build_index("new", "l2")
    for number in range(4):
        for rows in store.scan(None, batch=1_000, new=False):
            vectors = np.full((len(rows), DIM), 1.0, dtype=np.float32) + number / 100
            store.write(rows, vectors, Marks("new", f"model {number}"))
    store._context.queries["new"].open().execute("SET enable_seqscan = off")  # type: ignore[attr-defined]
    hits = store.search(np.ones(DIM), 60, side="new", distance="l2")
    assert len(hits.ids) == 60


@pytest.mark.parametrize("iterative", [True, False], ids=["goes on", "older server"])
@pytest.mark.parametrize("index", ["hnsw", "ivfflat"])
def test_a_filter_does_not_hide_what_it_accepts(
    store: Store, connection: Any, index: str, iterative: bool
) -> None:
    """Rows that the filter refuses are nearer by the hundred, and yet k rows are found in order."""
    connection.execute(
        'UPDATE app.photos SET "Vec" = %s::vector, album = 7 WHERE key >= 380', [str([40.0] * DIM)]
    )
    connection.execute(
        'UPDATE app.photos SET "Vec" = "Vec" + %s WHERE key = 390', [str([1.0] * DIM)]
    )
    connection.execute(f'CREATE INDEX ON app.photos USING {index} ("Vec" vector_l2_ops)')
    store._context.queries["old"].open().execute("SET enable_seqscan = off")  # type: ignore[attr-defined]
    if not iterative:
        store._search._iterative = False  # type: ignore[attr-defined]
    hits = store.search(np.zeros(DIM), 20, side="old", distance="l2", where={"album": 7})
    assert sorted(hits.ids.tolist()) == list(range(380, 400))
    assert hits.ids[-1] == 390
    assert (np.diff(hits.distances) >= 0).all()


def test_a_search_does_not_wait_for_a_write_of_the_same_process(store: Any) -> None:
    """Queries have a connection of their own: one in the middle of a transaction holds none up."""
    store.expand(8)
    answers: list[int] = []

    def ask() -> None:
        answers.append(len(store.search(np.ones(DIM), 3, side="old", distance="l2").ids))

    def wait_for_an_answer(_: Any) -> None:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(timeout=20)
        assert answers == [3]

    store._context.writing.write(wait_for_an_answer)


def test_an_id_without_a_unique_index_is_refused(store: Store) -> None:
    """A column that does not identify rows cannot be the id."""
    with pytest.raises(StoreError, match="no unique index"):
        store.bind(Columns(id="album", input="caption", old="Vec"))


@pytest.mark.parametrize("layout", ["auto", "columns", "side"])
@pytest.mark.parametrize("kind", ["partitioned", "inherited", "view", "materialized view"])
def test_what_keeps_its_rows_elsewhere_is_refused_first(
    connection: Any, postgres: str, kind: str, layout: Any
) -> None:
    """Its rows would be missed, or its indexes could not be built: nothing is written."""
    made = {
        "partitioned": "CREATE TABLE app.other (LIKE app.photos, PRIMARY KEY (key)) PARTITION BY "
        "RANGE (key); CREATE TABLE app.low PARTITION OF app.other FOR VALUES FROM (0) TO (200); "
        "CREATE TABLE app.high PARTITION OF app.other FOR VALUES FROM (200) TO (400); "
        "INSERT INTO app.other SELECT * FROM app.photos",
        "inherited": "CREATE TABLE app.other (LIKE app.photos, PRIMARY KEY (key)); CREATE TABLE "
        "app.low () INHERITS (app.other); INSERT INTO app.low SELECT * FROM app.photos",
        "view": "CREATE VIEW app.other AS SELECT * FROM app.photos",
        "materialized view": "CREATE MATERIALIZED VIEW app.other AS SELECT * FROM app.photos; "
        "CREATE UNIQUE INDEX ON app.other (key)",
    }
    connection.execute(made[kind])
    words = "is a.* view" if "view" in kind else "keeps its rows in partitions"
    with (
        pytest.raises(StoreError, match=f"'other' {words}.* Give the URL of"),
        _begun(f"{postgres}#app.other.Vec", layout),
    ):
        pass
    assert connection.execute("SELECT to_regclass('app.fastfill_documents')").fetchone() == (None,)


def test_a_partition_is_migrated_beside_it(connection: Any, postgres: str) -> None:
    """No column can be added to it, so the table beside is chosen."""
    connection.execute(
        "CREATE TABLE app.other (LIKE app.photos, PRIMARY KEY (key)) PARTITION BY RANGE (key); "
        "CREATE TABLE app.low PARTITION OF app.other FOR VALUES FROM (0) TO (1000); "
        "INSERT INTO app.other SELECT * FROM app.photos"
    )
    with _begun(f"{postgres}#app.low.Vec", "auto") as migration:
        assert "it is a partition" in migration.history()[0]["layout"]
        assert [*migration.backfill(throttle=False)][-1].fraction == 1


def test_a_run_that_another_model_overtakes_says_so(connection: Any, postgres: str) -> None:
    """Columns that another start drops, to add others, are not the reason that is told."""
    url, calls = f"{postgres}#app.photos.Vec", [-99]

    def overtaken(texts: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:  # after the rows that are embedded to check the model
            with _opened(url, encode) as other:
                store = other._job.store
                change_state(store, lambda state: replace(state, phase="starting", model="other"))
                store.contract()
        return encode(texts)

    with _opened(url, overtaken) as migration:
        migration.start(pairs=60, method="ridge")
        calls[0] = 0
        with pytest.raises(MigrationError, match="no longer at the model of this run"):
            [*migration.backfill(throttle=False)]


@contextmanager
def _opened(url: str, model: Any) -> Iterator[Migration]:
    from fastfill.wiring import open_store

    with closing(open_store(url)) as store:
        gallery = Gallery(store, id="key", input="caption", distance="l2")
        yield Migration(gallery, model)


@contextmanager
def _begun(url: str, layout: Any) -> Iterator[Migration]:
    with _opened(url, encode) as migration:
        migration.start(pairs=60, method="ridge", layout=layout)
        yield migration


def test_several_workers_write_every_item_once(
    store: Store, connection: Any, postgres: str, tmp_path: Path
) -> None:
    """Four processes share the work; one is killed, and the others do its items."""
    (tmp_path / "pg_encoder.py").write_text(ENCODER)
    gallery = Gallery(store, id="key", input="caption", distance="l2")
    migration = Migration(gallery, encode, encoder_name="pg_encoder:encode")
    migration.start(pairs=60, method="ridge")
    connection.execute("CREATE TABLE app.writes (key bigint)")
    connection.execute(
        "CREATE FUNCTION app.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO app.writes VALUES (new.key); RETURN new; END $$"
    )
    connection.execute(
        'CREATE TRIGGER note AFTER UPDATE OF "Vec_new" ON app.photos FOR EACH ROW '
        "WHEN (new.\"ff_Vec_generation\" = 'new') EXECUTE FUNCTION app.note()"
    )
    command = [sys.executable, "-c", "from fastfill.cli import main; main()", "backfill"]
    command += [f"{postgres}#app.photos.Vec", "--no-throttle", "--lease", "3"]
    path = os.pathsep.join([str(ROOT / "src"), str(tmp_path)])
    workers = [
        subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
        for _ in range(4)
    ]
    while not connection.execute("SELECT count(*) FROM app.writes").fetchone()[0]:
        time.sleep(0.02)
    workers[0].send_signal(signal.SIGKILL)
    assert [worker.wait(timeout=60) for worker in workers[1:]] == [0, 0, 0]
    workers[0].wait()
    assert store.counts() == {("new", migration.status().state.model): 400}  # type: ignore[union-attr]
    written = [key for (key,) in connection.execute("SELECT key FROM app.writes").fetchall()]
    assert len(written) == len(set(written)) == 340


def test_rows_lie_in_the_order_in_which_they_are_embedded(connection: Any, store: Store) -> None:
    """After a write the rows are in the table by falling priority: a batch reads few pages."""
    store.expand(DIM)
    rows = store.read(list(range(100)))
    priority = np.random.default_rng(0).permutation(100).astype(np.float32)
    vectors = np.zeros((100, DIM), dtype=np.float32)
    assert store.write(rows, vectors, Marks("aligned", "a", priority, priority)) == 100
    query = 'SELECT "ff_Vec_priority" FROM app.photos WHERE key < 100 ORDER BY ctid'
    assert [row[0] for row in connection.execute(query)] == list(range(99, -1, -1))


@pytest.mark.parametrize("kind", ["text", "bytea"])
def test_fingerprints_of_the_client_are_those_of_the_server(
    connection: Any, store: Store, kind: str
) -> None:
    """Rows with and without a vector or an input are not taken for changed after they were read."""
    connection.execute("UPDATE app.photos SET caption = 'äöü €' WHERE key = 1")
    connection.execute("UPDATE app.photos SET caption = NULL WHERE key = 2")
    connection.execute("UPDATE app.photos SET caption = '' WHERE key = 3")
    connection.execute('UPDATE app.photos SET "Vec" = NULL WHERE key IN (4, 2)')
    change = "ALTER TABLE app.photos ALTER caption TYPE {0} USING convert_to(caption, 'UTF8')::{0}"
    if kind == "bytea":
        connection.execute(change.format(kind))
    store.bind(store.columns)
    store.expand(DIM)
    rows = store.read(list(range(10)))
    assert store.write(rows, None, Marks("waiting", "m")) == 10
    connection.execute("UPDATE app.photos SET album = album + 1")  # touched, and not changed
    left = store.unsettled(Settled(None, "m"), batch=1_000, changed=True)
    assert {key for part in left for key in part.ids} == set(range(10, 400))


def test_leases_go_by_the_clock_of_the_server(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose clock is an hour ahead does not take what another holds."""
    ann = Leases(store, "ann", seconds=60)
    assert ann.claim([1, 2]) == [1, 2]
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3_600)
    assert Leases(store, "bob", seconds=60).claim([2, 3]) == [3]
    monkeypatch.setattr(time, "time", right)
    assert ann.claim([3]) == []
