"""Settling: every row whose added vector is not right gets one that is.

The start, the sweep after other writers, another alignment and another model half-way are all this
one operation: find the rows that are not settled, align them from their old vectors, and mark them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Aligned, Alignment
from fastfill.gallery import Marks, Rows, State
from fastfill.migrate.job import Job
from fastfill.migrate.supply import read_ahead
from fastfill.order import Known, arrange

Mask = NDArray[np.bool_]
FIRST = np.float32(3.4e38)  # priority of rows without any vector: before all others
PAIRS_KEPT = 4_096  # old vectors of pairs that policies may look at


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
    for step in settling(job, state, changed=changed):
        progress(done := step)
    return done


def settling(
    job: Job,
    state: State,
    *,
    changed: bool,
    skip: Callable[[Rows], Mask] | None = None,
    most: int | None = None,
) -> Iterator[Settling]:
    """The same pass, step by step, what it has done so far after each.

    `skip` leaves rows alone; a step has at most `most` rows, and then nothing is read ahead.
    """
    done = Settling()
    alignment = job.alignment(state)
    batch = min(job.batch, most or 2**31)
    priority = Priorities(job, state, alignment)
    blocks = job.store.unsettled(state.settled, batch=batch, changed=changed, new=True)
    for rows in read_ahead(blocks) if job.beside and not most else blocks:
        wanted = rows if skip is None else rows.take(~skip(rows))
        if len(wanted):
            _settle_block(job, state, wanted, alignment, priority, done)
        yield done
        if job.stop.is_set():
            break


def outdated(rows: Rows, state: State) -> Mask:
    """(n,) rows that an earlier alignment has aligned."""
    pairs = zip(rows.generation, rows.model, strict=True)
    return np.array([g == "aligned" and m in state.earlier for g, m in pairs], dtype=bool)


def _settle_block(
    job: Job, state: State, rows: Rows, alignment: Alignment, priority: Priorities, done: Settling
) -> None:
    store, written = job.store, 0
    own = adoptable(rows)
    if own.any():
        part = rows.take(own)
        done.adopted += (count := store.write(part, part.new, Marks("new", state.model)))
        written += count
    usable = alignable(rows, state) & ~own
    if usable.any():
        part = rows.take(usable)
        aligned = alignment(part.old)
        marks = Marks("aligned", state.alignment or "", aligned.variance, priority(part, aligned))
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
    # What has changed deserves another try; another map is no change of the item.
    job.failures.forgive(rows.ids[~outdated(rows, state)])


def adoptable(rows: Rows) -> Mask:
    """Rows without marks to which the application has given a new vector itself."""
    unmarked = np.array([generation is None for generation in rows.generation], dtype=bool)
    if rows.new is None:
        return np.zeros(len(rows), dtype=bool)
    return np.asarray(unmarked & np.isfinite(rows.new).all(axis=1))


def alignable(rows: Rows, state: State) -> Mask:
    """(n,) rows whose old vector can be mapped."""
    if state.distance != "cosine":
        return rows.usable
    return np.asarray(rows.usable & rows.old.any(axis=1))  # a zero vector has no direction


class Priorities:
    """The policy of the state, as a number for each row of a batch."""

    def __init__(self, job: Job, state: State, alignment: Alignment) -> None:
        self._policy = state.policy
        self._distance = state.distance
        self._head = alignment.head
        self._pairs_old = None
        if state.policy not in ("sigma", "mixed", "random"):
            self._pairs_old = _some_pairs(job, state)
        self._seed = 0

    def __call__(self, rows: Rows, aligned: Aligned) -> NDArray[np.float32]:
        self._seed += 1  # another batch, other random numbers
        known = Known(
            aligned,
            old=rows.old,
            pairs_old=self._pairs_old,
            head=self._head,
            distance=self._distance,
            seed=self._seed,
        )
        return np.asarray(arrange(self._policy, known).scores, dtype=np.float32)


def _some_pairs(job: Job, state: State) -> NDArray[np.float32] | None:
    found: list[NDArray[np.float32]] = []
    for rows in job.store.scan("new", batch=1_024, new=False):
        found.append(rows.old[alignable(rows, state)])
        if sum(map(len, found)) >= PAIRS_KEPT:
            break
    return np.concatenate(found)[:PAIRS_KEPT] if found else None


def rearrange(job: Job, state: State) -> int:
    """Give the aligned rows the priorities of the state's policy; their vectors stay the same."""
    alignment = job.alignment(state)
    priority = Priorities(job, state, alignment)
    written = 0
    for rows in job.store.scan("aligned", batch=job.batch, new=False):
        part = rows.take(alignable(rows, state))
        aligned = alignment(part.old)
        marks = Marks("aligned", state.alignment or "", aligned.variance, priority(part, aligned))
        written += job.store.write(part, aligned.vectors, marks)
    return written
