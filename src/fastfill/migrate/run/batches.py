"""Batches: rows that a worker has claimed, read and encoded, ready to be written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastfill.errors import EncoderBusyError
from fastfill.features import Matrix
from fastfill.gallery import Id, Picked, Rows, State
from fastfill.migrate.encoding import Encoder
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.leases import Leases
from fastfill.migrate.run.latency import LatencyProbe, StoreTime
from fastfill.migrate.run.queue import RowQueue
from fastfill.migrate.run.spending import Spending


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
    waited: float = 0.0  # for the encoder, seconds: none while it worked beside a write


class BatchMaker:
    """Claims the next rows for one worker, reads and encodes them."""

    def __init__(
        self,
        job: Job,
        encoder: Encoder,
        leases: Leases,
        probe: LatencyProbe | None,
        spending: Spending,
    ) -> None:
        self._job, self._store, self._spending = job, job.store, spending
        self.spent = False  # does no other row fit into what may be spent?
        self._encoder, self._leases = encoder, leases
        self._store_time = StoreTime(probe)
        self.queue = RowQueue(job.store)
        self.quarantined = job.quarantine.items()  # as they were at the last claim

    def make(self, most: int, state: State, keep: Sequence[Id] = ()) -> Batch | None:
        """A batch of up to `most` rows, others than those to `keep`; None where there are none."""
        picked = self._claim(most, keep)
        if not len(picked):
            return None
        claimed = picked.ids.tolist()
        with self._store_time.busy():
            rows = _still_to_do(self._store.read(picked, old=False), state)
        if len(rows) < len(claimed):  # others work too: what was picked ahead is theirs by now
            self.queue.forget()
        if self._job.stop.is_set():
            return self._nothing(claimed, rows)
        tokens = self._encoder.guess_tokens(rows.inputs.tolist())
        if (fit := self._spending.reserve(tokens)) < len(rows):
            self.queue.forget()  # the others are left for whoever goes on
            self.spent = fit == 0
            rows = rows.take(np.arange(fit))
        return self._encode(claimed, rows, sum(tokens[:fit]))

    def look_at_quarantine(self) -> None:
        """See which items are not tried again."""
        self.quarantined = self._job.quarantine.items()

    def others_are_at_it(self) -> bool:
        """Do other workers hold rows that are not new yet? What the dead hold may be done."""
        if not self._leases.held_by_others():
            return False
        self.look_at_quarantine()
        left = self.queue.next(1, self.quarantined)
        self.queue.forget()  # they are not this worker's to take
        return len(left) > 0

    def _claim(self, most: int, keep: Sequence[Id]) -> Picked:
        """The next rows that no other worker holds; none only where there are none."""
        self.look_at_quarantine()
        while True:
            exclude = self._leases.held_by_others() | set(self.quarantined) | set(keep)
            with self._store_time.busy():
                picked = self.queue.next(most, exclude, skip=self._leases.ahead * most)
            if not len(picked):
                return picked
            ids = picked.ids.tolist()
            if mine := set(self._leases.claim(ids, keep)):
                return picked.take(np.array([key in mine for key in ids]))

    def _encode(self, claimed: list[Id], rows: Rows, guessed: float) -> Batch:
        """Outside any transaction."""
        began = time.monotonic()
        try:
            encoded = self._encoder(rows.ids.tolist(), rows.inputs.tolist())
        except EncoderBusyError:  # it went on until the work was told to stop
            return self._nothing(claimed, rows)
        good, seconds = encoded.good, time.monotonic() - began
        self._spending.spend(encoded.tokens, guessed=guessed, rows=len(rows), seconds=seconds)
        return Batch(
            claimed,
            rows.take(good),
            encoded.vectors if good.all() else encoded.vectors[good],
            encoded.errors,
            encoded=len(rows),
            seconds=seconds,
            store_seconds=self._store_time.take(),
        )

    def _nothing(self, claimed: list[Id], rows: Rows) -> Batch:
        none = rows.take(np.zeros(len(rows), dtype=bool))
        return Batch(claimed, none, none.old, {}, 0, 0.0, self._store_time.take())


def _still_to_do(rows: Rows, state: State) -> Rows:
    """What another worker has done since the rows were picked is left out."""
    right = {"aligned": state.alignments, "waiting": (state.model,)}
    marks = zip(rows.generation, rows.model, strict=True)
    return rows.take(np.array([m in right.get(g, ()) for g, m in marks], dtype=bool))
