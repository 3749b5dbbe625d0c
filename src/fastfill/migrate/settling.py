"""Settling: every row whose added vector is not right gets one that is.

The start, the sweep after other writers, another alignment and another model half-way are all this
one operation: find the rows that are not settled, align them from their old vectors, and mark them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fastfill.align import Alignment
from fastfill.features import Matrix
from fastfill.gallery import Marks, QuickSweeps, Rows, State
from fastfill.migrate.job import Job
from fastfill.migrate.priorities import FIRST, Mask, Priorities, alignable
from fastfill.migrate.run.prefetch import read_ahead

Skip = Callable[[Rows], Mask]  # (n,) rows to leave alone


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

    def __add__(self, later: Settling) -> Settling:
        """Two passes, one after the other: what the second one was refused is left."""
        return Settling(
            self.aligned + later.aligned,
            self.adopted + later.adopted,
            self.waiting + later.waiting,
            later.refused,
        )


def settle(
    job: Job,
    state: State,
    *,
    changed: bool,
    quick: bool = False,
    skip: Skip | None = None,
    tick: Callable[[Settling], None] = lambda _: None,
) -> Settling:
    """One pass over the rows that are not settled; with `changed` also those edited by others.

    With `quick` it is over those that the store finds without a look at every row.
    """
    done = Settling()
    for step in settle_steps(job, state, changed=changed, quick=quick, skip=skip):
        tick(done := step)
    return done


def settle_steps(
    job: Job,
    state: State,
    *,
    changed: bool,
    quick: bool = False,
    skip: Skip | None = None,
    most: int | None = None,
) -> Iterator[Settling]:
    """The same pass, step by step, what it has done so far after each.

    A step has at most `most` rows, and then nothing is read ahead.
    """
    done = Settling()
    alignment = job.alignment(state)
    batch = min(job.batch, most or 2**31)
    priority = Priorities(job, state, alignment)
    if quick and isinstance(job.store, QuickSweeps):
        found = job.store.quick_sweep(state.settled, batch=batch)
    else:
        found = job.store.unsettled(state.settled, batch=batch, changed=changed, new=True)
    wanted = found if skip is None else (rows.take(~skip(rows)) for rows in found)
    blocks = (_block(state, rows, alignment, priority) for rows in wanted)
    for block in read_ahead(blocks) if job.reads_beside_writes and not most else blocks:
        if len(block.rows):
            _settle_block(job, state, block, done)
        yield done
        if job.stop.is_set():
            break


@dataclass(frozen=True, eq=False)
class _Block:
    """Rows to be settled, and what those of them get that can be aligned."""

    rows: Rows
    own: Mask  # (n,) rows that have a vector of the application's
    usable: Mask  # (n,) those of the others that have an old vector
    aligned: Matrix | None  # (m, d) of these; None where there are none
    marks: Marks


def _block(state: State, rows: Rows, alignment: Alignment, priority: Priorities) -> _Block:
    """Made while the block before is written, where rows are read ahead."""
    own = adoptable(rows)
    usable = alignable(rows, state) & ~own
    marks = Marks("aligned", state.alignment or "")
    if not usable.any():
        return _Block(rows, own, usable, None, marks)
    part = rows.take(usable)
    aligned = alignment(part.old)
    marks = replace(marks, variance=aligned.variance, priority=priority(part, aligned))
    return _Block(rows, own, usable, aligned.vectors, marks)


def _settle_block(job: Job, state: State, block: _Block, done: Settling) -> None:
    rows, own, usable = block.rows, block.own, block.usable
    adopted = _adopt(job, state, rows.take(own))
    aligned = 0
    if block.aligned is not None:
        aligned = job.store.write(rows.take(usable), block.aligned, block.marks)
    waiting = _wait(job, state, rows.take(~usable & ~own))
    done.adopted += adopted
    done.aligned += aligned
    done.waiting += waiting
    done.refused += len(rows) - adopted - aligned - waiting
    # What has changed deserves another try; another map is no change of the item.
    job.quarantine.release(rows.ids[~stale(rows, state)])


def _adopt(job: Job, state: State, rows: Rows) -> int:
    """Mark what the application has embedded itself."""
    return job.store.write(rows, rows.new, Marks("new", state.model)) if len(rows) else 0


def _wait(job: Job, state: State, rows: Rows) -> int:
    """Mark rows without an old vector: they are embedded first."""
    if not len(rows):
        return 0
    first = np.full(len(rows), FIRST, dtype=np.float32)
    return job.store.write(rows, None, Marks("waiting", state.model, priority=first))


def adoptable(rows: Rows) -> Mask:
    """(n,) rows without marks to which the application has given a new vector itself."""
    unmarked = np.array([generation is None for generation in rows.generation], dtype=bool)
    if rows.new is None:
        return np.zeros(len(rows), dtype=bool)
    return np.asarray(unmarked & np.isfinite(rows.new).all(axis=1))


def stale(rows: Rows, state: State) -> Mask:
    """(n,) rows that an alignment before the present one has aligned."""
    marks = zip(rows.generation, rows.model, strict=True)
    return np.array([g == "aligned" and m in state.stale for g, m in marks], dtype=bool)
