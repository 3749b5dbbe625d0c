"""Migrations on SQLite: from start to completion, beside its owner, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sqlite_vec", reason="sqlite-vec is not installed")
from sqlite_world import VEC0, everything, fill, insert, owner_of

from fastfill.adapters.sqlite import connection as connections
from fastfill.adapters.sqlite.context import SqliteContext
from fastfill.adapters.sqlite.swaps import SqliteSwaps
from fastfill.errors import InputError, MigrationError, StoreError
from fastfill.gallery import Columns, Gallery, Inspectable, Settled, Store
from fastfill.migrate import Migration
from fastfill.testing import marks, new_vectors, values
from fastfill.wiring import open_store

OLD, NEW = 6, 9
_MIX = np.random.default_rng(5).standard_normal((OLD, NEW)).astype(np.float32)
OWNERS = "id, text, place, vector"
PHOTOS = "CREATE TABLE photos (id INTEGER PRIMARY KEY, text TEXT, place TEXT, vector BLOB)"
APART = "fastfill_photos_vector_new"


def old_model(text: str) -> Any:
    """What the old model makes of a text."""
    return np.random.default_rng(sum(map(ord, text))).standard_normal(OLD).astype(np.float32)


def encode(texts: Any) -> Any:
    """The new model."""
    return np.stack([np.tanh(old_model(text) @ _MIX) for text in texts])


def items(count: int) -> dict[str, list[Any]]:
    """Rows with a text."""
    texts = [f"text {n}" for n in range(count)]
    return {
        "id": list(range(count)),
        "text": texts,
        "vector": [old_model(text) for text in texts],
        "place": ["on the roof", "at sea"] * (count // 2),
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there yet."""
    return tmp_path / "photos.db"


@pytest.fixture
def opened() -> Iterator[Any]:
    """Opens stores, and closes them at the end."""
    stores: list[Store] = []

    def open_photos(path: Path, target: str = "photos.vector") -> Store:
        stores.append(open_store(f"sqlite://{path}#{target}"))
        return stores[-1]

    yield open_photos
    for store in stores:
        store.close()


def bound_to(store: Store, key: str = "id") -> Store:
    """The store with its columns named."""
    store.bind(Columns(key, "text", "vector"))
    return store


def migrated(store: Store, **options: Any) -> Migration:
    """A migration that is new throughout."""
    gallery = Gallery(store, id="id", input="text", distance="cosine", **options)
    migration = Migration(gallery, encode)
    migration.start(pairs=20, method="ridge")
    assert [*migration.backfill(throttle=False)][-1].fraction == 1.0
    return migration


TABLES = [
    PHOTOS,
    f"{PHOTOS} STRICT",
    VEC0.format(dim=OLD)
    .replace("TEXT PRIMARY", "INTEGER PRIMARY")
    .replace("album INTEGER", "place TEXT"),
]


@pytest.mark.parametrize("table", TABLES, ids=["table", "strict", "vec0"])
def test_a_migration_beside_its_owner(path: Path, opened: Any, table: str) -> None:
    """From start to completion; the owner's values stay, and edits and deletes are followed."""
    fill(path, items(60), table)
    before = everything(path, OWNERS)
    store = opened(path)
    migration = Migration(Gallery(store, id="id", input="text", distance="cosine"), encode)
    migration.start(pairs=30, method="ridge")
    with owner_of(path) as owner:
        owner.execute("UPDATE photos SET text = 'text 900' WHERE id = 3")
        owner.execute("DELETE FROM photos WHERE id = 4")
        insert(owner, {name: [column[1]] for name, column in items(2).items()} | {"id": [77]})
    assert [*migration.backfill(throttle=False)][-1].fraction == 1.0
    assert migration.verify().good
    kept = [row for row in everything(path, OWNERS) if row[0] not in (3, 77)]
    assert kept == [row for row in before if row[0] not in (3, 4)]
    hits = store.search(
        encode(["text 900"])[0], 1, side="new", distance="cosine", where={"place": "at sea"}
    )
    assert hits.ids.tolist() == [3]
    migration.complete()
    assert store.counts() == {("new", migration.status().state.model): 60}  # type: ignore[union-attr]


@pytest.mark.parametrize("table", TABLES, ids=["table", "strict", "vec0"])
def test_a_rollback_restores_the_file(path: Path, opened: Any, table: str) -> None:
    """Only the table of documents is left, and a model of other dimensions can be tried."""
    fill(path, items(40), table)
    schema = "SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2"
    with owner_of(path) as owner:
        before, rows = list(owner.execute(schema)), everything(path)
    store = opened(path)
    migrated(store).rollback()
    with owner_of(path) as owner:
        after = [row for row in owner.execute(schema) if "fastfill_documents" not in row[1]]
        assert everything(path) == rows
    assert after == before
    store.expand(NEW + 3)
    assert store.describe().new_dim == NEW + 3


def test_an_edit_before_the_write_is_refused(path: Path, opened: Any) -> None:
    """The condition of the write compares every byte, also of a vector that holds a NaN."""
    data = values(5)
    data["vector"][0][2] = float("nan")
    fill(path, data)
    store = opened(path)
    store.bind(Columns("id", "text", "vector"))
    store.expand(12)
    rows = store.read(data["id"])
    with owner_of(path) as owner:
        owner.execute("UPDATE photos SET text = 'edited' WHERE id = ?", data["id"][1:2])
        owner.execute("UPDATE photos SET vector = NULL WHERE id = ?", data["id"][2:3])
        owner.execute("DELETE FROM photos WHERE id = ?", data["id"][3:4])
    assert store.write(rows, new_vectors(rows), marks("new", rows)) == 2
    assert [row[4] is None for row in everything(path)] == [False, True, True, False]


WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=60.0, isolation_level=None)
for n in range(300):
    connection.execute("UPDATE photos SET text = ? WHERE id = ?", [f"text {1000 + n}", n % 50])
    if n == 20:
        print("writing", flush=True)
"""


def test_another_process_goes_on_writing(path: Path, opened: Any) -> None:
    """No edit is refused or lost, and each row ends with the vector of its last text."""
    fill(path, items(200), PHOTOS)
    store = opened(path)
    migration = Migration(Gallery(store, id="id", input="text", distance="cosine"), encode)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"writing\n"
    migration.start(pairs=80, method="ridge")  # some of which are edited before they are learned
    for _ in migration.backfill(throttle=False, batch=5):
        pass
    _, complaints = writer.communicate(timeout=120)
    assert (writer.returncode, complaints) == (0, b"")
    for _ in migration.backfill(throttle=False):
        pass
    migration.complete()
    texts = {row[0]: row[1] for row in everything(path, "id, text")}
    assert [texts[n] for n in range(50)] == [f"text {1250 + n}" for n in range(50)]
    (rows,) = store.scan(None, batch=1_000, new=True)
    np.testing.assert_allclose(rows.new, encode(rows.inputs), rtol=1e-5)


def test_a_trigger_of_the_owner_is_never_set_off(path: Path, opened: Any) -> None:
    """Where every update of a row would be noted, the added columns are in a table of their own."""
    fill(path, items(30), PHOTOS)
    with owner_of(path) as owner:
        owner.execute("CREATE TABLE edits (id)")
        owner.execute(
            "CREATE TRIGGER noted AFTER UPDATE ON photos BEGIN "
            "INSERT INTO edits VALUES (new.id); END"
        )
    migrated(opened(path))
    with owner_of(path) as owner:
        assert list(owner.execute("SELECT * FROM edits")) == []
        assert owner.execute(f"SELECT count(*) FROM {APART}").fetchone() == (30,)


def test_vectors_of_deleted_rows_are_forgotten(path: Path, opened: Any) -> None:
    """Where they are in a table of their own, tidying up takes them away."""
    fill(path, items(30), f"{PHOTOS} STRICT")
    migrated(opened(path)).complete()
    with owner_of(path) as owner:
        owner.execute("DELETE FROM photos WHERE id < 10")
        store = opened(path)
        hits = Gallery(store).search(new=encode(["text 3"])[0], k=30)
        assert sorted(hits.ids) == list(range(10, 30))
        store.optimize()
        assert owner.execute(f"SELECT count(*) FROM {APART}").fetchone() == (20,)


def test_some_of_the_rows(path: Path, opened: Any) -> None:
    """`where` migrates the rows of one place, by columns of their own, and touches no other."""
    fill(path, items(40), PHOTOS)
    store = opened(path)
    migration = migrated(store, where={"place": "at sea"})
    assert store.describe().rows == 20
    added = store.columns.new
    with owner_of(path) as owner:
        query = f'SELECT place, count(*) FROM photos WHERE "{added}" IS NOT NULL GROUP BY 1'
        assert list(owner.execute(query)) == [("at sea", 20)]
    with pytest.raises(StoreError, match="swaps a whole column only"):
        migration.complete(swap=True)


# --- the cut-over --------------------------------------------------------------------------------


def test_a_swap_and_the_way_back(path: Path, opened: Any) -> None:
    """The new vectors get the owner's name, the old ones it back, and nothing is lost."""
    fill(path, items(40), PHOTOS)
    before = everything(path, OWNERS)
    store = opened(path)
    migration = migrated(store)
    migration.complete(swap=True)
    (row,) = (row for row in everything(path, OWNERS) if row[0] == 7)
    np.testing.assert_allclose(np.frombuffer(row[3], np.float32), encode(["text 7"])[0], rtol=1e-5)
    assert Gallery(opened(path)).search(new=encode(["text 7"])[0], k=1).ids.tolist() == [7]
    migration.swap_back()
    assert everything(path, OWNERS) == before
    migration.complete(swap=True, drop_old=True)
    with owner_of(path) as owner:
        names = [name for (name,) in owner.execute("SELECT name FROM pragma_table_info('photos')")]
    assert sorted(names) == ["id", "place", "text", "vector"]


def test_a_swap_is_refused_where_rows_were_written(path: Path, opened: Any) -> None:
    """An edit after everything was new keeps the names as they are."""
    fill(path, items(30), PHOTOS)
    store = opened(path)
    migration = migrated(store)
    state = migration.status().state
    assert state is not None
    with owner_of(path) as owner:
        owner.execute("UPDATE photos SET text = 'text 900' WHERE id = 3")
    assert store.swap(state.columns, state.settled) == 1
    assert "vector_new" in store.describe().columns


def test_an_edit_between_the_look_and_the_lock_is_seen(
    path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are looked at again under the lock, if somebody has written since."""
    fill(path, items(30), PHOTOS)
    store = opened(path)
    state = migrated(store).status().state
    assert state is not None
    look, looks = SqliteSwaps._unsettled, list[int]()

    def look_and_edit(swaps: SqliteSwaps, settled: Settled) -> int:
        looks.append(look(swaps, settled))
        if len(looks) == 1:
            with owner_of(path) as owner:
                owner.execute("UPDATE photos SET text = 'text 900' WHERE id = 3")
        return looks[-1]

    monkeypatch.setattr(SqliteSwaps, "_unsettled", look_and_edit)
    assert store.swap(state.columns, state.settled) == 1
    assert looks == [0, 1]
    assert "vector_new" in store.describe().columns


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("CREATE VIEW seen AS SELECT id, vector FROM photos", "view seen would go on reading"),
        (
            "CREATE TRIGGER t AFTER UPDATE OF text ON photos BEGIN SELECT new.vector; END",
            "trigger t",
        ),
    ],
)
def test_a_swap_is_refused_where_others_would_follow(
    path: Path, opened: Any, statement: str, says: str
) -> None:
    """Views and triggers go with the column: they are named, and nothing is changed."""
    fill(path, items(30), PHOTOS)
    with owner_of(path) as owner:
        owner.execute(statement)
    migration = migrated(opened(path))
    before = everything(path)
    with pytest.raises(StoreError, match=says):
        migration.complete(swap=True)
    assert everything(path) == before


@pytest.mark.parametrize("constraint", ["NOT NULL", "CHECK (typeof(vector) = 'blob')"])
def test_a_swap_is_refused_where_nothing_could_be_inserted(
    path: Path, opened: Any, constraint: str
) -> None:
    """What the owner demands of the old vectors would be demanded of rows without one."""
    fill(path, items(30), PHOTOS.replace("vector BLOB", f"vector BLOB {constraint}"))
    migration = migrated(opened(path))
    with pytest.raises(StoreError, match="the application could insert nothing"):
        migration.complete(swap=True)
    migration.complete()


def test_a_swap_of_a_table_of_its_own_is_refused(path: Path, opened: Any) -> None:
    """There is no column to rename, and the sentence says where the vectors are."""
    fill(path, items(30), f"{PHOTOS} STRICT")
    migration = migrated(opened(path))
    with pytest.raises(StoreError, match=APART):
        migration.complete(swap=True)


# --- what is looked at and refused ---------------------------------------------------------------


def test_a_look_before_a_migration(path: Path, opened: Any) -> None:
    """Doctor's look finds dimensions, sizes and rights, and changes nothing."""
    fill(path, items(30), PHOTOS)
    with owner_of(path) as owner:
        owner.execute("UPDATE photos SET vector = x'0000803f' WHERE id = 29")
    store, before = opened(path), path.read_bytes()
    store.bind(Columns("id", "text", "vector"))
    assert isinstance(store, Inspectable)
    found = store.inspect(100, seed=0)
    assert found.kind == "BLOB"
    assert sorted(found.ids) == list(range(30))  # type: ignore[type-var]
    assert found.dims == {OLD: 29, 1: 1}
    assert found.stored_bytes == len(before)
    assert found.free_bytes
    assert found.missing_permissions == ()
    assert path.read_bytes() == before


def test_the_distance_of_a_vec0_table_is_its_own(path: Path, opened: Any) -> None:
    """It is read from the declaration; L2 where none is named."""
    table = "CREATE VIRTUAL TABLE photos USING vec0(id INTEGER PRIMARY KEY, +text TEXT, {})"
    for declared, expected in (
        ("vector float[6] distance_metric=cosine", "cosine"),
        ("vector float[6]", "l2"),
        ("vector float[6] distance_metric=L1", None),
    ):
        with owner_of(path) as owner:
            owner.execute("DROP TABLE IF EXISTS photos")
            owner.execute(table.format(declared))
        store = opened(path)
        store.bind(Columns("id", "text", "vector"))
        assert store.describe().distance == expected


@pytest.mark.parametrize(
    ("table", "vector", "key", "says"),
    [
        (PHOTOS, "[1.0, 2.0]", "id", "holds texts of 10 bytes, not vectors of float32"),
        (PHOTOS, b"abcde", "id", "holds blobs of 5 bytes, not vectors of float32"),
        (PHOTOS, None, "place", "column 'place' has no unique index"),
        (PHOTOS, None, "key", "there is no column 'key', only id, text, place"),
        (PHOTOS.replace("INTEGER", "REAL"), None, "id", "column 'id' holds a real"),
    ],
)
def test_tables_that_cannot_be_migrated(
    path: Path, opened: Any, table: str, vector: Any, key: str, says: str
) -> None:
    """What the columns hold is looked at first, and refused in a sentence."""
    fill(path, {"id": [1], "text": ["a"], "vector": [vector]}, table)
    store = opened(path)
    with pytest.raises(StoreError, match=says):
        bound_to(store, key).describe()


def test_ids_that_a_view_repeats_are_refused(path: Path, opened: Any) -> None:
    """No index keeps them apart, so they are counted before anything is added."""
    fill(path, items(4), PHOTOS)
    with owner_of(path) as owner:
        owner.execute("CREATE VIEW seen AS SELECT place AS id, text, vector FROM photos")
    store = opened(path, "seen.vector")
    store.bind(Columns("id", "text", "vector"))
    with pytest.raises(StoreError, match="2 different values in 4 rows"):
        store.expand(NEW)


def test_rows_without_an_id_column_are_known_by_their_numbers(path: Path, opened: Any) -> None:
    """`rowid` names them, although no column does."""
    fill(path, items(30), PHOTOS.replace("id INTEGER PRIMARY KEY", "id INTEGER"))
    store = opened(path)
    gallery = Gallery(store, id="rowid", input="text", distance="l2")
    Migration(gallery, encode).start(pairs=20, method="ridge")
    assert sorted(store.pick("aligned", 30, ()).ids)[-1] == 30


def test_what_is_in_the_way_is_named(path: Path, opened: Any) -> None:
    """A column of the name of an added one, in whatever case, is somebody else's."""
    fill(path, items(20), PHOTOS.replace("vector BLOB", "vector BLOB, Vector_New BLOB"))
    migration = Migration(Gallery(opened(path), id="id", input="text", distance="l2"), encode)
    with pytest.raises(MigrationError, match="vector_new"):
        migration.start(pairs=20, method="ridge")


@pytest.mark.parametrize(
    ("url", "kind", "says"),
    [
        ("sqlite://{path}#photos.image", StoreError, "no column 'image', only id, text, place"),
        ("sqlite://{path}#missing.vector", StoreError, "no table 'missing', only photos"),
        ("sqlite://{path}#photos", InputError, "after the # comes TABLE.COLUMN"),
        ("sqlite://{path}.db#photos.vector", StoreError, "is no file. Check the path"),
        ("sqlite://{text}#photos.vector", StoreError, "file is not a database"),
    ],
)
def test_addresses_that_lead_nowhere(
    path: Path, url: str, kind: type[Exception], says: str
) -> None:
    """A wrong address is refused in a sentence that says what is wrong with it."""
    fill(path, items(2), PHOTOS)
    text = path.with_name("notes.txt")
    text.write_text("not a database at all, but long enough to be looked at\n" * 50)
    with pytest.raises(kind, match=says):
        open_store(url.format(path=path, text=text))


def test_a_relative_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path without a slash in front is one of the working directory."""
    fill(path, items(2), PHOTOS)
    monkeypatch.chdir(path.parent)
    store = open_store("sqlite://photos.db#photos.vector")
    store.bind(Columns("id", "text", "vector"))
    assert store.describe().rows == 2
    store.close()


def test_a_locked_file_is_waited_for(
    path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wait is told; a file that stays locked ends in a sentence, and nothing is written."""
    fill(path, items(2), PHOTOS)
    monkeypatch.setattr(connections, "BUSY", 0.01)
    store, told = opened(path), list[str]()
    with owner_of(path) as owner:
        owner.execute("BEGIN IMMEDIATE")

        def release(reason: str, seconds: float) -> None:
            told.append(reason)
            if len(told) == 3:
                owner.execute("ROLLBACK")

        store.notify = release
        assert store.save("state", b"1", 0)
        assert told == ["another program is writing to the SQLite file"] * 3
        monkeypatch.setattr(connections, "LOCKED_FOR", 0.0)
        owner.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="other programs kept the file locked"):
            store.save("other", b"1", 0)
        owner.execute("ROLLBACK")
    assert store.load("other") is None


def test_connections_of_a_process_write_in_turns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits for the other does not try in vain, and writes as soon as it can."""
    fill(path, items(2), PHOTOS)
    monkeypatch.setattr(connections, "open_file", partial(connections.open_file, timeout=0.0))
    context, told, order = SqliteContext(str(path), "photos", "vector"), list[str](), list[int]()
    context.notify = lambda reason, seconds: told.append(reason)
    with ThreadPoolExecutor(1) as thread:

        def write(_: Any) -> Future[None]:
            later = thread.submit(context.work.write, lambda _: order.append(2))
            wait([later], timeout=0.1)
            order.append(1)
            return later

        context.writing.write(write).result()
    context.close()
    assert (order, told) == ([1, 2], [])


def test_rows_are_read_in_the_order_of_their_ids(path: Path, opened: Any) -> None:
    """Numbers come before texts, as in an index of SQLite."""
    data = {**items(4), "id": ["b", 10, "a", 9]}
    fill(path, data, PHOTOS.replace("id INTEGER", "id"))
    assert bound_to(opened(path)).read(data["id"]).ids.tolist() == [9, 10, "a", "b"]


def test_a_python_that_loads_no_extension(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no SQLite of this Python can, the sentence says what to install."""
    fill(path, items(2), PHOTOS)
    monkeypatch.setattr(connections, "_can_load", lambda module: False)
    with pytest.raises(StoreError, match="pip install pysqlite3-binary"):
        open_store(f"sqlite://{path}#photos.vector")


def test_the_statements_can_be_read_first(path: Path, opened: Any) -> None:
    """`plan --print-sql` shows what is added and how a row is written."""
    fill(path, items(2), PHOTOS)
    store = opened(path)
    store.bind(Columns("id", "text", "vector"))
    statements = store.statements(NEW, "l2")
    assert statements[0] == 'ALTER TABLE "photos" ADD COLUMN "vector_new" float[9]'
    assert statements[-1].startswith('UPDATE "photos" AS t SET "vector_new" = :vector')
    assert 't."ff_vector_model" IS :was_model' in statements[-1]
    assert set(store.describe().columns) == {"id", "text", "place", "vector"}
