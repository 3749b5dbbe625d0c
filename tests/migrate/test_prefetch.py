"""Prefetching: the next batch is made while one is written, and nothing else is different."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from migration_world import encode, new_vector, serving

from fastfill.errors import StoreError
from fastfill.features import Matrix
from fastfill.gallery import Marks, MemoryStore, Rows
from fastfill.migrate import Migration
from fastfill.migrate.ledger.leases import Lease, lease_names
from fastfill.migrate.run.prefetch import read_ahead

Make = Callable[..., Migration]
FREE: dict[str, Any] = {"throttle": False, "refit": None, "batch": 10}
TIMEOUT = 20.0  # seconds before a test gives up on another thread


class Model:
    """The new model: counts what it is given, and tells when it begins and ends."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.called, self.answered = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, texts: Sequence[str]) -> Matrix:
        self.seen.extend(texts)
        self.called.release()
        vectors = encode(texts)
        self.answered.release()
        return vectors


def leases(store: MemoryStore) -> dict[str, Lease]:
    """What workers hold, by the names of their documents."""
    documents = {name: store.load(name) for name in lease_names(store)}
    return {name: Lease.from_bytes(d.value) for name, d in documents.items() if d is not None}


pytestmark = pytest.mark.usefixtures("rows_done_alone")


@pytest.fixture
def model() -> Model:
    """A model that has seen nothing yet."""
    return Model()


@pytest.fixture
def migration(migrate: Make, model: Model) -> Migration:
    """A migration that has started: 60 rows are new, 140 aligned."""
    migration = migrate(model, encoder_name="counting")
    migration.start(pairs=60, method="ridge")
    model.seen.clear()
    model.called, model.answered = threading.Semaphore(0), threading.Semaphore(0)
    return migration


def at_write(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, does: Callable[[int, Rows], None]
) -> None:
    """Before each write, `does` is called with its number and its rows."""
    write, numbers = store.write, iter(range(1_000))

    def writing(rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        does(next(numbers), rows)
        return write(rows, vectors, marks)

    monkeypatch.setattr(store, "write", writing)


@pytest.mark.parametrize("batch", [10, 8], ids=["picked together", "picked anew on the way"])
def test_the_next_batch_is_encoded_while_one_is_written(
    store: MemoryStore,
    migration: Migration,
    model: Model,
    monkeypatch: pytest.MonkeyPatch,
    batch: int,
) -> None:
    """A write that waits for the encoder to be called again does not wait in vain."""

    def encoder_is_called_again(number: int, rows: Rows) -> None:
        if number == 0:
            assert model.called.acquire(timeout=TIMEOUT)  # for this batch
        if number < -(-140 // batch) - 1:  # all but the last batch
            assert model.called.acquire(timeout=TIMEOUT)

    at_write(store, monkeypatch, encoder_is_called_again)
    last = [*migration.backfill(**{**FREE, "batch": batch})][-1]
    assert last.fraction == 1.0
    assert len(model.seen) == len(set(model.seen)) == last.written == 140
    for text, _, vector in serving(store).values():
        np.testing.assert_array_equal(vector, new_vector(text))


def test_what_is_being_encoded_at_a_stop_is_written(
    store: MemoryStore, migration: Migration, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop during a write ends the run after the batch that is at the encoder by then."""

    def stop(number: int, rows: Rows) -> None:
        if number == 0:
            assert model.called.acquire(timeout=TIMEOUT)
            assert model.called.acquire(timeout=TIMEOUT)
            migration.stop.set()

    at_write(store, monkeypatch, stop)
    last = [*migration.backfill(**FREE)][-1]
    assert last.written == len(model.seen) == 20
    assert leases(store) == {}
    migration.stop.clear()
    assert [*migration.backfill(**FREE)][-1].fraction == 1.0
    assert len(model.seen) == len(set(model.seen)) == 140


def test_what_is_not_yet_encoded_at_a_stop_is_released(
    store: MemoryStore, migration: Migration, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that was claimed ahead and has not reached the encoder is free for others."""
    read, reads, held = store.read, iter(range(1_000)), threading.Event()

    def reading(ids: Any, **options: bool) -> Rows:
        if next(reads) == 1:  # the batch ahead
            held.set()
            assert migration.stop.wait(TIMEOUT)
        return read(ids, **options)

    def stop(number: int, rows: Rows) -> None:
        assert held.wait(TIMEOUT)
        (entry,) = leases(store).values()
        assert len(entry.ids) == 20  # this batch and the next
        migration.stop.set()

    monkeypatch.setattr(store, "read", reading)
    at_write(store, monkeypatch, stop)
    last = [*migration.backfill(**FREE)][-1]
    assert last.written == len(model.seen) == 10
    assert leases(store) == {}


@pytest.mark.parametrize("rows", [1, 10, 25, 39])
def test_a_budget_is_met_exactly(migration: Migration, model: Model, rows: int) -> None:
    """Not one row more is written, or embedded, than was asked for."""
    assert [*migration.backfill(rows=rows, **FREE)][-1].written == rows
    assert len(model.seen) == rows


@pytest.mark.parametrize(
    "limits",
    [
        {"price_per_1k_tokens": 1.0, "cost": 0.0201},  # of 8 rows
        {"until": 0.1, "label": "album"},
    ],
    ids=["cost", "quality"],
)
def test_nothing_is_embedded_beyond_a_limit(
    migration: Migration, model: Model, limits: dict[str, Any]
) -> None:
    """Where the work may end after any batch there is no batch ahead of it."""
    last = [*migration.backfill(**FREE, **limits)][-1]
    assert last.written == len(model.seen) <= 10


def test_nothing_is_embedded_ahead_at_a_limited_rate(migration: Migration, model: Model) -> None:
    """A rate is for the encoder, so that it is not given more than is written."""
    steps = migration.backfill(**FREE, rate=1e6)
    for progress in steps:
        assert progress.written == len(model.seen)
        if progress.written >= 30:
            migration.stop.set()


def test_a_refit_finds_nothing_on_its_way(migration: Migration, model: Model) -> None:
    """Batches end where the map is due, and none is begun before it is learned: none is redone."""
    limits = {**FREE, "refit": 0.1, "batch": 8}
    doing = [p for p in migration.backfill(**limits) if p.doing and "learning" in p.doing]
    assert [progress.new % 20 for progress in doing] == [0] * len(doing)
    assert doing
    assert len(model.seen) == len(set(model.seen)) == 140


def test_an_edit_of_a_row_read_ahead_is_not_overwritten(
    store: MemoryStore, migration: Migration, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that its owner changes after it was read ahead gets the vector of its new text."""
    edited: list[str] = []

    def edit(number: int, rows: Rows) -> None:
        if number == 0:  # while the next batch is at the encoder
            assert model.answered.acquire(timeout=TIMEOUT)
            assert model.answered.acquire(timeout=TIMEOUT)
            ahead = [key for key, row in serving(store).items() if row[0] in model.seen[10:20]]
            edited.extend(ahead[:3])
            store.upsert({"id": edited, "text": [f"edited {key}" for key in edited]})

    at_write(store, monkeypatch, edit)
    assert [*migration.backfill(**FREE)][-1].fraction == 1.0
    rows = serving(store)
    assert {rows[key][0] for key in edited} == {f"edited {key}" for key in edited}
    assert len(edited) == 3
    for text, _, vector in rows.values():
        np.testing.assert_array_equal(vector, new_vector(text))


def test_a_pause_finds_the_batch_ahead_written(
    store: MemoryStore, migration: Migration, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was encoded before a pause is written, and nothing more is encoded during it."""

    def pause(number: int, rows: Rows) -> None:
        if number == 0:
            assert model.called.acquire(timeout=TIMEOUT)
            assert model.called.acquire(timeout=TIMEOUT)
            migration.pause()

    at_write(store, monkeypatch, pause)
    steps = migration.backfill(**FREE)
    waiting = [p for p in (next(steps) for _ in range(5)) if p.reason == "paused"]
    assert waiting[-1].written == len(model.seen) == 20
    migration.resume()
    assert [*steps][-1].fraction == 1.0


def test_an_error_of_a_write_lets_go_of_the_batch_ahead(
    store: MemoryStore, migration: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised, no row stays claimed, and no thread is left behind."""

    def fail(number: int, rows: Rows) -> None:
        raise StoreError("the store is gone")

    at_write(store, monkeypatch, fail)
    with pytest.raises(StoreError, match="gone"):
        [*migration.backfill(**FREE)]
    assert leases(store) == {}
    assert not [t for t in threading.enumerate() if t.name.startswith("fastfill-prefetch")]


def test_an_error_of_the_batch_ahead_is_raised_after_the_write(
    store: MemoryStore, migration: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could be written is written before the run ends by the error of the next batch."""
    read, reads = store.read, iter(range(1_000))

    def reading(ids: Any, **options: bool) -> Rows:
        if next(reads) == 1:
            raise StoreError("unreadable")
        return read(ids, **options)

    monkeypatch.setattr(store, "read", reading)
    with pytest.raises(StoreError, match="unreadable"):
        [*migration.backfill(**FREE)]
    assert migration.status().progress.new == 70
    assert leases(store) == {}


def test_blocks_are_made_one_ahead_and_no_more() -> None:
    """While a block is worked on the next is made, and a reader that leaves waits for it."""
    made: list[int] = []

    def blocks() -> Any:
        for number in range(5):
            made.append(number)
            yield [number]

    ahead = read_ahead(blocks())
    assert next(ahead) == [0]
    ahead.close()  # type: ignore[attr-defined]
    assert made == [0, 1]
    assert [*read_ahead(blocks())] == [[n] for n in range(5)]


def test_an_error_while_reading_ahead_comes_after_what_was_read() -> None:
    """The reader gets every block that was made before."""

    def blocks() -> Any:
        yield [0]
        raise StoreError("unreadable")

    ahead = read_ahead(blocks())
    assert next(ahead) == [0]
    with pytest.raises(StoreError, match="unreadable"):
        next(ahead)
