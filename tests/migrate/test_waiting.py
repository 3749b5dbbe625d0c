"""A run that waits for the encoder or the store, or is long at one thing, says so meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from migration_world import encode

from fastfill.errors import EncoderBusyError
from fastfill.features import Matrix
from fastfill.gallery import MemoryStore
from fastfill.migrate import Migration, WorkerReport
from fastfill.migrate.ledger.worker_reports import WorkerReports
from fastfill.page.summary import activity

Make = Callable[..., Migration]
TIMEOUT = 20.0  # seconds before a test gives up on another thread
FREE: dict[str, Any] = {"throttle": False, "refit": None, "batch": 20}


class MoodyModel:
    """The new model, which can be told to be busy, or to take long."""

    def __init__(self) -> None:
        self.asks: float | None = None  # seconds of its Retry-After
        self.busy = False
        self.free = threading.Event()
        self.free.set()

    def __call__(self, texts: Sequence[Any]) -> Matrix:
        if self.busy:
            raise EncoderBusyError("the service answers 429", self.asks)
        assert self.free.wait(TIMEOUT)
        return encode(texts)


@pytest.fixture
def model() -> MoodyModel:
    """A model in a good mood."""
    return MoodyModel()


@pytest.fixture
def migration(migrate: Make, model: MoodyModel, monkeypatch: pytest.MonkeyPatch) -> Migration:
    """A migration that has started; its runs report all the time."""
    for name in ("EVERY", "AT_ONCE", "LOOK"):
        monkeypatch.setattr(f"fastfill.migrate.run.heartbeat.{name}", 0.01)
    for module in ("run.worker", "model_check"):
        monkeypatch.setattr(f"fastfill.migrate.{module}.LOOK", 0.01)
    migration = migrate(model, encoder_name="moody")
    migration.start(pairs=60, method="ridge")
    return migration


@contextmanager
def at_work(migration: Migration, **options: Any) -> Iterator[list[Any]]:
    """A backfill in a thread of its own, told to stop at the end; gives its steps."""
    steps: list[Any] = []
    run = threading.Thread(target=lambda: steps.extend(migration.backfill(**FREE, **options)))
    run.start()
    try:
        yield steps
    finally:
        migration.stop.set()
        run.join(TIMEOUT)
        assert not run.is_alive()
        migration.stop.clear()


def report_that(
    migration: Migration, is_it: Callable[[WorkerReport], bool] = lambda _: True
) -> WorkerReport:
    """The first report of the run of which this is true."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        for report in migration.status().workers.values():
            if is_it(report):
                return report
        time.sleep(0.005)
    raise AssertionError(f"only {migration.status().workers}")


def goes_on_reporting(migration: Migration) -> WorkerReport:
    """The third of three reports, each later than the one before."""
    report = report_that(migration)
    for _ in range(2):
        report = report_that(migration, later_than(report.at))
    return report


def later_than(before: float) -> Callable[[WorkerReport], bool]:
    """Was it made later?"""
    return lambda report: report.at > before


@pytest.mark.parametrize(
    ("asks", "reason"),
    [
        (600.0, "for the encoder, which asked to try again in 600 s"),
        (None, "for the encoder, which is busy: trying again in 300 s"),
    ],
    ids=["asked", "not asked"],
)
def test_waiting_for_a_busy_encoder_is_told(
    migration: Migration,
    model: MoodyModel,
    monkeypatch: pytest.MonkeyPatch,
    asks: float | None,
    reason: str,
) -> None:
    """Reports go on while it is waited for, with the reason, and the page says `Waiting`."""
    for name in ("FIRST", "LONGEST"):
        monkeypatch.setattr(f"fastfill.migrate.backoff.{name}", 300.0)
    monkeypatch.setattr("fastfill.migrate.backoff.random.uniform", lambda low, _: low)
    model.busy, model.asks = True, asks
    with at_work(migration) as steps:
        report_that(migration, lambda report: report.reason == reason)
        report = goes_on_reporting(migration)
        shown = activity(migration.status(), now=report.at)
    assert reason in [step.reason for step in steps]
    assert (shown.word, shown.detail) == ("Waiting", f"{reason[0].upper()}{reason[1:]}.")
    assert migration.status().workers == {}
    model.busy = False
    assert [*migration.backfill(**FREE)][-1].fraction == 1.0


def test_a_batch_that_takes_long_is_told(migration: Migration, model: MoodyModel) -> None:
    """One call of the encoder that does not end is work, with reports that say so."""
    model.free.clear()
    with at_work(migration):
        report = goes_on_reporting(migration)
        assert activity(migration.status(), now=report.at).word == "Backfilling"
        assert report.reason is None
        model.free.set()


@pytest.mark.parametrize("part", ["read", "write"])
def test_waiting_for_the_store_is_told(
    migration: Migration, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Where documents can still be written, the reason is there; a thread of its own tells it."""
    done, back = getattr(store, part), threading.Event()

    def locked(*given: Any, **named: Any) -> Any:
        if not back.is_set():
            store.notify("the table is locked by others", 600.0)
            assert back.wait(TIMEOUT)
        return done(*given, **named)

    monkeypatch.setattr(store, part, locked)
    with at_work(migration):
        reason = "for the store, because the table is locked by others"
        report_that(migration, lambda report: report.reason == reason)
        assert goes_on_reporting(migration).reason == reason
        back.set()


def test_a_run_that_nobody_asks_for_a_step_is_silent(
    migration: Migration, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two steps nothing is done, so that nothing is reported."""
    said: list[WorkerReport] = []
    steps = migration.backfill(**FREE)
    next(steps)
    put = WorkerReports.put
    monkeypatch.setattr(WorkerReports, "put", lambda *given: (said.append(given[-1]), put(*given)))
    threading.Event().wait(0.1)
    assert len(said) <= 1  # one that was being made
    migration.stop.set()
    assert [*steps]
