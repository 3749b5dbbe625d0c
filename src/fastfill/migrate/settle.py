"""Settling: every row whose added vector is not right gets one that is.

The start, the sweep after other writers, another alignment and another model half-way are all this
one operation: find the rows that are not settled, align them from their old vectors, and mark them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Aligned, Alignment
from fastfill.errors import OrderError
from fastfill.gallery import Marks, Rows, State
from fastfill.migrate.job import Job

FIRST = np.float32(3.4e38)  # priority of rows without any vector: before all others
POLICIES = ("sigma", "random")


@dataclass
class Settling:
    """What one pass has done, in rows."""

    aligned: int = 0
    adopted: int = 0
    waiting: int = 0
    refused: int = 0  # changed by someone else meanwhile: the next pass finds them

    @property
    def rows(self) -> int:
        """Rows that are settled now and were not before."""
        return self.aligned + self.adopted + self.waiting


def settle(
    job: Job,
    state: State,
    *,
    changed: bool,
    progress: Callable[[Settling], None] = lambda _: None,
) -> Settling:
    """One pass over the rows that are not settled; with `changed` also those edited by others."""
    done = Settling()
    alignment = job.alignment(state)
    batch = job.store.describe().batch
    priority = Priorities(state)
    for rows in job.store.unsettled(state.settled, batch=batch, changed=changed, new=True):
        _settle_block(job, state, rows, alignment, priority, done)
        progress(done)
        if job.stop.is_set():
            break
    return done


def _settle_block(
    job: Job, state: State, rows: Rows, alignment: Alignment, priority: Priorities, done: Settling
) -> None:
    store, written = job.store, 0
    own = adoptable(rows)
    if own.any():
        part = rows.take(own)
        done.adopted += (count := store.write(part, part.new, Marks("new", state.model)))
        written += count
    usable = _alignable(rows, state) & ~own
    if usable.any():
        part = rows.take(usable)
        aligned = alignment(part.old)
        marks = Marks("aligned", state.alignment or "", aligned.variance, priority(aligned))
        done.aligned += (count := store.write(part, aligned.vectors, marks))
        written += count
    rest = ~usable & ~own
    if rest.any():
        part = rows.take(rest)
        first = np.full(len(part), FIRST, dtype=np.float32)
        marks = Marks("waiting", state.model, priority=first)
        done.waiting += (count := store.write(part, None, marks))
        written += count
    done.refused += len(rows) - written
    job.failures.forgive(rows.ids)  # what has changed deserves another try


def adoptable(rows: Rows) -> NDArray[np.bool_]:
    """Rows without marks to which the application has given a new vector itself."""
    unmarked = np.array([generation is None for generation in rows.generation], dtype=bool)
    if rows.new is None:
        return np.zeros(len(rows), dtype=bool)
    return np.asarray(unmarked & np.isfinite(rows.new).all(axis=1))


def _alignable(rows: Rows, state: State) -> NDArray[np.bool_]:
    if state.distance != "cosine":
        return rows.usable
    return np.asarray(rows.usable & rows.old.any(axis=1))  # a zero vector has no direction


class Priorities:
    """The policy of the state, as a number for each row of a batch."""

    def __init__(self, state: State) -> None:
        self._policy = state.policy
        self._rng = np.random.default_rng(0)
        if self._policy not in POLICIES:
            raise OrderError(f"Unknown policy {self._policy!r}: use one of {', '.join(POLICIES)}.")

    def __call__(self, aligned: Aligned) -> NDArray[np.float32]:
        if self._policy == "random":
            return self._rng.random(len(aligned), dtype=np.float32)
        return aligned.variance


def rearrange(job: Job, state: State) -> int:
    """Give the aligned rows the priorities of the state's policy; their vectors stay the same."""
    alignment = job.alignment(state)
    priority = Priorities(state)
    written = 0
    for rows in job.store.scan("aligned", batch=job.store.describe().batch, new=False):
        part = rows.take(_alignable(rows, state))
        aligned = alignment(part.old)
        marks = Marks("aligned", state.alignment or "", aligned.variance, priority(aligned))
        written += job.store.write(part, aligned.vectors, marks)
    return written
