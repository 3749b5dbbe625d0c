"""A rollback, or another model, while a run is at work: the run ends, and says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastfill.errors import FastFillError, MigrationError, RolledBackError
from fastfill.gallery import State, load_state
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.audit import whoami
from fastfill.migrate.ledger.worker_reports import WorkerReports


@contextmanager
def endings_told(job: Job, state: State) -> Iterator[None]:
    """Whatever fails because its columns have gone, or are another model's, that is the reason."""
    try:
        yield
    except Exception as error:
        latest = _latest(job)
        if latest is None:
            raise
        if latest.phase not in ("rolling back", "rolled back"):
            if latest.model == state.model:
                raise
            raise no_longer_ours(job, latest) from error
        WorkerReports.drop(job.store, whoami())
        raise RolledBackError(
            f"{job.store.name}: the migration has been rolled back while this run worked on it, so "
            "that it ends here; the old vectors are as they were."
        ) from error


def no_longer_ours(job: Job, latest: State) -> MigrationError:
    """What ends a run whose migration others have taken on."""
    return MigrationError(
        f"{job.store.name}: the migration is {latest.phase} and no longer at the model of this "
        "run, so it ends here. See: fastfill status."
    )


def _latest(job: Job) -> State | None:
    try:
        return load_state(job.store)
    except FastFillError:  # the store cannot be reached: that is what failed
        return None
