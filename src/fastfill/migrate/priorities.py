"""Priorities: the policy of a migration as a number for each aligned row, highest first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Aligned, Alignment
from fastfill.gallery import Marks, Rows, State
from fastfill.migrate.job import Job
from fastfill.order import PolicyInput, arrange

FIRST = np.float32(3.4e38)  # of rows without any vector: before all others
PAIRS_KEPT = 4_096  # old vectors of pairs that policies may look at
WITHOUT_PAIRS = ("sigma", "mixed", "random")  # policies that look at no pairs

Mask = NDArray[np.bool_]


class Priorities:
    """The policy of the state, applied batch by batch."""

    def __init__(self, job: Job, state: State, alignment: Alignment) -> None:
        self._policy = state.policy
        self._distance = state.distance
        self._head = alignment.head
        needs_pairs = state.policy not in WITHOUT_PAIRS
        self._pairs_old = _some_pairs(job, state) if needs_pairs else None
        self._seed = 0

    def __call__(self, rows: Rows, aligned: Aligned) -> NDArray[np.float32]:
        self._seed += 1  # another batch, other random numbers
        inputs = PolicyInput(
            aligned,
            old=rows.old,
            pairs_old=self._pairs_old,
            head=self._head,
            distance=self._distance,
            seed=self._seed,
        )
        return np.asarray(arrange(self._policy, inputs).scores, dtype=np.float32)


def _some_pairs(job: Job, state: State) -> NDArray[np.float32] | None:
    parts: list[NDArray[np.float32]] = []
    for rows in job.store.scan("new", batch=1_024, new=False):
        parts.append(rows.old[alignable(rows, state)])
        if sum(map(len, parts)) >= PAIRS_KEPT:
            break
    return np.concatenate(parts)[:PAIRS_KEPT] if parts else None


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


def alignable(rows: Rows, state: State) -> Mask:
    """(n,) rows whose old vector can be mapped."""
    if state.distance != "cosine":
        return rows.usable
    return np.asarray(rows.usable & rows.old.any(axis=1))  # a zero vector has no direction
