"""Is a stored vector what is made of its row now? Random rows are made again and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastfill.features import Array, Matrix
from fastfill.gallery import Generation, Id, Rows, State, objects
from fastfill.migrate.encoding import Encoder
from fastfill.migrate.job import Job

SAME = 0.999  # cosine: encoders on other hardware differ in the last digits
Remake = Callable[[Rows], Matrix]  # (n, d) vectors, NaN where there is none to compare with


@dataclass(eq=False)
class Draw:
    """Up to `most` random ids of all that it is shown, each with the same chance.

    >>> draw = Draw(2, np.random.default_rng(0))
    >>> draw.show(objects(["a", "b"]))
    >>> draw.show(objects(["c"]))
    >>> len(draw.ids)
    2
    """

    most: int
    rng: np.random.Generator
    ids: Array = field(default_factory=lambda: objects([]))
    _lots: Array = field(default_factory=lambda: np.zeros(0))

    def show(self, ids: Array) -> None:
        """More ids that may be drawn: those of the lowest lots so far are kept."""
        lots = np.concatenate([self._lots, self.rng.random(len(ids))])
        kept = np.argsort(lots, kind="stable")[: self.most]
        self.ids, self._lots = np.concatenate([self.ids, ids])[kept], lots[kept]


@dataclass(frozen=True)
class Comparison:
    """How many rows could be compared, and those whose vector is another one.

    >>> Comparison(8, ("a", "b")).mostly_wrong
    False
    """

    checked: int = 0
    wrong: tuple[Any, ...] = ()

    @property
    def mostly_wrong(self) -> bool:
        """Is it so for half of the rows or more?"""
        return 0 < self.checked <= 2 * len(self.wrong)


def read_drawn(job: Job, ids: Sequence[Id], generation: Generation) -> Rows:
    """The rows that are still of the generation, with their added vectors."""
    rows = job.store.read(list(ids), new=True)
    return rows.take(np.array([each == generation for each in rows.generation], dtype=bool))


def embedded_again(encoder: Encoder) -> Remake:
    """What the encoder makes of the rows that have an input."""
    return lambda rows: encoder(rows.ids.tolist(), rows.inputs.tolist()).vectors


def compare(rows: Rows, remake: Remake) -> Comparison:
    """Make the rows again: their directions must be the same."""
    if rows.new is None or not len(rows):
        return Comparison()
    expected, stored = remake(rows), rows.new
    comparable = np.isfinite(expected).all(axis=1)
    norms = np.linalg.norm(stored, axis=1) * np.linalg.norm(expected, axis=1)
    cosine = np.einsum("ij,ij->i", stored, expected) / np.maximum(norms, 1e-12)
    wrong = comparable & (norms > 0) & ~(cosine >= SAME)
    return Comparison(int(comparable.sum()), tuple(rows.ids[wrong].tolist()))


def edited(job: Job, state: State, ids: set[Id]) -> set[Id]:
    """Those of the rows that others have written since their marks: a look at every row."""
    found: set[Id] = set()
    for rows in job.store.unsettled(state.settled, batch=job.batch, changed=True):
        found |= ids.intersection(rows.ids.tolist())
        if found == ids:
            break
    return found
