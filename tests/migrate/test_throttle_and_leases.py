"""The throttle gives its reason; leases keep workers apart and run out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from fastfill.errors import InputError
from fastfill.gallery import MemoryStore
from fastfill.migrate import Leases, Migration, Signals, parse_hours, throttle
from fastfill.page.figures import waiting_kind

NOON = datetime(2025, 5, 5, 12, 0)


def test_without_a_signal_work_goes_on() -> None:
    """Nothing to say, nothing to wait for."""
    signals = Signals(now=NOON, latency=0.01, resting_latency=0.01, worked=1.0)
    assert throttle(signals) is None


@pytest.mark.parametrize(
    ("signals", "words"),
    [
        (Signals(now=NOON, paused=True), "paused"),
        (Signals(now=NOON, between=parse_hours("22:00-06:00")), "outside 22:00-06:00"),
        (Signals(now=NOON, rate=10, rows=100, elapsed=1), "rate limit of 10"),
        (
            Signals(now=NOON, latency=0.1, resting_latency=0.02, share=0.5, worked=1.0),
            "queries take 100 ms, 20 ms between writes: at work 50 % of the time",
        ),
    ],
)
def test_every_reason_is_told(signals: Signals, words: str) -> None:
    """Each way of waiting says why, and waits a finite time."""
    reason = throttle(signals)
    assert reason is not None
    assert words in reason.text
    assert 0 < reason.seconds <= 10


def test_hours_go_over_midnight() -> None:
    """A window from evening to morning contains midnight and not noon."""
    hours = parse_hours("22:00-06:00")
    assert throttle(Signals(now=datetime(2025, 1, 1, 23, 30), between=hours)) is None
    assert throttle(Signals(now=datetime(2025, 1, 1, 5, 59), between=hours)) is None
    assert throttle(Signals(now=datetime(2025, 1, 1, 6, 0), between=hours)) is not None
    with pytest.raises(InputError, match="22:00-06:00"):
        parse_hours("tonight")


def test_leases_keep_workers_apart_and_run_out() -> None:
    """What one worker holds the other does not get, until the time is over."""
    now = [0.0]
    store = MemoryStore({"id": [1], "vector": [[1.0]]})
    ann, bob = (Leases(store, name, seconds=10, clock=lambda: now[0]) for name in ("ann", "bob"))
    assert ann.claim(["a", "b"]) == ["a", "b"]
    assert bob.held_by_others() == {"a", "b"}
    assert bob.claim(["b", "c"]) == ["c"]
    now[0] = 11.0
    assert bob.claim(["a", "b"]) == ["a", "b"]
    assert ann.claim(["a"]) == []


def held_by_the_dead(store: MemoryStore, migration: Migration, seconds: float, left: int) -> None:
    """A worker has written all rows but `left`, was killed and holds a hundred of them."""
    migration.start(pairs=90, method="ridge", policy="sigma", serving="aligned")
    list(migration.backfill(rows=110 - left, throttle=False))
    ids = [key for batch in store.scan(None, batch=500, new=False) for key in batch.ids]
    aligned = store.pick("aligned", left, ()).ids.tolist() if left else []
    assert len(aligned) == left
    Leases(store, "dead", seconds=seconds).claim(list(dict.fromkeys([*aligned, *ids[:100]])))


def test_rows_that_a_dead_worker_has_written_are_not_waited_for(
    store: MemoryStore, migrate: Callable[..., Migration]
) -> None:
    """Its lease may have minutes to go."""
    migration = migrate()
    held_by_the_dead(store, migration, seconds=900.0, left=0)
    for progress in migration.backfill():
        assert progress.reason is None
    assert migration.status().progress.fraction == 1.0
    assert migration.verify().good


def test_rows_that_a_dead_worker_has_left_are_waited_for_and_done(
    store: MemoryStore, migrate: Callable[..., Migration]
) -> None:
    """The wait is told, with how long it may take, and ends with the lease."""
    migration = migrate()
    held_by_the_dead(store, migration, seconds=2.0, left=10)
    said = [progress.reason for progress in migration.backfill() if progress.reason]
    assert said[0].startswith("for rows that another worker holds, at most 2 s more")
    assert waiting_kind(said[0]) == "workers"
    assert migration.status().progress.fraction == 1.0
