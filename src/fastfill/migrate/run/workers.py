"""Several workers of one run, side by side in this process."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import replace
from functools import partial

from fastfill.gallery import State
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.audit import record, whoami
from fastfill.migrate.ledger.leases import REFIT, Leases
from fastfill.migrate.options import BackfillOptions
from fastfill.migrate.progress import Progress, count, count_all, words_of_count
from fastfill.migrate.quality.watch import QualityWatch
from fastfill.migrate.run.latency import LatencyProbe
from fastfill.migrate.run.spending import Spending
from fastfill.migrate.run.worker import Worker
from fastfill.migrate.serving.choosing import choose_again


def run_workers(
    job: Job, state: State, options: BackfillOptions, watch: QualityWatch | None
) -> Generator[Progress, None, None]:
    """The first worker is this thread and reports; the others work beside it."""
    probe = LatencyProbe(job) if options.throttle else None
    rows = None if options.rows is None else -(-options.rows // options.workers)
    spending = Spending(options.prices, options.cost)
    workers = [
        Worker(
            job,
            state,
            options,
            rows=rows,
            number=number,
            probe=probe,
            watch=watch,
            spending=spending,
        )
        for number in range(options.workers)
    ]
    helpers = [_Helper(worker) for worker in workers[1:]]
    for helper in helpers:
        helper.start()
    try:
        for progress in workers[0].steps():
            quality = None if watch is None else watch.quality
            rate = progress.rate * options.workers
            yield replace(progress, written=_written(workers), rate=rate, quality=quality)
    except BaseException:
        job.stop.set()
        raise
    finally:
        for helper in helpers:
            helper.join()
        if probe is not None:
            probe.close()
    for helper in helpers:
        if helper.error is not None:
            raise helper.error
    _choose_again(job, options)
    if workers[0].outcome == "done" and (words := words_of_count(job.store)):
        yield replace(progress, doing=words)
    yield _last(job, workers, watch, progress.rate * options.workers)


def _choose_again(job: Job, options: BackfillOptions) -> None:
    """Measuring takes a while: of runs that end at the same time, one does it for all."""
    lease = Leases(job.store, whoami(), seconds=options.lease, kind=REFIT)
    if lease.claim(["serving"]):
        try:
            choose_again(job, job.state)
        finally:
            lease.release()


def _last(job: Job, workers: list[Worker], watch: QualityWatch | None, rate: float) -> Progress:
    """Counted in the store when all workers have ended, row by row where all is said to be done."""
    outcome = workers[0].outcome
    counted = count_all if outcome == "done" else partial(count, about=True)
    last = replace(
        counted(job.store, job.state),
        written=_written(workers),
        failed=len(job.quarantine.items()),
        rate=rate,
        cost=workers[0].run.spending.cost,
        reconnects=job.reconnects,
    )
    if watch is not None:  # quality is that of what serves now
        last = replace(last, quality=watch.measure(last, last=True))
    job.callback("done", {"outcome": outcome, **last.to_json()})
    details = {"outcome": outcome, "written": last.written, "new": last.new}
    record(job.store, "backfilled", details)
    if outcome == "done":
        job.store.optimize()
    return last


def _written(workers: list[Worker]) -> int:
    return sum(worker.run.written for worker in workers)


class _Helper(threading.Thread):
    """Another worker of the same run; its error is raised by the first."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(daemon=True)
        self._steps = worker.steps()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for _ in self._steps:
                pass
        except BaseException as error:
            self.error = error
