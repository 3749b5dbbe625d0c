"""`BatchWriter`: writes a batch, in pieces with pauses where queries must stay quick."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from fastfill.gallery import Marks
from fastfill.migrate.run.batches import Batch
from fastfill.migrate.run.context import Run
from fastfill.migrate.run.pacing import Pacer
from fastfill.migrate.run.throttle import Reason

PIECE_SECONDS = 0.5  # of writing without a pause
FIRST_PIECE, LEAST_PIECE = 128, 32  # rows


class BatchWriter:
    """The writes of one worker."""

    def __init__(self, run: Run, pacer: Pacer) -> None:
        self._run, self._pacer = run, pacer
        self.piece = FIRST_PIECE  # rows that are written in about half a second

    def write(self, batch: Batch) -> Iterator[Reason]:
        """Write all of it; yields why it waits, after it has."""
        rows, first = len(batch.rows), 0
        while first < rows:
            size = min(self.piece, rows - first) if self._run.probe else rows
            began = time.monotonic()
            self._write(batch, first, size)
            self._pacer.add_encoding(batch.waited * size / rows)
            speed = size / max(time.monotonic() - began, 1e-3)
            self.piece = int(np.clip(PIECE_SECONDS * speed, LEAST_PIECE, 16 * self.piece))
            first += size
            if first < rows and (reason := self._pacer.pause()):
                yield reason

    def _write(self, batch: Batch, first: int, size: int) -> None:
        run, piece = self._run, np.arange(first, first + size)
        whole = size == len(batch.rows)
        with run.store_time.busy():
            run.written += run.job.store.write(
                batch.rows if whole else batch.rows.take(piece),
                batch.vectors if whole else batch.vectors[piece],
                Marks("new", run.state.model),
            )
