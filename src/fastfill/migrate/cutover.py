"""The cut-over under the owner's name: `complete --swap`, and the way back.

The state says what is under way before the store changes, and how it ended afterwards; each step
may be repeated. So whoever comes after a crash, to go on or to go back, knows what to do.
"""

from __future__ import annotations

import time
from dataclasses import replace

from fastfill.errors import MigrationError
from fastfill.gallery import State, change_state, late_writes_of
from fastfill.gallery.gallery import FRESH
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.audit import record


def check_ending(job: Job, state: State, *, swap: bool, drop_old: bool) -> None:
    """Refuse what cannot be done, before anything is changed."""
    if (swap and not state.swapped) or (drop_old and state.columns.layout == "side"):
        job.store.check_swap(state.columns)
    if drop_old:
        job.store.check_drop_old()
    if drop_old and state.columns.where and not (swap or state.swapped):
        raise MigrationError(
            f"{job.store.name}: the old vectors share the column '{state.columns.old}' with other "
            "rows. Run complete --swap, which moves the new ones there, and --drop-old after that."
        )


def swap_columns(job: Job, state: State, served: str) -> State:
    """Give the new vectors the owner's name; again from where a crash has left it.

    Readers that still ask the old model, because it `served` until now, hear of the end first.
    """
    if state.swapped and not state.swapping:
        return state
    if state.swapped:
        raise MigrationError(f"{job.store.name} is being swapped back. Run: fastfill swap-back.")
    if served != "aligned":
        time.sleep(FRESH)
    change_state(job.store, lambda latest: replace(latest, swapping=True))
    rows = job.store.swap(state.columns, state.settled)
    if rows:
        change_state(job.store, lambda latest: replace(latest, swapping=False, phase="started"))
        raise MigrationError(
            f"{job.store.name}: {rows:,} rows have been written since everything was new, so that "
            "nothing was swapped. Run fastfill backfill, then complete --swap again."
        )
    return _end(job, state, swapped=True)


def swap_columns_back(job: Job, state: State) -> State:
    """Give the old vectors their name back; also where a swap has ended half-way."""
    if not (state.swapped or state.swapping):
        return state
    if state.drop_old:
        raise MigrationError(
            f"{job.store.name}: the old vectors have been dropped, so there is no way back."
        )
    before = state.columns.swapped_back if state.swapped else state.columns
    change_state(job.store, lambda latest: replace(latest, swapping=True))
    job.store.bind(before.swapped)
    job.store.swap_back(before, state.dim)
    return _end(job, replace(state, columns=before), swapped=False)


def _end(job: Job, state: State, *, swapped: bool) -> State:
    """Let readers know the names, then drop what is left over."""
    before = state.columns
    columns = before.swapped if swapped else before
    ended = change_state(
        job.store,
        lambda latest: replace(latest, columns=columns, swapped=swapped, swapping=False),
    )
    job.store.bind(columns)
    job.store.end_swap(before, swapped)
    late = [each.entry for each in late_writes_of(job.store)]
    details = {"column": columns.new, **({"late": late} if late else {})}
    record(job.store, "swapped" if swapped else "swapped back", details)
    return ended
