"""`with_heartbeat`: a run says in the store how it goes, for `status` and `watch` elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing

from fastfill.gallery import Documents
from fastfill.migrate.ledger.audit import whoami
from fastfill.migrate.ledger.worker_reports import WorkerReport, WorkerReports
from fastfill.migrate.progress import Progress

EVERY = 10.0  # seconds between two reports of a run that goes on as before
AT_ONCE = 2.0  # seconds after which a run that waits, or no longer waits, says so


def with_heartbeat(
    documents: Documents,
    steps: Generator[Progress, None, None],
    clock: Callable[[], float] | None = None,
) -> Iterator[Progress]:
    """The same steps; what they say is kept in the store now and then, and dropped at the end.

    A run that ends by an error leaves its last report: the store may be what failed.
    """
    who, latest = whoami(), None
    now = clock or documents.now  # by one that is an hour ahead, others would seem to be dead
    with closing(steps):
        for progress in steps:
            report = WorkerReport(
                now(), progress.written, progress.rate, progress.reason, progress.doing
            )
            if latest is None or _due(latest, report):
                WorkerReports.put(documents, who, report)
                latest = report
            yield progress
    if latest is not None:
        WorkerReports.drop(documents, who)


def _due(latest: WorkerReport, report: WorkerReport) -> bool:
    changed = (latest.reason is None, latest.doing is None) != (
        report.reason is None,
        report.doing is None,
    )
    return report.at - latest.at >= (AT_ONCE if changed else EVERY)
