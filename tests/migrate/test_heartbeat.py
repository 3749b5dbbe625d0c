"""What a run says of itself in the store, for those who watch from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from fastfill.errors import StoreError
from fastfill.gallery import MemoryStore
from fastfill.migrate import Migration, Progress
from fastfill.migrate.ledger.audit import whoami
from fastfill.migrate.ledger.worker_reports import WorkerReports
from fastfill.migrate.run.heartbeat import with_heartbeat


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_run_reports_now_and_then(store: MemoryStore) -> None:
    """At first, every ten seconds, and soon when it begins to wait; nothing is left at the end."""
    clock = Clock()
    steps = [(0, None), (5, None), (11, None), (12, "paused"), (13.5, "paused"), (14, None)]

    def run() -> Generator[Progress, None, None]:
        for at, reason in steps:
            clock.now = 1_000.0 + at
            yield Progress(10, rate=at, reason=reason)

    reported = []
    for _ in with_heartbeat(store, run(), clock):
        reported.append(WorkerReports.of(store)[whoami()].at - 1_000)
    assert reported == [0, 0, 11, 11, 13.5, 13.5]
    assert WorkerReports.of(store) == {}


def failing(error: BaseException) -> Generator[Progress, None, None]:
    """A run that ends by this error after its first step."""
    yield Progress(10, written=4)
    raise error


@pytest.mark.parametrize("error", [RuntimeError("gone"), SystemExit(3), KeyboardInterrupt()])
def test_a_run_that_fails_takes_its_report_back(store: MemoryStore, error: BaseException) -> None:
    """Nobody is told that it still works."""
    with pytest.raises(type(error)):
        list(with_heartbeat(store, failing(error)))
    assert WorkerReports.of(store) == {}


def test_a_run_that_lost_its_store_leaves_its_last_report(store: MemoryStore) -> None:
    """Nothing more is written to what has failed; age tells the rest."""
    with pytest.raises(StoreError, match="gone"):
        list(with_heartbeat(store, failing(StoreError("gone"))))
    report = WorkerReports.of(store)[whoami()]
    assert report.written == 4
    assert report.alive(report.at + 59)
    assert not report.alive(report.at + 61)


def test_a_run_that_is_left_ends_its_work(store: MemoryStore) -> None:
    """Whoever stops asking for steps ends the run at once, not when memory is tidied up."""
    ended = []

    def run() -> Generator[Progress, None, None]:
        try:
            while True:
                yield Progress(10)
        finally:
            ended.append(True)

    inner = run()  # held here, so that nothing but `close` ends it
    steps = with_heartbeat(store, inner)
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert ended == [True]


def test_reports_of_the_dead_are_forgotten(store: MemoryStore) -> None:
    """After an hour the next report drops what a killed run has left."""
    from fastfill.migrate import WorkerReport

    WorkerReports.put(store, "dead", WorkerReport(at=1_000.0))
    WorkerReports.put(store, "ann", WorkerReport(at=2_000.0))
    assert set(WorkerReports.of(store)) == {"dead", "ann"}
    WorkerReports.put(store, "ann", WorkerReport(at=5_000.0))
    assert set(WorkerReports.of(store)) == {"ann"}


def test_status_tells_of_runs_and_the_old_search(
    migrate: Callable[..., Migration], store: MemoryStore
) -> None:
    """While a run goes on, status has its report, the last sweep and the old search's metric."""
    migration = migrate()
    migration.start(pairs=60, method="ridge")
    for progress in migration.backfill(metric="map", label="album", batch=20, rows=40):
        if progress.written:
            break
    status = migration.status()
    assert list(status.workers) == [whoami()]
    assert status.forecast is not None
    assert status.forecast.old_search is not None
    assert 0 < status.forecast.old_search <= 1
    again = migration.status(counted=Progress(7))
    assert again.progress.total == 7
