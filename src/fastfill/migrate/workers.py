"""Several workers of one run, side by side in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from fastfill.gallery import State
from fastfill.migrate.backfill import Run
from fastfill.migrate.job import Job
from fastfill.migrate.limits import Limits
from fastfill.migrate.notes import record
from fastfill.migrate.probe import Probe
from fastfill.migrate.progress import Progress, count
from fastfill.migrate.watch import Watch


def work(
    job: Job, state: State, workers: int, limits: Limits, watch: Watch | None
) -> Iterator[Progress]:
    """The first worker is this thread and reports; the others work beside it."""
    if watch is not None:
        limits = replace(limits, enough=_both(limits.enough, watch.enough))
    if limits.rows is not None:
        limits = replace(limits, rows=-(-limits.rows // workers))
    probe = Probe(job) if limits.make_room else None
    runs = [Run(job, state, limits, f"/{number}", probe) for number in range(workers)]
    helpers = [_Helper(run) for run in runs[1:]]
    for helper in helpers:
        helper.start()
    try:
        for progress in runs[0].steps():
            quality = None if watch is None else watch.quality
            yield replace(progress, written=sum(run.written for run in runs), quality=quality)
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
    outcome = runs[0].outcome
    last = replace(count(job.store, job.state), written=sum(run.written for run in runs))
    last = replace(last, failed=len(job.failures.set_aside()), rate=progress.rate * workers)
    if watch is not None:
        last = replace(last, quality=watch.measure(last, last=True))
    job.tell("done", {"outcome": outcome, **last.to_json()})
    record(job.store, "backfilled", outcome=outcome, written=last.written, new=last.new)
    if outcome == "done":
        job.store.optimize()
    yield last


class _Helper(threading.Thread):
    """Another worker of the same run; its error is raised by the first."""

    def __init__(self, run: Run) -> None:
        super().__init__(daemon=True)
        self._steps = run.steps()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for _ in self._steps:
                pass
        except BaseException as error:
            self.error = error


def _both(
    one: Callable[[Progress], str | None] | None, other: Callable[[Progress], str | None]
) -> Callable[[Progress], str | None]:
    return other if one is None else lambda progress: one(progress) or other(progress)
