"""A rollback while a run is at work: the run ends, and says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastfill.errors import FastFillError, RolledBackError
from fastfill.gallery import load_state
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.audit import whoami
from fastfill.migrate.ledger.worker_reports import WorkerReports


@contextmanager
def rollbacks_told(job: Job) -> Iterator[None]:
    """Whatever fails because its columns have gone, that is the reason to give."""
    try:
        yield
    except Exception as error:
        if not _rolled_back(job):
            raise
        WorkerReports.drop(job.store, whoami())
        raise RolledBackError(
            f"{job.store.name}: the migration has been rolled back while this run worked on it, so "
            "that it ends here; the old vectors are as they were."
        ) from error


def _rolled_back(job: Job) -> bool:
    try:
        state = load_state(job.store)
    except FastFillError:  # the store cannot be reached: that is what failed
        return False
    return state is not None and state.phase in ("rolling back", "rolled back")
