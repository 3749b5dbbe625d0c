"""`with_heartbeat`: a run says in the store how it goes, for `status` and `watch` elsewhere.

It does so after its steps, and from a thread beside it while one step takes long: the encoder is
waited for, or the store, or much is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from fastfill.errors import StoreError
from fastfill.gallery import Documents
from fastfill.migrate.ledger.audit import whoami
from fastfill.migrate.ledger.worker_reports import WorkerReport, WorkerReports
from fastfill.migrate.progress import Progress

EVERY = 10.0  # seconds between two reports of a run that goes on as before
AT_ONCE = 2.0  # seconds after which a run that waits, or no longer waits, says so
LOOK = 2.0  # seconds between two looks at a step that takes long


def with_heartbeat(
    documents: Documents,
    steps: Generator[Progress, None, None],
    clock: Callable[[], float] | None = None,
    reason: Callable[[], str | None] = lambda: None,
) -> Iterator[Progress]:
    """The same steps; what they say is kept in the store now and then, and dropped at the end.

    `reason()` says why a step takes long. A run that ends by an error of the store leaves its last
    report, as one that is killed does, and one that nobody asks for a step any more.
    """
    # by a clock that is an hour ahead, others would seem to be dead
    try:
        with _Heartbeat(documents, clock or documents.now, reason) as heartbeat, closing(steps):
            while (progress := heartbeat.during(steps)) is not None:
                heartbeat.report(progress)
                yield progress
    except (GeneratorExit, StoreError):
        raise
    except BaseException:
        with suppress(Exception):  # the first error is the one to be told
            heartbeat.drop()
        raise
    heartbeat.drop()


class _Heartbeat(threading.Thread):
    """The reports of one run."""

    def __init__(
        self, documents: Documents, clock: Callable[[], float], reason: Callable[[], str | None]
    ) -> None:
        super().__init__(name="fastfill-heartbeat", daemon=True)
        self._documents, self._clock, self._reason = documents, clock, reason
        self._who = whoami()
        self._progress = Progress(0)  # of the latest step
        self._reported: WorkerReport | None = None
        self._turn = threading.Lock()  # one report at a time
        self._in_step, self._ended = threading.Event(), threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self.join(30.0)  # a report may wait for what the steps held: they are closed by now

    def during(self, steps: Iterator[Progress]) -> Progress | None:
        """The next step, with reports while it lasts; None where there is no other."""
        self._in_step.set()  # a run that nobody asks for a step is not at work
        try:
            progress = next(steps, None)
        finally:
            self._in_step.clear()
        self._progress = progress or self._progress
        return progress

    def report(self, progress: Progress) -> None:
        """Say how it goes, if that is due and not being said just now."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            report = WorkerReport(
                self._clock(), progress.written, progress.rate, progress.reason, progress.doing
            )
            if self._reported is None or _due(self._reported, report):
                WorkerReports.put(self._documents, self._who, report)
                self._reported = report
        finally:
            self._turn.release()

    def drop(self) -> None:
        """Nothing is left of a run that has ended."""
        if self._reported is not None:
            WorkerReports.drop(self._documents, self._who)

    def run(self) -> None:
        """Report while a step lasts."""
        while not self._ended.wait(LOOK):
            if self._in_step.is_set():
                latest = self._progress
                with suppress(Exception):  # if the store is at fault, the run itself finds out
                    self.report(replace(latest, reason=self._reason() or latest.reason))


def _due(latest: WorkerReport, report: WorkerReport) -> bool:
    changed = (latest.reason is None, latest.doing is None) != (
        report.reason is None,
        report.doing is None,
    )
    return report.at - latest.at >= (AT_ONCE if changed else EVERY)
