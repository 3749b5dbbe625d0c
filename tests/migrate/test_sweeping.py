"""When others' writes are looked for, and what is said of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fastfill.gallery import MemoryStore
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


def test_an_earlier_sweep_does_not_hide_a_later_one(store: MemoryStore) -> None:
    """Of two that overlap, the one that began later is kept with what it took."""
    SweepRecord.add(store, 20.0, 7.0)
    SweepRecord.add(store, 10.0, 3.0)
    assert SweepRecord.last(store) == SweepRecord(20.0, 7.0)


def test_a_long_sweep_is_announced(store: MemoryStore, clock: Any) -> None:
    """With what the one before took, and when the next one may be; a short one is not worth it."""
    SweepRecord.add(store, clock.seconds, 2.0)
    assert sweeper(store).words is None
    SweepRecord.add(store, clock.seconds + 1, 720.0)
    assert sweeper(store).words == (
        "looking for what others wrote: about 12 min, not again before 4 h 0 min"
    )
