"""`RowCounter`: how far the work is: asked of the store now and then, plus own writes since."""

from __future__ import annotations

import time
from dataclasses import replace

from fastfill.migrate.progress import Progress, count
from fastfill.migrate.run.batches import BatchMaker
from fastfill.migrate.run.context import Run

EVERY = 5.0  # seconds between two counts in the store
SHARE = 50  # counting takes at most one part in so many of the time


class RowCounter:
    """The progress of one worker."""

    def __init__(self, run: Run, maker: BatchMaker) -> None:
        self._run, self._maker = run, maker
        self._counted, self._written_then, self._next = Progress(0), 0, 0.0

    def progress(self, reason: str | None = None, *, coming: int = 0) -> Progress:
        """With the rows that are `coming` as if they were written."""
        if time.monotonic() >= self._next:  # counting may read the whole table
            self._count()
        run, counted = self._run, self._counted
        since = run.written - self._written_then + coming
        return replace(
            counted,
            new=min(counted.new + since, counted.total),
            aligned=max(counted.aligned - since, 0),
            failed=len(self._maker.quarantined),
            written=run.written,
            rate=run.written / max(run.seconds, 1e-6),
            cost=run.spending.cost,
            reconnects=run.job.reconnects,
            reason=reason,
        )

    def anew(self) -> Progress:
        """As the store says it is now."""
        self._count()
        self._maker.look_at_quarantine()
        return self.progress()

    def expire(self) -> None:
        """Count anew when asked next."""
        self._next = 0.0

    def _count(self) -> None:
        began = time.monotonic()
        self._counted = count(self._run.job.store, self._run.state, about=True)
        self._written_then = self._run.written
        self._next = began + max(EVERY, SHARE * (time.monotonic() - began))
