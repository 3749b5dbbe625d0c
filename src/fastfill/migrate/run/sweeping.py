"""`Sweeper`: looks for what other writers did, and settles it."""

from __future__ import annotations

import numpy as np

from fastfill.gallery import QuickSweeps, Rows, State
from fastfill.migrate.ledger.leases import Leases
from fastfill.migrate.ledger.sweep_record import SweepRecord
from fastfill.migrate.priorities import Mask
from fastfill.migrate.progress import LONG, duration
from fastfill.migrate.run.context import Run
from fastfill.migrate.settling import Skip, settle, stale

EVERY = 300.0  # seconds
SHARE = 20  # or so many times what the last one took, if that is longer


class Sweeper:
    """The sweeps of one worker."""

    def __init__(self, run: Run, leases: Leases) -> None:
        self._run, self._leases = run, leases
        self._last = SweepRecord.last(run.job.store)
        self._looked = run.job.store.now()

    @property
    def due(self) -> bool:
        """Is it time to look again? All workers count as one: they look for the same."""
        if not self._is_over():
            return False
        self._last = SweepRecord.last(self._run.job.store)
        return self._is_over()

    def _is_over(self) -> bool:
        return self._run.job.store.now() - self._last.at >= self._pause

    @property
    def _pause(self) -> float:
        return max(EVERY, SHARE * self._last.seconds)

    @property
    def _quick(self) -> bool:
        store = self._run.job.store
        return isinstance(store, QuickSweeps) and store.can_sweep_quickly()

    def words(self, *, final: bool = False) -> str | None:
        """What a long sweep is about to take; None for a short one."""
        if self._last.seconds < LONG:
            return None
        again = "for the last time" if final else f"not again before {duration(self._pause)}"
        return f"looking for what others wrote: about {duration(self._last.seconds)}, {again}"

    def sweep(self, *, final: bool = False) -> int:
        """Settle what others have changed; returns the rows that were found.

        Stale rows are for whoever re-aligns, but for a `final` sweep, when nothing else is left.
        """
        began = self._run.job.store.now()
        state = self._run.follow_state()
        skip = self.claimed_by_others if final else _stale_by(state)
        done = settle(self._run.job, state, changed=True, skip=skip)
        self._last = SweepRecord(began, self._run.job.store.now() - began)
        SweepRecord.add(self._run.job.store, began, self._last.seconds)
        return done.rows + done.refused

    def look(self) -> int:
        """Between two sweeps, settle what the store finds quickly; returns the rows."""
        now = self._run.job.store.now()
        if now - self._looked < EVERY or not self._quick:
            return 0
        self._looked = now
        state = self._run.follow_state()
        done = settle(self._run.job, state, changed=True, quick=True, skip=_stale_by(state))
        return done.rows + done.refused

    def claimed_by_others(self, rows: Rows) -> Mask:
        """(n,) rows that another worker is about to make new; it may hold some that are."""
        held = self._leases.held_by_others()
        mine = np.array([key in held for key in rows.ids], dtype=bool)
        return np.asarray(mine & (rows.generation != "new"))


def _stale_by(state: State) -> Skip:
    return lambda rows: stale(rows, state)
