"""`Sweeper`: looks for what other writers did, and settles it."""

from __future__ import annotations

import numpy as np

from fastfill.gallery import Rows
from fastfill.migrate.ledger.leases import Leases
from fastfill.migrate.ledger.sweep_record import SweepRecord
from fastfill.migrate.priorities import Mask
from fastfill.migrate.run.context import Run
from fastfill.migrate.settling import settle, stale

EVERY = 300.0  # seconds
SHARE = 20  # or so many times what the last one took, if that is longer


class Sweeper:
    """The sweeps of one worker."""

    def __init__(self, run: Run, leases: Leases) -> None:
        self._run, self._leases = run, leases
        self._last, self._took = SweepRecord.last(run.job.store), 0.0

    @property
    def due(self) -> bool:
        """Is it time to look again?"""
        return self._run.job.store.now() - self._last >= max(EVERY, SHARE * self._took)

    def sweep(self, *, final: bool = False) -> int:
        """Settle what others have changed; returns the rows that were found.

        Stale rows are for whoever re-aligns, but for a `final` sweep, when nothing else is left.
        """
        began = self._run.job.store.now()
        state = self._run.follow_state()
        skip = self.claimed_by_others if final else lambda rows: stale(rows, state)
        done = settle(self._run.job, state, changed=True, skip=skip)
        SweepRecord.add(self._run.job.store, began)
        self._last, self._took = began, self._run.job.store.now() - began
        return done.rows + done.refused

    def claimed_by_others(self, rows: Rows) -> Mask:
        """(n,) rows that another worker is about to make new."""
        held = self._leases.held_by_others()
        return np.array([key in held for key in rows.ids], dtype=bool)
