"""The end of a migration: complete it, or roll it back."""

from __future__ import annotations

from dataclasses import replace

from fastfill.errors import MigrationError
from fastfill.gallery import FUSION, State, change_state, late_writes_of, load_state, set_phase
from fastfill.migrate.cutover import check_ending, swap_columns, swap_columns_back
from fastfill.migrate.job import Job
from fastfill.migrate.layout import stop_noting
from fastfill.migrate.ledger.audit import record
from fastfill.migrate.ledger.control import Control
from fastfill.migrate.ledger.count_record import CountRecord
from fastfill.migrate.ledger.leases import lease_names
from fastfill.migrate.ledger.quarantine import Failures
from fastfill.migrate.ledger.query_sample import QuerySample
from fastfill.migrate.ledger.sample_rows import SampleRows
from fastfill.migrate.ledger.serving_record import ServingChoice, ServingRecord
from fastfill.migrate.ledger.start_request import StartRequest
from fastfill.migrate.ledger.sweep_record import SweepRecord
from fastfill.migrate.ledger.worker_reports import WorkerReports
from fastfill.migrate.model_check import check_before_end
from fastfill.migrate.progress import count_all
from fastfill.migrate.quality.quality_forecast import QualityForecast
from fastfill.migrate.serving.choosing import choose_again
from fastfill.migrate.settling import settle

OF_THE_WORK = [
    document.NAME
    for document in (Control, SweepRecord, CountRecord, SampleRows, StartRequest, WorkerReports)
]
OF_ITS_RESULTS = [
    document.NAME for document in (Failures, QualityForecast, QuerySample, ServingRecord)
]


def complete_migration(job: Job, *, drop_old: bool, partial: bool, swap: bool = False) -> None:
    """End it where everything is new, or `partial` accepts the aligned rows as they are.

    With `swap` the new vectors get the name of the old ones.
    """
    state = _without_a_late_swap(job, job.state, swap)
    swap = swap or (state.swapping and not state.swapped)
    undropped, unswapped = drop_old and not state.drop_old, swap and not state.swapped
    if state.phase == "complete" and not (undropped or unswapped):
        return
    check_ending(job, state, swap=swap, drop_old=drop_old)
    if state.phase not in ("started", "completing", "complete"):
        raise MigrationError(f"{job.store.name} is {state.phase}: run fastfill start.")
    if state.phase == "started":
        _check_complete(job, state, partial)
    if state.phase != "completing" and (drop_old or swap or not partial):
        _check_not_worse(job, state)
    drop_old = drop_old or state.drop_old
    served = state.serves
    state = change_state(job.store, lambda latest: _ending(latest, latest.drop_old, partial))
    if swap:
        swap_columns(job, state, served)
    if unswapped and late_writes_of(job.store):
        drop_old = False  # before somebody has looked at them
    if drop_old:
        # Noted first, so that a crash on the way cannot hide that the old vectors may be gone.
        change_state(job.store, lambda latest: _ending(latest, True, partial))
        _ = job.state  # whose names are taken up: another process may have swapped just now
        job.store.drop_old()
    stop_noting(job)
    job.store.optimize()
    ended = set_phase(job.store, "complete")
    job.alignments.remove_all(keep=ended.alignment)
    job.store.remove([*OF_THE_WORK, *lease_names(job.store)])
    record(job.store, "completed", {"drop_old": drop_old, "swap": swap})


def _without_a_late_swap(job: Job, state: State, swap: bool) -> State:
    """Refuse to exchange names once the old vectors are gone; an attempt is forgotten."""
    if not state.drop_old or state.swapped or not old_is_gone(job):
        return state
    if swap:
        raise MigrationError(
            f"{job.store.name}: the old vectors have been dropped, and --swap exchanges their name "
            f"with that of the new ones: these stay in '{state.columns.new}', which the "
            "application queries by that name."
        )
    if state.swapping:
        return change_state(job.store, lambda latest: replace(latest, swapping=False))
    return state


def old_is_gone(job: Job) -> bool:
    """Have the old vectors been dropped?"""
    return job.store.columns.old not in job.store.describe().columns


def _ending(latest: State, drop_old: bool, partial: bool) -> State:
    """The new model serves alone from now on, unless rows stay aligned and something was better."""
    serving = latest.serving if partial and not drop_old else "aligned"
    return replace(latest, phase="completing", drop_old=drop_old, serving=serving)


def _check_complete(job: Job, state: State, partial: bool) -> None:
    settle(job, state, changed=True)
    progress = count_all(job.store, state)
    left = progress.total - progress.new - (progress.aligned if partial else 0)
    if left:
        raise MigrationError(
            f"{job.store.name}: {left:,} of {progress.total:,} rows are not new "
            f"({progress.aligned:,} aligned, {progress.waiting:,} without any vector, "
            f"{len(job.quarantine.items()):,} quarantined). Run fastfill backfill, or "
            "complete --partial to keep the aligned ones as they are."
        )
    check_before_end(job, state)


def _check_not_worse(job: Job, state: State) -> None:
    """Refuse to let the new model serve alone where it measured worse than the old search."""
    latest = _latest_choice(job)
    if state.phase == "started" and latest is not None and latest.worse_alone:
        state = choose_again(job, state)  # it may have been measured before the last rows were new
        latest = _latest_choice(job)
    if latest is None or not latest.worse_alone or state.serving == "aligned":
        return
    raise MigrationError(
        f"{job.store.name}: the new model alone measured worse than the search that people had "
        f"({latest.measured}), and from now on it would serve alone. Go back by fastfill rollback; "
        "or, if it is to serve all the same, say so by fastfill start --serving aligned, and "
        "complete then."
    )


def _latest_choice(job: Job) -> ServingChoice | None:
    return (ServingRecord.load(job.store) or ServingRecord()).latest


def swap_back(job: Job) -> None:
    """Give the old vectors their name back; the migration stays complete."""
    state = job.state
    if not (state.swapped or state.swapping):
        raise MigrationError(f"{job.store.name}: nothing has been swapped.")
    swap_columns_back(job, state)
    if state.phase == "completing":  # a swap that has ended half-way
        set_phase(job.store, "started")


def roll_back(job: Job) -> bool:
    """Drop what was added: the gallery is what it was before, but for others' writes.

    Returns False where that was done before.
    """
    store = job.store
    state = load_state(store)
    if state is None:
        raise MigrationError(
            f"{store.name}: there is no migration, so that nothing is rolled back. Look for a slip "
            "in the URL or in --where."
        )
    if state.phase == "rolled back":
        return False
    job.gallery.follow(state)
    if old_is_gone(job):
        raise MigrationError(
            f"{store.name}: the old vectors have been dropped, so there is no way back."
        )
    set_phase(store, "rolling back")
    swap_columns_back(job, state)
    store.contract()
    store.optimize()
    job.alignments.remove_all()
    store.remove([*OF_THE_WORK, *OF_ITS_RESULTS, *lease_names(store), *store.names(FUSION)])
    set_phase(store, "rolled back")
    record(store, "rolled back", {"model": state.model})
    return True
