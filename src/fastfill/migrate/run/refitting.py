"""`Refitter`: when the map is learned again, which worker does it, and what follows from it.

Every backfilled row is one more pair. At each step of the gallery's rows the map is learned again
(see `map_trial`). Where a better one is found, the rows that are still aligned are stale: they
serve as they are until they are aligned again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

from fastfill.gallery import State
from fastfill.migrate.learning import forget_unused
from fastfill.migrate.ledger.leases import REFIT, Leases
from fastfill.migrate.progress import Progress
from fastfill.migrate.run.context import Run
from fastfill.migrate.run.counting import RowCounter
from fastfill.migrate.run.map_trial import learn_again
from fastfill.migrate.run.pacing import Pacer
from fastfill.migrate.run.queue import RowQueue
from fastfill.migrate.run.sweeping import Sweeper
from fastfill.migrate.serving.choosing import choose_again, learn_fusion
from fastfill.migrate.settling import settle_steps

PIECE = 512  # rows aligned again without a pause, where queries must stay quick
SCAN_LASTS = 120.0  # seconds after which a look for rows begins anew: stores clean old versions
BUSY = 10  # measuring how to serve takes at most one part in so many of the time
REALIGN_EVERY = 30.0  # seconds between two looks for rows that could not be aligned again


class Refitter:
    """The refits of one worker."""

    def __init__(
        self, run: Run, counter: RowCounter, pacer: Pacer, sweeper: Sweeper, queue: RowQueue
    ) -> None:
        self._run, self._counter, self._pacer = run, counter, pacer
        self._sweeper, self._queue = sweeper, queue
        self._step = run.options.refit
        self._lease = Leases(run.job.store, run.owner, seconds=run.options.lease, kind=REFIT)
        self._realign_next = 0.0
        self._measure_next = 0.0

    def rows_until_due(self, progress: Progress) -> int | None:
        """Rows that a batch may have so that it ends where a refit is due; None: any number."""
        if self._step is None:
            return None
        left = rows_until_refit(progress, self._run.state, self._step)
        return left if left > 0 else None

    def due(self, coming: int = 0) -> bool:
        """Is there something to learn or to align again, after the rows that are `coming`?"""
        progress = self._counter.progress(coming=coming)
        behind = progress.stale > 0 and time.monotonic() >= self._realign_next
        return behind or self._refit_due(progress)

    def _refit_due(self, progress: Progress) -> bool:
        if self._step is None or progress.aligned == 0:
            return False
        return rows_until_refit(progress, self._run.state, self._step) <= 0

    def steps(self) -> Iterator[Progress]:
        """Where it is due and no other worker does it: learn the map again, align again."""
        if not self.due() or not self._claim():
            return
        run = self._run
        try:
            run.follow_state()  # another may have learned while this one waited for the lease
            progress = self._counter.progress()
            refit = self._refit_due(progress)
            if refit:
                yield replace(progress, doing=f"learning the map again ({self._number(progress)})")
                run.state = learn_again(run.job, run.state, progress.new)
            if run.state.stale:
                yield from self._realign()
            if refit and run.state.serving != "aligned":
                yield replace(progress, doing="measuring which way to serve is best")
                self._renew_serving()
        finally:
            self._lease.release()

    def _renew_serving(self) -> None:
        """Fit the fusion to the map, and choose again how to serve where that may take its time."""
        run, began = self._run, time.monotonic()
        if began < self._measure_next:
            run.state = learn_fusion(run.job, run.state)
            return
        run.state = choose_again(run.job, run.state)
        self._measure_next = time.monotonic() + BUSY * (time.monotonic() - began)

    def close(self) -> None:
        """Let others do it."""
        self._lease.release()

    def _claim(self) -> bool:
        """Make this worker the one that learns and re-aligns, or stay so; False: another is."""
        return bool(self._lease.claim(["map"], keep=["map"]))

    def _number(self, progress: Progress) -> str:
        step = self._step or 1.0
        return f"{math.floor(progress.fraction / step + 1e-9)} of {round(1 / step)}"

    def _realign(self) -> Iterator[Progress]:
        """Align stale rows again until stopped or done, with pauses for queries."""
        run, began = self._run, time.monotonic()
        total = self._counter.anew().stale
        self._counter.expire()
        self._realign_next = 0.0
        self._queue.forget()
        steps = settle_steps(
            run.job,
            run.state,
            changed=False,
            skip=self._sweeper.claimed_by_others,
            most=PIECE if run.probe else None,
        )
        while True:
            with run.store_time.busy():
                step = next(steps, None)
            if step is None:
                break
            doing = f"re-aligning ({min(step.aligned, total):,} of {total:,})"
            yield replace(self._counter.progress(), doing=doing)
            while (reason := self._pacer.wait(limited=False)) and not run.job.stop.is_set():
                yield replace(self._counter.progress(reason.text), doing=doing)
            # After a long wait look again: another worker may do it, the store be compacted.
            if not self._claim() or time.monotonic() - began > SCAN_LASTS:
                return
        run.state = forget_unused(run.job)
        self._realign_next = time.monotonic() + REALIGN_EVERY


def rows_until_refit(progress: Progress, state: State, step: float) -> int:
    """Rows to embed until the next refit; 0 or less when it is due.

    >>> from fastfill.gallery import Columns
    >>> columns = Columns("id", "text", "vector")
    >>> state = State("started", columns, "l2", "m:f", "1f", 8, learned_rows=7)
    >>> rows_until_refit(Progress(total=100, new=7), state, 0.05)
    3
    """
    rows = max(step * progress.total, 1.0)
    boundary = (math.floor(state.learned_rows / rows + 1e-9) + 1) * rows
    return math.ceil(boundary - 1e-6) - progress.new
