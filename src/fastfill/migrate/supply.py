"""`Supply`: rows that are claimed, read and encoded, the next batch while one is written.

It works in a thread of its own, on one batch at a time. What has reached the encoder is finished,
whatever happens: its owner writes it or, when that is not possible any more, lets go of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from fastfill.errors import EncoderBusyError
from fastfill.features import Matrix
from fastfill.gallery import Id, Picked, Rows, State, objects
from fastfill.migrate.encoding import Encoder
from fastfill.migrate.job import Job
from fastfill.migrate.leases import Leases
from fastfill.migrate.line import Line
from fastfill.migrate.probe import Probe, StoreTime

T = TypeVar("T")
CHARACTERS_OF_A_TOKEN = 4


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows to be written with their new vectors, and what became of the others."""

    claimed: list[Id]
    rows: Rows  # that the encoder has embedded
    vectors: Matrix  # (n, d), theirs
    errors: dict[Id, str]
    encoded: int  # rows that the encoder was given
    seconds: float  # that it took
    store_seconds: float  # that the store was kept busy
    tokens: float
    waited: float = 0.0  # for the encoder, seconds: none while it worked beside a write


class Supply:
    """The next batches of one worker: `begin` one, `take` it when it is wanted."""

    def __init__(self, job: Job, encoder: Encoder, leases: Leases, probe: Probe | None) -> None:
        self._job, self._store = job, job.store
        self._encoder, self._leases = encoder, leases
        self._spent = StoreTime(probe)
        self._line = Line(partial(job.store.pick, "aligned"))
        self._thread = ThreadPoolExecutor(1, "fastfill-supply")
        self._coming: Future[Batch | None] | None = None
        self.aside = job.failures.set_aside()  # as it was at the last claim

    @property
    def begun(self) -> bool:
        """Is a batch on its way?"""
        return self._coming is not None

    def begin(self, most: int, state: State, beside: Sequence[Id] = ()) -> None:
        """Claim, read and encode up to `most` rows, others than those that are held `beside`."""
        self._coming = self._thread.submit(self._make, most, state, list(beside))

    def take(self) -> Batch | None:
        """The batch that was begun, when it is ready; None where there was no row to claim."""
        if self._coming is None:
            return None
        coming, self._coming = self._coming, None
        began = time.monotonic()
        batch = coming.result()
        waited = time.monotonic() - began
        return None if batch is None else replace(batch, waited=min(waited, batch.seconds))

    def forget(self) -> None:
        """Pick anew: priorities or places of rows have changed. Not while a batch is on its way."""
        self._line.forget()

    def close(self) -> None:
        """Wait for what has begun, and hold nothing any more."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._leases.release()

    # --- in the thread -------------------------------------------------------------------------

    def _make(self, most: int, state: State, beside: list[Id]) -> Batch | None:
        picked = self._claim(most, beside)
        if not len(picked):
            return None
        claimed = picked.ids.tolist()
        with self._spent.busy():
            rows = _still_to_do(self._store.read(picked, old=False), state)
        if len(rows) < len(claimed):  # others work too: what was picked ahead is theirs by now
            self._line.forget()
        if self._job.stop.is_set():
            return self._nothing(claimed, rows)
        return self._encode(claimed, rows)

    def _claim(self, most: int, beside: list[Id]) -> Picked:
        self.aside = self._job.failures.set_aside()
        others = self._leases.held_by_others()
        exclude = others | set(self.aside) | set(beside)
        for pick in (
            partial(self._store.pick, "waiting"),
            partial(self._line.next, shared=bool(others)),
        ):
            with self._spent.busy():
                picked = pick(most, exclude)
            mine = set(self._leases.claim(picked.ids.tolist(), beside)) if len(picked) else set()
            if mine:
                return picked.take(np.array([key in mine for key in picked.ids], dtype=bool))
        return Picked(objects([]))

    def _encode(self, claimed: list[Id], rows: Rows) -> Batch:
        """Outside any transaction."""
        began = time.monotonic()
        try:
            encoded = self._encoder(rows.ids.tolist(), rows.inputs.tolist())
        except EncoderBusyError:  # it went on until the work was told to stop
            return self._nothing(claimed, rows)
        good = encoded.good
        return Batch(
            claimed,
            rows.take(good),
            encoded.vectors if good.all() else encoded.vectors[good],
            encoded.errors,
            encoded=len(rows),
            seconds=time.monotonic() - began,
            store_seconds=self._spent.take(),
            tokens=sum(map(len, filter(None, rows.inputs))) / CHARACTERS_OF_A_TOKEN,
        )

    def _nothing(self, claimed: list[Id], rows: Rows) -> Batch:
        none = rows.take(np.zeros(len(rows), dtype=bool))
        return Batch(claimed, none, none.old, {}, 0, 0.0, self._spent.take(), 0.0)


def _still_to_do(rows: Rows, state: State) -> Rows:
    """What another worker has done since the rows were picked is left out."""
    right = {"aligned": state.alignments, "waiting": (state.model,)}
    pairs = zip(rows.generation, rows.model, strict=True)
    return rows.take(np.array([m in right.get(g, ()) for g, m in pairs], dtype=bool))


def read_ahead(blocks: Iterator[T]) -> Iterator[T]:
    """The same, each next one made in a thread while the one before is worked on.

    >>> [*read_ahead(iter("abc"))]
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1, "fastfill-read-ahead") as thread:
        coming = thread.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = thread.submit(next, blocks, None)
            yield block
