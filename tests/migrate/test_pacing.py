"""A backfill keeps queries quick: it sees what it does to them, writes in pieces and pauses."""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from migration_world import encode, gallery_values

from fastfill.gallery import Gallery, MemoryStore
from fastfill.migrate import Migration, Signals, throttle
from fastfill.migrate.job import Job
from fastfill.migrate.run.duty_cycle import EVERY, LEAST, DutyCycle
from fastfill.migrate.run.latency import ENOUGH, Latency, LatencyProbe
from fastfill.migrate.run.throttle import LONGEST, longest_pause

NOON = datetime(2025, 5, 5, 12, 0)
SLOW, QUICK = Latency(now=0.03, resting=0.01), Latency(now=0.01, resting=0.01)


class Waiting(MemoryStore):
    """A store whose searches take longer while someone writes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.writing = threading.Event()
        self.sizes: list[int] = []

    def search(self, *arguments: Any, **options: Any) -> Any:
        time.sleep(0.02 if self.writing.is_set() else 0.002)
        return super().search(*arguments, **options)

    def write(self, rows: Any, vectors: Any, marks: Any) -> int:
        if marks.generation == "new":
            self.sizes.append(len(rows))
            self.writing.set()
            time.sleep(0.002 * len(rows))
            self.writing.clear()
        return super().write(rows, vectors, marks)


@pytest.fixture
def store() -> Waiting:
    """Some hundred items in memory."""
    return Waiting(gallery_values(400), distance="l2")


def migration_of(store: MemoryStore) -> Migration:
    """A started migration."""
    migration = Migration(Gallery(store, input="text"), encode)
    migration.start(pairs=30, method="ridge")
    return migration


def test_the_share_falls_and_comes_back() -> None:
    """Slow queries take time away from the work, quick ones give it back, and not at once."""
    now = [0.0]
    cycle = DutyCycle(clock=lambda: now[0])
    shares = []
    for latency in [SLOW] * 5 + [QUICK] * 12:
        now[0] += EVERY
        cycle.look(latency)
        cycle.look(SLOW)  # too soon after the last look: changes nothing
        shares.append(cycle.share)
    assert shares[:5] == sorted(shares[:5], reverse=True)
    assert shares[4] < 0.2
    assert shares[5:] == sorted(shares[5:])
    assert shares[-1] == 1.0
    cycle.look(None)
    assert cycle.share == 1.0


@given(st.lists(st.sampled_from([SLOW, QUICK, None]), max_size=80))
def test_the_share_is_always_a_share(seen: list[Latency | None]) -> None:
    """Whatever queries do, some work is left and never more than all."""
    now = [0.0]
    cycle = DutyCycle(clock=lambda: now[0])
    for latency in seen:
        now[0] += EVERY
        cycle.look(latency)
        assert LEAST <= cycle.share <= 1


@given(st.floats(LEAST, 0.999), st.floats(0.001, 100), st.floats(0, 100))
def test_a_third_of_the_speed_is_always_left(share: float, worked: float, encoded: float) -> None:
    """The pause keeps to the share, but leaves a third of the speed of encoding beside writing."""
    signals = Signals(now=NOON, share=share, worked=worked, encoded=encoded)
    reason = throttle(signals)
    assert reason is not None
    longest = min(longest_pause(worked, encoded), LONGEST)
    assert reason.seconds <= longest + 1e-3
    assert worked + encoded + reason.seconds <= 3 * max(worked, encoded) + 1e-3
    if reason.seconds < longest - 1e-3:
        assert worked / (worked + reason.seconds) == pytest.approx(share, abs=0.02, rel=0.5)


def test_the_probe_tells_its_own_work_from_the_rest(
    store: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches during the work count as now, only those beside it as resting."""
    monkeypatch.setattr("fastfill.migrate.run.latency.EVERY", 0.005)
    monkeypatch.setattr("fastfill.migrate.run.latency.GENTLE", 0)
    migration_of(store)
    probe = LatencyProbe(Job(Gallery(store, input="text"), encode, "encode"))
    try:
        with probe.working():
            store.writing.set()
            _wait_for(lambda: len(probe._all) >= ENOUGH)
            store.writing.clear()
        found = probe.latency()
    finally:
        probe.close()
    assert found is not None
    assert found.now > 0.02 > found.resting
    assert not probe._thread.is_alive()


def _wait_for(condition: Any) -> None:
    for _ in range(2_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("the probe does not look")


def test_rows_are_written_in_pieces_and_the_pauses_give_their_reason(
    store: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where queries suffer a batch is cut up, nothing is lost, and the progress says why."""
    monkeypatch.setattr("fastfill.migrate.run.writing.FIRST_PIECE", 40)
    monkeypatch.setattr("fastfill.migrate.run.writing.PIECE_SECONDS", 0.08)
    monkeypatch.setattr("fastfill.migrate.run.latency.EVERY", 0.005)
    monkeypatch.setattr("fastfill.migrate.run.latency.GENTLE", 0)
    monkeypatch.setattr("fastfill.migrate.run.duty_cycle.EVERY", 0.0)
    migration = migration_of(store)
    store.sizes.clear()
    steps = [*migration.backfill(batch=370, refit=None)]
    assert steps[-1].fraction == 1.0
    assert sum(store.sizes) == 370
    assert len(store.sizes) > 4
    reasons = [step.reason for step in steps if step.reason]
    assert any("ms between writes: at work" in reason for reason in reasons)
    assert migration.verify().good


def test_without_a_throttle_a_batch_is_one_write(store: Waiting) -> None:
    """Without a throttle batches are not cut up, and no thread looks at queries."""
    migration = migration_of(store)
    store.sizes.clear()
    [*migration.backfill(batch=185, refit=None, throttle=False)]
    assert store.sizes == [185, 185]


def test_a_probe_that_fails_does_not_stop_the_work(store: Waiting) -> None:
    """An error of a probe is left for the worker to meet."""
    migration = migration_of(store)
    search, asked = store.search, []

    def failing(*arguments: Any, **options: Any) -> Any:
        asked.append(1)
        if threading.current_thread().name == "fastfill-probe":
            raise OSError("no route to host")
        return search(*arguments, **options)

    store.search = failing  # type: ignore[method-assign]
    assert [*migration.backfill(refit=None)][-1].fraction == 1.0
    assert np.sum(asked) > 0
