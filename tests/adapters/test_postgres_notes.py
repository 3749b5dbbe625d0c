"""Sweeps of the layout `side` by notes: a trigger that the owner allows tells what was written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import test_postgres_side_migration as side
from test_postgres_side_migration import DIM, ROWS, SIDE, align_all, encode, migration, unsettled

from fastfill.adapters.postgres.side_sweep import SWEPT
from fastfill.errors import MigrationError, StoreError
from fastfill.gallery import (
    Columns,
    Gallery,
    Marks,
    MemoryStore,
    NotesWrites,
    Picked,
    Store,
    objects,
)
from fastfill.migrate import Migration
from fastfill.wiring import open_store

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

NOTES = 'public."Photos_ff_vec_notes"'
owner, url = side.owner, side.url


@pytest.fixture
def store(url: str, owner: Any) -> Iterator[Store]:
    """A store beside the table, with notes of every write, after the passes of a start."""
    opened = open_store(url)
    opened.bind(Columns(id="key", input="caption", old="vec", layout="side"))
    opened.expand(DIM)
    assert isinstance(opened, NotesWrites)
    opened.note_writes()
    align_all(opened)
    assert unsettled(opened) == []
    yield opened
    opened.close()


def notes(owner: Any) -> list[str]:
    """The keys that are noted, in the order of the notes."""
    return [key for (key,) in owner.execute(f"SELECT key FROM {NOTES} ORDER BY ff_note")]


def triggers(owner: Any) -> list[str]:
    """The triggers of the owner's table."""
    query = "SELECT tgname FROM pg_trigger WHERE tgrelid = '\"Photos\"'::regclass ORDER BY 1"
    return [name for (name,) in owner.execute(query)]


def change(connection: Any, *keys: str) -> None:
    """Other content for these rows."""
    query = "UPDATE \"Photos\" SET caption = caption || '1' WHERE key = ANY(%s)"
    connection.execute(query, [list(keys)])


def test_a_sweep_reads_what_was_noted_alone(store: Store, owner: Any) -> None:
    """Rows that nobody has written are not looked at, whatever is kept beside them."""
    owner.execute(f"UPDATE {SIDE} SET ff_vec_fingerprint = 'x', ff_vec_xid = '3' WHERE key = 'k5'")
    change(owner, "k1", "k2")
    assert unsettled(store) == ["k1", "k2"]
    assert unsettled(store) == ["k1", "k2"]  # until they are settled
    align_all(store)
    assert unsettled(store) == []
    assert notes(owner) == []
    store.remove([SWEPT])
    assert unsettled(store) == ["k5"]


def test_every_kind_of_write_is_noted(store: Store, owner: Any) -> None:
    """Inserts, updates, deletes, a key that changes, COPY, and rows that come by replication."""
    owner.execute("INSERT INTO \"Photos\" VALUES ('a', 'text 1', 0, NULL)")
    change(owner, "k1")
    owner.execute("DELETE FROM \"Photos\" WHERE key = 'k2'")
    owner.execute("UPDATE \"Photos\" SET key = 'b' WHERE key = 'k3'")
    with owner.cursor().copy('COPY "Photos" (key, caption, album) FROM STDIN') as copy:
        copy.write_row(("c", "text 2", 0))
    owner.execute("SET session_replication_role = replica")
    change(owner, "k4")
    owner.execute("RESET session_replication_role")
    assert notes(owner) == ["a", "k1", "k2", "k3", "b", "c", "k4"]
    assert unsettled(store) == ["a", "b", "c", "k1", "k4"]
    assert owner.execute(f"SELECT count(*) FROM {SIDE} WHERE key IN ('k2', 'k3')").fetchone() == (
        0,
    )
    assert notes(owner) == ["a", "k1", "b", "c", "k4"]  # what is gone is dealt with


def test_a_note_that_is_committed_later_is_not_lost(
    store: Store, owner: Any, postgres: str
) -> None:
    """Notes of an open transaction stay for the next sweep, although later ones are removed."""
    with psycopg.connect(postgres) as writer:
        change(writer, "k8")
        owner.execute("UPDATE \"Photos\" SET album = 2 WHERE key = 'k1'")
        assert unsettled(store) == []
        assert notes(owner) == []
        writer.commit()
    assert notes(owner) == ["k8"]
    assert unsettled(store) == ["k8"]


def test_a_write_while_notes_are_read_is_found_next(store: Store, owner: Any) -> None:
    """Only the notes that were read are removed: a later one of the same row stays."""
    owner.execute("UPDATE \"Photos\" SET album = 2 WHERE key = 'k1'")
    sweep = side_pages(store, owner, "k1")
    assert sweep == []
    assert notes(owner) == ["k1"]
    assert unsettled(store) == ["k1"]


def side_pages(store: Store, owner: Any, key: str) -> list[str]:
    """A sweep during which a row is changed after it was looked at, before notes are removed."""
    from fastfill.adapters.postgres import write_notes

    remove = write_notes.remove
    with pytest.MonkeyPatch.context() as patch:

        def removed_late(context: Any, numbers: Any) -> None:
            change(owner, key)
            remove(context, numbers)

        patch.setattr(write_notes, "remove", removed_late)
        return unsettled(store)


@pytest.mark.parametrize(
    "tamper",
    [
        'ALTER TABLE "Photos" DISABLE TRIGGER ALL',
        f"TRUNCATE {NOTES}",
        'DROP TRIGGER "Photos_ff_vec_notes" ON "Photos"',
    ],
)
def test_writes_that_were_not_noted_are_found(store: Store, owner: Any, tamper: str) -> None:
    """A trigger that was off, or gone, or notes that were emptied, are made up for by a pass."""
    if "TRUNCATE" in tamper:
        change(owner, "k7")
    owner.execute(tamper)
    if "TRUNCATE" not in tamper:
        change(owner, "k7")
    if "DISABLE" in tamper:  # and on again before anybody looks
        owner.execute('ALTER TABLE "Photos" ENABLE ALWAYS TRIGGER "Photos_ff_vec_notes"')
    assert notes(owner) == []
    assert unsettled(store) == ["k7"]


def test_a_slow_writer_does_not_undo_a_sweep(store: Store, owner: Any, postgres: str) -> None:
    """A row that was settled anew since it was read is not written over, even if it is the same."""
    rows = store.read(["k1"])
    change(owner, "k1")
    align_all(store)  # the same marks, of the content as it is now
    owner.execute("UPDATE \"Photos\" SET caption = 'text 1' WHERE key = 'k1'")  # as it was read
    assert store.write(rows, rows.old, Marks("new", "model")) == 0
    assert unsettled(store) == ["k1"]


def test_rows_that_are_gone_are_picked_once(store: Store, owner: Any) -> None:
    """A pick does not look at the owner's table; reading what was picked removes what is gone."""
    owner.execute("DELETE FROM \"Photos\" WHERE key = 'k6'")
    picked = store.pick("aligned", 1_000, [])
    assert "k6" in picked.ids
    assert len(store.read(picked)) == ROWS - 1
    assert "k6" not in store.pick("aligned", 1_000, []).ids
    assert len(store.read(Picked(objects(["k1"])))) == 1


def test_a_migration_with_a_trigger_leaves_none(url: str, owner: Any) -> None:
    """`start` makes it, sweeps use it, `complete` takes it away; the vectors are right."""
    job = migration(url)
    job.start(pairs=60, method="ridge", allow_trigger=True)
    assert triggers(owner) == ["Photos_ff_vec_notes", "noted"]
    for _ in job.backfill(throttle=False, rows=50):
        pass
    change(owner, "k1", "k2", "k3")
    owner.execute("DELETE FROM \"Photos\" WHERE key = 'k4'")
    assert [*job.backfill(throttle=False)][-1].fraction == 1.0
    change(owner, "k9")
    with pytest.raises(MigrationError, match="1 of"):
        job.complete()
    assert [*job.backfill(throttle=False)][-1].fraction == 1.0
    job.complete()
    assert triggers(owner) == ["noted"]
    assert owner.execute(f"SELECT to_regclass('{NOTES}')").fetchone() == (None,)
    rows = owner.execute(
        f'SELECT t.caption, a.vec_new::real[] FROM "Photos" t LEFT JOIN {SIDE} a USING (key)'
    ).fetchall()
    np.testing.assert_array_equal([row[1] for row in rows], encode([row[0] for row in rows]))
    assert owner.execute(
        "SELECT count(*) FROM pg_proc WHERE proname LIKE 'Photos%'"
    ).fetchone() == (0,)


def test_a_rollback_takes_the_trigger_away(url: str, owner: Any) -> None:
    """Also one that was allowed by a second start."""
    before = side.of_the_owner(owner)
    job = migration(url)
    job.start(pairs=60, method="ridge")
    assert side.of_the_owner(owner) == before
    job.start(pairs=60, allow_trigger=True)
    assert triggers(owner) == ["Photos_ff_vec_notes", "noted"]
    job.rollback()
    assert side.of_the_owner(owner) == before


def test_whoever_writes_needs_no_rights_on_the_notes(store: Store, owner: Any) -> None:
    """An application that may write to the table goes on to, as before."""
    owner.execute("DROP ROLE IF EXISTS application")
    owner.execute("CREATE ROLE application")
    owner.execute('GRANT SELECT, UPDATE ON "Photos" TO application')
    owner.execute("GRANT INSERT ON fired TO application")
    owner.execute("SET ROLE application")
    change(owner, "k2")
    owner.execute("RESET ROLE")
    assert unsettled(store) == ["k2"]
    owner.execute("DROP OWNED BY application; DROP ROLE application")


def test_a_trigger_that_cannot_be_made_is_refused_first(
    url: str, owner: Any, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a store without triggers, and by a user who does not own the table."""
    rows = {"id": [1, 2], "text": ["text 1", "text 2"], "vector": [[1.0], [2.0]]}
    job = Migration(Gallery(MemoryStore(rows), input="text", distance="l2"), encode)
    with pytest.raises(MigrationError, match="only PostgreSQL"):
        job.start(allow_trigger=True)
    monkeypatch.setattr(
        "fastfill.adapters.postgres.write_notes.MAY_NOTE", "SELECT %s::text IS NULL"
    )
    with pytest.raises(StoreError, match="by its owner alone"):
        migration(url).start(pairs=60, allow_trigger=True)
    assert owner.execute(f"SELECT to_regclass('{SIDE}')").fetchone() == (None,)


def test_added_columns_need_no_trigger(url: str, owner: Any) -> None:
    """The permission is not used where an index tells what was written."""
    job = migration(url)
    job.start(pairs=60, method="ridge", layout="columns", allow_trigger=True)
    assert triggers(owner) == ["noted"]
    job.rollback()
