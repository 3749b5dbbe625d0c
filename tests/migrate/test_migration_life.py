"""The life of a migration on the in-memory store, verb by verb."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from migration_world import (
    NEW,
    OLD,
    encode,
    gallery_values,
    new_vector,
    old_vector,
    other_encode,
    serving,
    wide_encode,
)

from fastfill.errors import EncoderBusyError, EncoderError, InputError, MigrationError
from fastfill.gallery import Gallery, MemoryStore
from fastfill.migrate import Migration, hook
from fastfill.migrate.job import Job
from fastfill.migrate.pairs import read_pairs

Make = Callable[..., Migration]
START: dict[str, Any] = {"pairs": 60, "method": "ridge"}


def finish(migration: Migration, **limits: Any) -> Any:
    """The last progress of a backfill."""
    return [*migration.backfill(throttle=False, **limits)][-1]


def test_planning_changes_nothing(store: MemoryStore, migrate: Make) -> None:
    """A plan tells rows, dimensions and cost, and leaves no trace in the store."""
    plan = migrate().plan(price_per_1k_tokens=0.5)
    assert (plan.rows, plan.old_dim, plan.new_dim, plan.distance) == (200, OLD, NEW, "l2")
    assert plan.cost == pytest.approx(plan.tokens * 0.0005)
    assert store.names("") == []
    assert store.describe().new_dim is None
    assert "200 rows" in str(plan)


def test_after_the_start_the_new_model_serves(store: MemoryStore, migrate: Make) -> None:
    """Pairs are new, all others aligned, and the nearest neighbour of an item is itself."""
    done = migrate().start(**START)
    assert done.aligned == 140
    rows = serving(store)
    assert sum(row[1] == "new" for row in rows.values()) == 60
    for text, generation, vector in rows.values():
        if generation == "new":
            np.testing.assert_array_equal(vector, new_vector(text))
        assert np.isfinite(vector).all()
    gallery = Gallery(store)
    assert gallery.side == "new"
    found = [gallery.search(new_vector(row[0]), k=3).ids for row in list(rows.values())[:50]]
    hits = [key in ids for key, ids in zip(rows, found, strict=False)]
    assert np.mean(hits) > 0.8


def test_readers_use_the_old_side_until_the_start_has_ended(
    store: MemoryStore, migrate: Make
) -> None:
    """Adding pairs alone does not switch readers over."""
    migration = migrate()
    assert migration.pairs(30) == 30
    gallery = Gallery(store)
    assert gallery.side == "old"
    assert gallery.search(old_vector("00007 text"), k=1).ids.tolist() == ["item 7"]
    assert migration.status().phase == "starting"


def test_backfilling_makes_every_row_new(store: MemoryStore, migrate: Make) -> None:
    """At the end every serving vector is the new model's own; completing then works."""
    migration = migrate()
    migration.start(**START)
    assert finish(migration, rows=50).new == 110
    assert finish(migration).fraction == 1.0
    for text, generation, vector in serving(store).values():
        assert generation == "new"
        np.testing.assert_array_equal(vector, new_vector(text))
    assert migration.verify().good
    migration.complete()
    migration.complete()
    assert migration.status().phase == "complete"


def test_rows_of_the_highest_predicted_error_go_first(store: MemoryStore, migrate: Make) -> None:
    """The order of the policy sigma is the order of the variance."""
    migration = migrate()
    migration.start(**START)
    first = store.pick("aligned", 20, ()).ids.tolist()
    finish(migration, rows=20)
    rows = serving(store)
    assert all(rows[key][1] == "new" for key in first)


def test_every_verb_can_be_repeated(store: MemoryStore, migrate: Make) -> None:
    """Start, pairs, backfill and rollback again change nothing more."""
    migration = migrate()
    migration.pairs(60)
    migration.pairs(60)
    migration.start(**START)
    before = serving(store)
    assert migration.start(**START).rows == 0
    assert {k: v[1] for k, v in serving(store).items()} == {k: v[1] for k, v in before.items()}
    migration.rollback()
    migration.rollback()
    assert migration.status().phase == "rolled back"


def test_rolling_back_leaves_what_was_there(store: MemoryStore, migrate: Make) -> None:
    """No added column is left, the owner's rows are as they were, and one can start again."""
    migration = migrate()
    migration.start(**START)
    migration.rollback()
    assert set(store.describe().columns) == {"id", "text", "album", "vector"}
    assert [name for name in store.names("") if not name.startswith("audit/")] == ["state"]
    assert Gallery(store, input="text").side == "old"
    assert migrate(other_encode).start(**START).aligned == 140


def test_completing_too_early_is_refused(migrate: Make) -> None:
    """Rows that are not new are counted in the refusal; `partial` accepts the aligned ones."""
    migration = migrate()
    with pytest.raises(MigrationError, match="no migration is open"):
        migration.complete()
    migration.start(**START)
    with pytest.raises(MigrationError, match="140 of 200 rows are not new"):
        migration.complete()
    migration.complete(partial=True)
    assert migration.status().phase == "complete"
    with pytest.raises(MigrationError, match="complete"):
        finish(migration)


def test_dropping_the_old_vectors_ends_the_way_back(store: MemoryStore, migrate: Make) -> None:
    """After `drop_old` a rollback is refused, searches go on with the new vectors."""
    migration = migrate()
    migration.start(**START)
    finish(migration)
    migration.complete()
    migration.complete(drop_old=True)
    assert "vector" not in store.describe().columns
    with pytest.raises(MigrationError, match="no way back"):
        migration.rollback()
    assert Gallery(store).search(new_vector("00003 text"), k=1).ids.tolist() == ["item 3"]


def test_what_others_write_meanwhile_is_dealt_with(store: MemoryStore, migrate: Make) -> None:
    """Inserted, edited and deleted rows, and rows without an old vector, end up right."""
    migration = migrate()
    migration.start(**START)
    store.upsert(gallery_values(10, first=500))
    store.upsert({"id": ["item 1"], "text": ["edited"]})
    store.upsert({"id": ["bare"], "text": ["no old vector"], "album": [1], "vector": [None]})
    store.upsert({"id": ["empty"], "text": [None], "album": [1], "vector": [old_vector("x")]})
    store.delete(["item 2"])
    last = finish(migration)
    rows = serving(store)
    assert "item 2" not in rows
    assert last.total == len(rows) == 211
    for key, (text, generation, vector) in rows.items():
        if key == "empty":
            assert generation == "aligned"
            continue
        assert generation == "new"
        np.testing.assert_array_equal(vector, new_vector(text))
    assert list(migration.status().quarantined) == ["empty"]


def test_a_new_vector_of_the_application_is_adopted(store: MemoryStore, migrate: Make) -> None:
    """A row inserted with its new vector is not embedded again."""
    migration = migrate()
    migration.start(**START)
    Gallery(store).upsert({**gallery_values(1, first=900), "vector_new": [[0.25] * NEW]})
    finish(migration)
    np.testing.assert_array_equal(serving(store)["item 900"][2], np.full(NEW, 0.25, np.float32))


def test_an_upsert_through_the_gallery_takes_the_marks_off(
    store: MemoryStore, migrate: Make
) -> None:
    """An item updated by a migration-aware application has no vector of the past."""
    migration = migrate()
    migration.start(**START)
    Gallery(store).upsert({"id": ["item 5"], "text": ["fresh"], "vector": [old_vector("fresh")]})
    assert np.isnan(serving(store)["item 5"][2]).all()
    finish(migration)
    np.testing.assert_array_equal(serving(store)["item 5"][2], new_vector("fresh"))


@pytest.mark.parametrize(("encoder", "dim"), [(other_encode, NEW), (wide_encode, 2 * NEW)])
def test_another_model_half_way(store: MemoryStore, migrate: Make, encoder: Any, dim: int) -> None:
    """Rows of the model given up are aligned again and count as not done."""
    first = migrate()
    first.start(**START)
    finish(first, rows=40)
    second = migrate(encoder)
    second.start(**START)
    status = second.status()
    assert (status.progress.new, status.progress.aligned) == (60, 140)
    assert status.state is not None
    assert len(status.state.abandoned) == 1
    with pytest.raises(MigrationError, match="is at the model"):
        finish(first)
    assert finish(second).fraction == 1.0
    for text, _, vector in serving(store).values():
        np.testing.assert_array_equal(vector, encoder([text])[0])
    assert store.describe().new_dim == dim


@pytest.mark.parametrize("encoder", [other_encode, wide_encode])
def test_another_model_when_every_row_is_new(
    store: MemoryStore, migrate: Make, encoder: Any
) -> None:
    """Pairs are rows of the model given up; the rest is aligned again, and embedded in its turn."""
    first = migrate()
    first.start(**START)
    assert finish(first).fraction == 1.0
    second = migrate(encoder)
    assert second.plan().rows == 200
    second.start(**START)
    progress = second.status().progress
    assert (progress.new, progress.aligned) == (60, 140)
    assert finish(second).fraction == 1.0
    for text, _, vector in serving(store).values():
        np.testing.assert_array_equal(vector, encoder([text])[0])


def test_a_paused_run_waits_and_goes_on(migrate: Make) -> None:
    """Paused workers report why they wait; a resumed run finishes with the rate it was given."""
    migration = migrate()
    migration.start(**START)
    migration.pause()
    steps = migration.backfill(throttle=False)
    assert next(steps).reason == "paused"
    assert migration.status().paused
    migration.resume(rate=100_000)
    assert [*steps][-1].fraction == 1.0


def test_what_is_complete_cannot_be_paused(migrate: Make) -> None:
    """No worker is to wait or go on: each verb says so, and the status stays as it is."""
    migration = migrate()
    migration.start(**START)
    [*migration.backfill(throttle=False)]
    migration.complete()
    for verb in (migration.pause, migration.resume):
        with pytest.raises(MigrationError, match="is complete: no worker"):
            verb()
    assert not migration.status().paused


def test_a_stopped_run_ends_after_its_batch(migrate: Make) -> None:
    """Setting `stop` ends a run cleanly, and another one does the rest."""
    migration = migrate()
    migration.start(**START)
    steps = migration.backfill(throttle=False, batch=10)
    assert next(steps).written == 10
    migration.stop.set()
    assert [*steps][-1].written == 10
    migration.stop.clear()
    assert finish(migration).fraction == 1.0


@pytest.mark.usefixtures("rows_done_alone")
def test_several_workers_write_every_item_once(store: MemoryStore, migrate: Make) -> None:
    """Four workers share the rows by leases: no item is embedded twice."""
    seen: list[str] = []

    def counting(texts: Any) -> Any:
        seen.extend(texts)
        return encode(texts)

    migration = migrate(counting, encoder_name="counting")
    migration.start(**START)
    seen.clear()
    last = finish(migration, workers=4, batch=7)
    assert last.fraction == 1.0
    assert len(seen) == len(set(seen)) == last.written == 140


def test_poison_items_are_quarantined(store: MemoryStore, migrate: Make) -> None:
    """Items that always fail are tried three times, listed, and do not stop the rest."""
    calls: list[str] = []

    def picky(texts: Any) -> Any:
        if any(t in ("00010 text", "00020 text") for t in texts):
            calls.extend(t for t in texts if t == "00010 text" and len(texts) == 1)
            raise ValueError("cannot read this")
        return encode(texts)

    migration = migrate(picky, encoder_name="picky")
    migration.start(**START)
    last = finish(migration)
    assert last.new == 198
    quarantined = migration.status().quarantined
    assert set(quarantined) == {"item 10", "item 20"}
    assert "cannot read this" in quarantined["item 10"]
    assert 1 <= len(calls) <= 5
    migration.retry_failed()
    assert migration.status().quarantined == {}


def test_a_faulty_encoder_writes_nothing_wrong(store: MemoryStore, migrate: Make) -> None:
    """429, time-outs, half a batch, a wrong dimension and NaN: it ends, and all is right."""
    rng = np.random.default_rng(1)

    def faulty(texts: Any) -> Any:
        fault = rng.random()
        vectors = encode(texts)
        if fault < 0.05:
            raise EncoderBusyError("429", retry_after=0.0)
        if fault < 0.10:
            raise TimeoutError("timed out")
        if fault < 0.15:
            return vectors[: len(vectors) // 2]
        if fault < 0.20:
            return vectors[:, 1:]
        if fault < 0.25:
            vectors[rng.integers(len(vectors))] = np.nan
        return vectors

    migration = migrate(faulty, encoder_name="faulty")
    migration.start(**START)
    last = finish(migration, batch=16)
    quarantined = migration.status().quarantined
    assert last.new == 200 - len(quarantined)
    for text, generation, vector in serving(store).values():
        if generation == "new":
            np.testing.assert_array_equal(vector, new_vector(text))


def test_a_dead_encoder_is_given_up(migrate: Make) -> None:
    """An encoder that fails on everything ends the run with its error, not with poison items."""
    migration = migrate()
    migration.start(**START)

    def dead(texts: Any) -> Any:
        raise ConnectionError("no route")

    broken = migrate(dead, encoder_name=migration._job.encoder_name)
    with pytest.raises(EncoderError, match="no route"):
        finish(broken)
    assert migration.status().quarantined == {}


def test_columns_of_the_owner_are_not_taken(migrate: Make) -> None:
    """A column that bears the name of an added one is not overwritten."""
    values = {**gallery_values(100), "vector_new": [0] * 100}
    migration = Migration(Gallery(MemoryStore(values), input="text", distance="l2"), encode)
    with pytest.raises(MigrationError, match="vector_new"):
        migration.start(**START)


def test_the_input_must_be_named(store: MemoryStore) -> None:
    """Without a column to encode, planning and starting say which option is missing."""
    migration = Migration(Gallery(store), encode)
    for verb in (migration.plan, migration.start):
        with pytest.raises(MigrationError, match="--input"):
            verb()


def test_after_a_rollback_other_columns_can_be_named(store: MemoryStore, migrate: Make) -> None:
    """What a migration that is over knew about columns does not bind the next one."""
    migrate().start(**START)
    migrate().rollback()
    store.upsert({"id": [f"item {n}" for n in range(200)], "caption": ["x"] * 200})
    store._names.append("caption")
    assert Gallery(store, input="caption").store.columns.input == "caption"
    assert Gallery(store).store.columns.input == "text"


def test_the_audit_trail_tells_who_did_what(migrate: Make) -> None:
    """Every verb leaves an event with the time, the person and the alignment."""
    migration = migrate()
    migration.start(**START)
    finish(migration, refit=None)
    migration.complete()
    events = migration.history()
    names = [event["event"] for event in events]
    assert names == ["opened", "aligned", "started", "backfill", "backfilled", "completed"]
    assert all("@" in event["who"] and event["time"] for event in events)
    assert len(events[1]["alignment"]) == 64


def test_hooks_hear_of_the_events(migrate: Make) -> None:
    """Start and done reach the hook with their details."""
    heard: list[str] = []
    migration = migrate(callback=lambda event, details: heard.append(event))
    migration.start(**START)
    finish(migration)
    assert heard[0] == "start"
    assert heard[-1] == "done"


def test_a_hook_is_called_on_every_event(store: MemoryStore, migrate: Make, tmp_path: Path) -> None:
    """The operator's program hears of start, pause, throttle, failure and end, with reasons."""
    program, log = tmp_path / "hook.sh", tmp_path / "events"
    program.write_text(f'#!/bin/sh\n{{ cat; echo; }} >> "{log}"\necho "$1" >> "{log}"\n')
    program.chmod(0o755)
    warnings: list[str] = []
    tell = hook(str(program), warnings.append)
    migration = migrate(callback=tell)
    migration.start(**START)
    migration.pause()
    steps = migration.backfill(throttle=False, rate=30, rows=60, batch=20)
    assert next(steps).reason == "paused"
    migration.resume()
    assert [*steps][-1].new == 120

    def dead(texts: Any) -> Any:
        raise ConnectionError("no route")

    broken = migrate(dead, encoder_name=migration._job.encoder_name, callback=tell)
    with pytest.raises(EncoderError):
        finish(broken, rate=100_000)
    assert warnings == []
    lines = log.read_text().splitlines()
    told = [json.loads(line) for line in lines[::2]]
    assert [event["event"] for event in told] == lines[1::2]
    assert list(dict.fromkeys(lines[1::2])) == ["start", "paused", "throttled", "done", "failed"]
    reasons = {event["event"]: event.get("reason") for event in told}
    assert reasons["paused"] == "paused"
    assert reasons["throttled"] == "rate limit of 30 rows/s"
    assert "no route" in reasons["failed"]
    assert told[-1]["verb"] == "backfill"


def test_a_hook_that_fails_changes_nothing(migrate: Make, tmp_path: Path) -> None:
    """A program that ends with an error is reported, and the work goes on."""
    program, warnings = tmp_path / "hook.sh", []
    program.write_text("#!/bin/sh\necho broken >&2\nexit 7\n")
    program.chmod(0o755)
    migration = migrate(callback=hook(str(program), warnings.append))
    migration.start(**START)
    assert finish(migration).fraction == 1.0
    assert warnings[0] == "The hook ended with 7 on start: broken\n"
    with pytest.raises(InputError, match="not a file"):
        hook(str(tmp_path / "missing"), warnings.append)


def test_verify_finds_a_wrong_vector(store: MemoryStore, migrate: Make) -> None:
    """A new vector that the encoder would not make is listed by id."""
    migration = migrate()
    migration.start(**START)
    key = next(key for key, row in serving(store).items() if row[1] == "new")
    store.upsert({"id": [key], "vector_new": [[1.0] + [0.0] * (NEW - 1)]})
    found = migration.verify(sample=200)
    assert not found.good
    assert found.wrong_new == (key,)


def test_verify_looks_at_random_rows(store: MemoryStore, migrate: Make) -> None:
    """A sample finds what a model gone wrong has written after the pairs; a seed repeats it."""
    migration = migrate()
    migration.start(**START)
    right = {key for key, row in serving(store).items() if row[1] == "new"}
    finish(migration)
    wrong = [key for key in serving(store) if key not in right]
    store.upsert({"id": wrong, "vector_new": [[1.0] + [0.0] * (NEW - 1)] * len(wrong)})
    found = [migration.verify(sample=20) for _ in range(4)]
    assert all(each.checked_new == 20 and len(each.wrong_new) >= 5 for each in found)
    assert len({each.wrong_new for each in found}) > 1
    assert set(found[0].wrong_new) <= set(wrong)
    one, again = (migration.verify(sample=20, seed=3).wrong_new for _ in range(2))
    assert one == again


def test_verify_looks_at_random_aligned_rows(store: MemoryStore, migrate: Make) -> None:
    """Of the aligned rows too, others are made again each time."""
    migration = migrate()
    migration.start(**START)
    aligned = [key for key, row in serving(store).items() if row[1] == "aligned"]
    store.upsert({"id": aligned, "vector_new": [[1.0] + [0.0] * (NEW - 1)] * len(aligned)})
    found = [migration.verify(sample=20) for _ in range(4)]
    assert all(len(each.wrong_aligned) == each.checked_aligned == 20 for each in found)
    assert len({each.wrong_aligned for each in found}) > 1


def test_verify_does_not_blame_a_row_that_was_edited(store: MemoryStore, migrate: Make) -> None:
    """Until a sweep has settled it, its vector is that of what it was."""
    migration = migrate()
    migration.start(**START)
    key = next(key for key, row in serving(store).items() if row[1] == "new")
    store.upsert({"id": [key], "text": ["00999 edited"]})
    found = migration.verify(sample=200)
    assert (found.unsettled, found.wrong_new) == (1, ())


def test_a_crowded_gallery_is_noticed(migrate: Make) -> None:
    """The balance of generations is measured; an even mix gives no warning."""
    migration = migrate()
    migration.start(**START)
    found = migration.balance()
    assert found.queries > 0
    assert found.in_gallery == pytest.approx(0.3)
    assert migration.index_health().good


def test_pairs_of_many_new_rows_are_drawn(
    store: MemoryStore, migrate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all new rows are read for a few pairs: random ones are, others with another seed."""
    migration = migrate()
    migration.start(**START)
    finish(migration)
    state = migration.status().state
    assert state is not None
    job = Job(Gallery(store), encode, "toy")
    texts = {key: text for key, (text, _, _) in serving(store).items()}
    monkeypatch.setattr(store, "scan", None)
    some, others = (read_pairs(job, state, 30, seed) for seed in (1, 2))
    assert (len(some), len(others)) == (30, 30)
    assert len({*some.old.ids, *others.old.ids}) > 35
    expected = np.stack([new_vector(texts[key]) for key in some.old.ids])
    np.testing.assert_array_equal(some.new.vectors, expected)
