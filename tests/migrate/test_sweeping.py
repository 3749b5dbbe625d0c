"""When others' writes are looked for, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from migration_world import gallery_values

from fastfill.gallery import MemoryStore, Rows, Settled
from fastfill.migrate import Migration
from fastfill.migrate.ledger.count_record import CountRecord
from fastfill.migrate.ledger.leases import Leases
from fastfill.migrate.ledger.sweep_record import SweepRecord
from fastfill.migrate.run.sweeping import EVERY, SHARE, Sweeper


@pytest.fixture
def clock(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The store's clock, which is moved by hand."""
    now = SimpleNamespace(seconds=1e6)
    monkeypatch.setattr(store, "now", lambda: now.seconds)
    return now


def sweeper(store: MemoryStore) -> Sweeper:
    """Of a worker that has just begun."""
    run: Any = SimpleNamespace(job=SimpleNamespace(store=store))
    return Sweeper(run, Leases(store, "worker", seconds=60.0))


def test_a_long_sweep_is_rare_for_all_workers_together(store: MemoryStore, clock: Any) -> None:
    """What one of them has done counts for the others, also for those that begin later."""
    first = sweeper(store)
    assert first.due
    SweepRecord.add(store, clock.seconds, 1_000.0)  # by another worker
    assert not first.due
    clock.seconds += SHARE * 1_000.0 - 1
    assert not first.due
    assert not sweeper(store).due
    clock.seconds += 1
    assert first.due
    assert sweeper(store).due


def test_a_short_sweep_is_done_every_few_minutes(store: MemoryStore, clock: Any) -> None:
    """However little it takes."""
    SweepRecord.add(store, clock.seconds, 0.1)
    clock.seconds += EVERY - 1
    assert not sweeper(store).due
    clock.seconds += 1
    assert sweeper(store).due


def quick_store(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The same, as if items without marks could be told from all others by a filter."""

    def unmarked(settled: Settled, *, batch: int) -> Iterator[Rows]:
        for rows in store.unsettled(settled, batch=batch, changed=False, new=True):
            yield rows.take(np.array([mark is None for mark in rows.generation]))

    monkeypatch.setattr(store, "can_sweep_quickly", lambda: True, raising=False)
    monkeypatch.setattr(store, "quick_sweep", unmarked, raising=False)
    return store


def test_new_items_are_settled_between_two_sweeps(
    store: MemoryStore,
    clock: Any,
    migrate: Callable[..., Migration],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the quick look, every few minutes, where a look at every row takes long and is rare."""
    migration = migrate()
    migration.start(pairs=40, method="ridge")
    quick_store(store, monkeypatch)
    SweepRecord.add(store, clock.seconds + 1, EVERY)
    last = SweepRecord.last(store)
    run = migration.backfill(throttle=False, batch=10)
    next(run)
    store.upsert(gallery_values(1, first=900))
    next(run)
    assert store.read(["item 900"]).generation.tolist() == [None]  # it is too early
    clock.seconds += EVERY
    next(run)
    next(run)  # it looks between two batches
    assert store.read(["item 900"]).generation.tolist() != [None]
    assert SweepRecord.last(store) == last
    run.close()


def test_an_earlier_sweep_does_not_hide_a_later_one(store: MemoryStore) -> None:
    """Of two that overlap, the one that began later is kept with what it took."""
    SweepRecord.add(store, 20.0, 7.0)
    SweepRecord.add(store, 10.0, 3.0)
    assert SweepRecord.last(store) == SweepRecord(20.0, 7.0)


def test_a_long_sweep_is_announced(store: MemoryStore, clock: Any) -> None:
    """With what the one before took, and when the next one may be; a short one is not worth it."""
    SweepRecord.add(store, clock.seconds, 2.0)
    assert sweeper(store).words() is None
    SweepRecord.add(store, clock.seconds + 1, 720.0)
    assert sweeper(store).words() == (
        "looking for what others wrote: about 12 min, not again before 4 h 0 min"
    )


def test_the_last_sweep_is_announced_too(
    store: MemoryStore, clock: Any, migrate: Callable[..., Migration]
) -> None:
    """Where nothing is left to embed and sweeps are long, a step says so before the last one."""
    migration = migrate()
    migration.start(pairs=40, method="ridge")
    SweepRecord.add(store, clock.seconds + 1, 720.0)
    doing = [progress.doing for progress in migration.backfill(throttle=False)]
    assert doing.count("looking for what others wrote: about 12 min, for the last time") == 1


def test_a_long_count_is_announced(
    store: MemoryStore, clock: Any, migrate: Callable[..., Migration]
) -> None:
    """At the end of a run that has made all new, by what the count before took."""
    migration = migrate()
    migration.start(pairs=40, method="ridge")
    CountRecord.change(store, lambda _: CountRecord(190.0))
    doing = [progress.doing for progress in migration.backfill(rows=10, throttle=False)]
    assert not any(words and "counting" in words for words in doing)
    doing = [progress.doing for progress in migration.backfill(throttle=False)]
    assert doing[-2:] == ["counting all rows: about 3 min", None]
    assert CountRecord.last(store).seconds == 0  # it was quick
    doing = [progress.doing for progress in migration.backfill(throttle=False)]
    assert not any(words and "counting" in words for words in doing)
    migration.complete()
    assert CountRecord.load(store) is None
