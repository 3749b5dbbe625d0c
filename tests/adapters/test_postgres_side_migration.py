"""Migrations beside the owner's table, on a real PostgreSQL: it stays as it is, byte by byte."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from fastfill.adapters.postgres import indexes, side_sweep
from fastfill.adapters.postgres.side_sweep import SWEPT
from fastfill.errors import InputError, MigrationError, StoreError
from fastfill.gallery import Columns, Gallery, Marks, MemoryStore, Settled, State, Store
from fastfill.migrate import Migration
from fastfill.wiring import connect, open_store

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

DIM = 8
ROWS = 300
SIDE = 'public."Photos_ff_vec"'
SETTLED = Settled("map", "model")


def encode(texts: Any) -> Any:
    """A new model that is nearly linear in the old one."""
    numbers = np.array([[float(text.split()[1]) + k for k in range(DIM)] for text in texts])
    return np.asarray(numbers, dtype=np.float32)


def old(number: int) -> list[float]:
    """What the old model made of item `number`."""
    rng = np.random.default_rng(number)
    return (rng.standard_normal(DIM) + number / 50).astype(np.float32).tolist()


@pytest.fixture
def owner(postgres: str) -> Iterator[Any]:
    """The owner's connection to a table with a trigger that counts every write to it."""
    with psycopg.connect(postgres, autocommit=True) as opened:
        opened.execute(
            'CREATE TABLE "Photos" (key varchar(20) COLLATE "C" PRIMARY KEY, caption text, '
            f"album int NOT NULL, vec vector({DIM}))"
        )
        with opened.cursor() as cursor:
            cursor.executemany(
                'INSERT INTO "Photos" VALUES (%s, %s, %s, %s::vector)',
                [(f"k{n}", f"text {n}", n % 3, str(old(n))) for n in range(ROWS)],
            )
        opened.execute("CREATE TABLE fired (what text)")
        opened.execute(
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO fired VALUES (TG_OP); RETURN NULL; END $$"
        )
        opened.execute(
            'CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON "Photos" '
            "FOR EACH ROW EXECUTE FUNCTION note()"
        )
        opened.execute('VACUUM ANALYZE "Photos"')
        yield opened


@pytest.fixture
def url(postgres: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of that column; every store that is opened by one is closed at the end."""
    opened: list[Store] = []

    def remember(url: str) -> Store:
        opened.append(open_store(url))
        return opened[-1]

    monkeypatch.setattr("fastfill.wiring.open_store", remember)
    yield f"{postgres}#Photos.vec"
    for store in opened:
        store.close()


def migration(url: str, **where: Any) -> Migration:
    """A migration of the table, by connections of its own."""
    gallery = connect(url, id="key", input="caption", distance="l2", where=where or None)
    return Migration(gallery, encode, encoder_name="tests:encode")


@pytest.fixture
def store(url: str, owner: Any) -> Iterator[Store]:
    """A store that is bound beside the table, and expanded."""
    opened = open_store(url)
    opened.bind(Columns(id="key", input="caption", old="vec", layout="side"))
    opened.expand(DIM)
    yield opened
    opened.close()


def of_the_owner(owner: Any) -> list[Any]:
    """All that the catalogue says of the owner's table, its size, its rows and their versions."""
    queries = [
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull, attnum, attisdropped "
        "FROM pg_attribute WHERE attrelid = '\"Photos\"'::regclass ORDER BY attnum",
        "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index "
        "WHERE indrelid = '\"Photos\"'::regclass ORDER BY 1",
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = '\"Photos\"'::regclass OR confrelid = '\"Photos\"'::regclass ORDER BY 1",
        "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger "
        "WHERE tgrelid = '\"Photos\"'::regclass ORDER BY 1",
        "SELECT relfilenode, reloptions, relacl, relhastriggers FROM pg_class "
        "WHERE oid = '\"Photos\"'::regclass",
        "SELECT pg_relation_size('\"Photos\"'), pg_indexes_size('\"Photos\"')",
        'SELECT ctid, xmin, xmax, "Photos".* FROM "Photos" ORDER BY key',
        "SELECT what FROM fired",
    ]
    return [owner.execute(query).fetchall() for query in queries]


def align_all(store: Store) -> None:
    """Settle every row."""
    for rows in store.unsettled(SETTLED, batch=100, changed=True):
        store.write(rows, rows.old, Marks("aligned", "map"))


def unsettled(store: Store, changed: bool = True) -> list[str]:
    """Ids of rows that are work to do, none of them twice."""
    found = [k for r in store.unsettled(SETTLED, batch=100, changed=changed) for k in r.ids]
    assert len(set(found)) == len(found)
    return sorted(map(str, found))


def test_the_owners_table_is_not_touched(url: str, owner: Any) -> None:
    """Definition, size and every version of every row are the same after each verb."""
    before = of_the_owner(owner)
    job = migration(url)
    assert job.layout().layout == "side"
    job.start(pairs=60, method="ridge", index=True)
    assert of_the_owner(owner) == before
    assert [*job.backfill(throttle=False)][-1].fraction == 1.0
    assert job.verify().good
    assert of_the_owner(owner) == before
    job.complete()
    found = connect(url).search(encode(["text 7"])[0], 3, {"album": 1})
    assert found.ids[0] == "k7"
    assert of_the_owner(owner) == before
    job.rollback()
    assert of_the_owner(owner) == before
    assert owner.execute(f"SELECT to_regclass('{SIDE}')").fetchone()[0] is None


def test_later_verbs_need_the_url_alone(url: str, owner: Any) -> None:
    """The layout is in the state: whoever opens the gallery later reads and writes beside it."""
    migration(url).start(pairs=60, method="ridge", layout="side")
    later = Migration(connect(url), encode, encoder_name="tests:encode")
    assert later.layout().layout == "side"
    assert [*later.backfill(throttle=False)][-1].new == ROWS
    assert owner.execute(f"SELECT count(*) FROM {SIDE}").fetchone()[0] == ROWS
    with pytest.raises(MigrationError, match="was started in the layout 'side'"):
        later.start(layout="columns")


def test_what_writers_do_is_found(store: Store, owner: Any) -> None:
    """Inserted, changed and deleted rows, each found by the next sweep, and no other row."""
    align_all(store)
    assert unsettled(store) == []
    owner.execute(
        "INSERT INTO \"Photos\" SELECT 'new ' || n, 'text 1', 0, vec FROM \"Photos\", "
        "generate_series(1, 3) n WHERE key = 'k1'"
    )
    owner.execute("UPDATE \"Photos\" SET caption = 'text 5' WHERE key = 'k2'")
    owner.execute("UPDATE \"Photos\" SET vec = '[1,2,3,4,5,6,7,8]' WHERE key = 'k3'")
    owner.execute("UPDATE \"Photos\" SET album = 9 WHERE key IN ('k4', 'k5')")
    owner.execute("DELETE FROM \"Photos\" WHERE key = 'k6'")
    assert unsettled(store, changed=False) == ["new 1", "new 2", "new 3"]
    assert unsettled(store) == ["k2", "k3", "new 1", "new 2", "new 3"]
    assert unsettled(store) == ["k2", "k3", "new 1", "new 2", "new 3"]  # until they are settled
    hits = store.search(old(6), ROWS + 9, side="new", distance="l2")
    assert "k6" not in hits.ids
    assert owner.execute(f"SELECT count(*) FROM {SIDE} WHERE key = 'k6'").fetchone()[0] == 0
    align_all(store)
    assert unsettled(store) == []
    assert store.counts() == {("aligned", "map"): ROWS + 2}


def test_a_sweep_looks_up_what_was_written_since_alone(
    store: Store, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pass without findings the next one compares the rows of later transactions only."""
    align_all(store)
    assert unsettled(store) == []
    horizon = store.load(SWEPT)
    assert horizon is not None
    owner.execute(f"UPDATE {SIDE} SET ff_vec_fingerprint = 'x', ff_vec_xid = '3'")
    assert unsettled(store) == []  # rows that nobody has written are not looked at again
    owner.execute("UPDATE \"Photos\" SET album = 1 WHERE key = 'k9'")
    assert unsettled(store) == ["k9"]
    store.remove([SWEPT])
    assert len(unsettled(store)) == ROWS


def test_an_open_transaction_is_not_forgotten(store: Store, owner: Any, postgres: str) -> None:
    """What was written before a sweep and is committed after it is found by the next one."""
    align_all(store)
    with psycopg.connect(postgres) as writer:
        writer.execute("UPDATE \"Photos\" SET caption = 'text 1' WHERE key = 'k8'")
        owner.execute("UPDATE \"Photos\" SET album = 2 WHERE key = 'k1'")
        assert unsettled(store) == []
        assert unsettled(store) == []
        writer.commit()
        assert unsettled(store) == ["k8"]


def test_many_findings_are_looked_for_again(
    store: Store, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that finds more rows than are remembered is no reason to pass over any of them."""
    monkeypatch.setattr(side_sweep, "MOST", 5)
    align_all(store)
    assert unsettled(store) == []
    owner.execute("UPDATE \"Photos\" SET caption = caption || ' 1'")
    assert len(unsettled(store)) == ROWS
    assert len(unsettled(store)) == ROWS
    align_all(store)
    assert unsettled(store) == []


def test_a_copy_of_the_table_is_looked_through_anew(store: Store, owner: Any) -> None:
    """The horizon of one table says nothing of another in its place."""
    align_all(store)
    assert unsettled(store) == []
    owner.execute(f"TRUNCATE {SIDE}")
    assert len(unsettled(store)) == ROWS


def test_rows_of_another_model_are_found_by_the_indexes(
    store: Store, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The indexes of a large table, all of them beside it, find what a look at every row does."""
    monkeypatch.setattr(indexes, "LARGE", 0)
    monkeypatch.setattr(indexes, "AT_WORK", 0.0)
    align_all(store)
    store.optimize()
    store.counts()
    rows = store.read(["k1", "k2"])
    store.write(rows, rows.old, Marks("new", "other"))
    owner.execute("UPDATE \"Photos\" SET caption = 'text 5' WHERE key IN ('k2', 'k3')")
    store.upsert({"key": ["k4"], "ff_vec_generation": [None]})
    assert unsettled(store) == ["k1", "k2", "k3", "k4"]
    assert [*store.scan("new", batch=1, new=True)][1].ids.tolist() == ["k2"]
    assert len(store.pick("aligned", 1_000, ["k9"])) == ROWS - 4
    names = owner.execute(
        f"SELECT count(*) FROM pg_indexes WHERE tablename = '{SIDE[8:-1]}'"
    ).fetchone()
    assert names[0] == 4


def test_a_writer_who_is_faster_keeps_the_row_unsettled(
    store: Store, owner: Any, postgres: str
) -> None:
    """A row that is being changed is neither waited for nor lost: the sweep finds the change."""
    align_all(store)
    rows = store.read(["k1", "k2", "k3"])
    with psycopg.connect(postgres) as writer:
        writer.execute("UPDATE \"Photos\" SET caption = 'text 200' WHERE key = 'k2'")
        assert store.write(rows, rows.old, Marks("new", "model")) == 3
        writer.commit()
    assert unsettled(store) == ["k2"]
    again = store.read(["k2"])
    assert again.inputs.tolist() == ["text 200"]
    assert store.write(rows, rows.old, Marks("new", "model")) == 0


def test_writers_go_on_while_it_runs(url: str, owner: Any, postgres: str) -> None:
    """Under inserts, updates and deletes every row ends with the vector of its own content."""
    end = threading.Event()

    def write() -> None:
        with psycopg.connect(postgres, autocommit=True) as writer:
            number = 0
            while not end.wait(0.002):
                number += 1
                key = f"k{number % ROWS}"
                writer.execute(
                    'INSERT INTO "Photos" VALUES (%s, %s, 0, %s::vector)',
                    [f"more {number}", f"text {number}", str(old(number))],
                )
                query = 'UPDATE "Photos" SET caption = %s WHERE key = %s'
                writer.execute(query, [f"text {number + 7}", key])
                if number % 3 == 0:
                    writer.execute('DELETE FROM "Photos" WHERE key = %s', [f"more {number - 2}"])

    thread = threading.Thread(target=write)
    thread.start()
    job = migration(url)
    job.start(pairs=60, method="ridge")
    for _ in job.backfill(throttle=False, rows=200):
        pass
    end.set()
    thread.join()
    assert [*job.backfill(throttle=False)][-1].fraction == 1.0
    job.complete()
    rows = owner.execute(
        f'SELECT t.caption, a.vec_new::real[] FROM "Photos" t LEFT JOIN {SIDE} a USING (key)'
    ).fetchall()
    assert len(rows) > ROWS
    np.testing.assert_array_equal([row[1] for row in rows], encode([row[0] for row in rows]))
    assert owner.execute(f"SELECT count(*) FROM {SIDE}").fetchone()[0] == len(rows)


def test_a_part_has_a_table_of_its_own(url: str, owner: Any) -> None:
    """Rows of other albums have nothing beside them, and searches do not find them."""
    job = migration(url, album=1)
    job.start(pairs=30, method="ridge", layout="side")
    assert [*job.backfill(throttle=False)][-1].total == ROWS // 3
    (name,) = [n for n in job._job.store.added if n.startswith("Photos_")]
    assert owner.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] == ROWS // 3
    hits = connect(url, where={"album": 1}).search(encode(["text 8"])[0], 3)
    assert all(int(key[1:]) % 3 == 1 for key in hits.ids)
    job.rollback()
    assert owner.execute(f"SELECT to_regclass('\"{name}\"')").fetchone()[0] is None


def test_ends_that_change_the_table_are_refused(url: str, owner: Any) -> None:
    """Neither a swap nor a drop begins; the sentence has statements that work."""
    job = migration(url)
    job.start(pairs=60, method="ridge")
    for _ in job.backfill(throttle=False):
        pass
    before = of_the_owner(owner)
    for option in ("swap", "drop_old"):
        with pytest.raises(StoreError, match="or move the vectors yourself") as refusal:
            job.complete(**{option: True})
        assert job.status().phase == "started"
    assert of_the_owner(owner) == before
    job.complete()
    owner.execute(str(refusal.value).split("after that: ")[1].rstrip("."))
    left = owner.execute('SELECT count(*) FROM "Photos" WHERE vec_new IS NULL').fetchone()
    assert left[0] == 0


def test_a_name_in_the_way_is_refused(url: str, owner: Any) -> None:
    """A table of that name which no migration has made is left alone."""
    owner.execute(f"CREATE TABLE {SIDE} (key int)")
    with pytest.raises(MigrationError, match="there is already Photos_ff_vec"):
        migration(url).start(pairs=60, method="ridge")
    assert owner.execute(f"SELECT count(*) FROM {SIDE}").fetchone()[0] == 0


def _nothing(owner: Any) -> None:
    owner.execute('DROP TRIGGER noted ON "Photos"')


def _indexes(owner: Any) -> None:
    _nothing(owner)
    for _ in range(3):
        owner.execute('CREATE INDEX ON "Photos" (album)')


def _publication(owner: Any) -> None:
    _nothing(owner)
    owner.execute('CREATE PUBLICATION everything FOR TABLE "Photos"')


@pytest.mark.parametrize(
    ("change", "layout", "reason"),
    [
        (lambda owner: None, "side", "it has 1 trigger"),
        (_nothing, "columns", "no trigger"),
        (_indexes, "side", "it has 4 indexes"),
        (_publication, "side", "published for replication (everything)"),
    ],
)
def test_auto_chooses_by_what_an_update_would_set_going(
    url: str, owner: Any, change: Callable[[Any], None], layout: str, reason: str
) -> None:
    """Triggers, many indexes and subscribers ask for a table beside; `plan` says which and why."""
    change(owner)
    job = migration(url)
    assert job.layout().layout == layout
    (line,) = [line for line in str(job.plan()).splitlines() if line.startswith("layout")]
    assert reason in line
    job.start(pairs=60, method="ridge")
    beside = owner.execute(f"SELECT to_regclass('{SIDE}') IS NOT NULL").fetchone()[0]
    assert beside == (layout == "side")
    opened = job.history()[0]
    assert layout in opened["layout"]


def test_the_statements_are_those_of_the_layout(url: str, owner: Any) -> None:
    """What would run beside the table names the owner's only to read it."""
    text = "\n".join(migration(url).statements(DIM, "side"))
    assert 'CREATE TABLE IF NOT EXISTS "public"."Photos_ff_vec"' in text
    assert "ALTER TABLE" not in text
    assert 'UPDATE "public"."Photos" ' not in text


def test_other_stores_and_words_are_refused() -> None:
    """A store without tables has no side, and a typing error is none of the layouts."""
    rows = {"id": [1, 2], "text": ["text 1", "text 2"], "vector": [[1.0], [2.0]]}
    job = Migration(Gallery(MemoryStore(rows), input="text", distance="l2"), encode)
    with pytest.raises(MigrationError, match="only PostgreSQL"):
        job.start(layout="side")
    with pytest.raises(InputError, match="layout"):
        job.start(layout="beside")  # type: ignore[arg-type]


def test_a_state_of_an_earlier_version_is_in_columns() -> None:
    """Version 4 knew one layout."""
    state = State("starting", Columns("id", "text", "vector"), "l2", "m:encode", "1f", 8)
    plain = state.to_json()
    del plain["columns"]["layout"]
    assert State.from_json(plain, 4).columns.layout == "columns"


def test_a_reader_of_before_the_start_follows(url: str, owner: Any) -> None:
    """A gallery that was opened before finds the vectors beside its table once they serve."""
    with closing(open_store(url)) as opened:
        reader = Gallery(opened, id="key", input="caption", distance="l2")
        assert reader.search(old(3), 1).ids.tolist() == ["k3"]
        job = migration(url)
        job.start(pairs=60, method="ridge", serving="aligned")
        for _ in job.backfill(throttle=False):
            pass
        reader._read_at = -10.0
        assert reader.search(encode(["text 3"])[0], 1).ids.tolist() == ["k3"]
