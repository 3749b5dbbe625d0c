"""Backfilling: claim, encode outside any transaction, compare-and-set, again until done.

Where nothing holds the work back, the next batch is claimed, read and encoded while one is written.
What else there is to do waits until it is written too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import numpy as np

from fastfill.errors import MigrationError
from fastfill.gallery import Marks, Rows, State
from fastfill.migrate.job import Job
from fastfill.migrate.leases import Leases
from fastfill.migrate.limits import Limits
from fastfill.migrate.notes import CONTROL, last_sweep, note_sweep, read_note, whoami
from fastfill.migrate.patience import Patience
from fastfill.migrate.probe import Probe, StoreTime
from fastfill.migrate.progress import Progress, count
from fastfill.migrate.refit import Refits, forget_unused, learn_again
from fastfill.migrate.room import Room
from fastfill.migrate.settle import Mask, Settling, outdated, settling
from fastfill.migrate.supply import Batch, Supply
from fastfill.migrate.throttle import Reason, Signals, throttle

SWEEP_EVERY = 300.0  # seconds between two looks for what other writers did
BATCH_SECONDS = 20.0  # a batch is what the encoder does in this time, so that little is lost
FIRST_BATCH = 512
PIECE_SECONDS = 0.5  # of writing without a pause, where room is made for queries
FIRST_PIECE = 128
TIDY_EVERY = 20  # batches between two compactions, fewer when queries slow down before
COUNT_EVERY = 5.0  # seconds between two counts in the store; in between, own writes are added
SCAN_LASTS = 120.0  # seconds after which a look for rows begins anew: stores clean old versions
REALIGN_EVERY = 30.0  # seconds between two looks for rows that could not be aligned again
TELL_EVERY = 60.0  # seconds between two calls of a hook for the same kind of waiting


class Run:
    """One worker of a migration: iterate over `steps` to make it work."""

    def __init__(
        self, job: Job, state: State, limits: Limits, name: str = "", probe: Probe | None = None
    ) -> None:
        self._job, self._store, self._limits = job, job.store, limits
        self._state = state
        self._leases = Leases(job.store, f"{whoami()}{name}", seconds=limits.lease)
        self._refits = Refits(job, f"{whoami()}{name}", limits.refit, limits.lease)
        encoder = job.encoder(state)
        encoder.patience = Patience(job)
        self._supply = Supply(job, encoder, self._leases, probe)
        self._probe, self._room = probe, Room()
        self._started = time.monotonic()
        self._swept = last_sweep(job.store)
        self._realign_next = 0.0
        self._told, self._told_at = "", 0.0
        self._untidy = 0  # batches since the last compaction
        self._tidy_after = 1  # batches after which slow queries are a reason for the next one
        self._spent, self._encoded = StoreTime(probe), 0.0  # seconds since the last pause
        self._piece = FIRST_PIECE
        self._tokens = 0.0
        self._rate: float | None = limits.rate
        self._rate_since, self._rate_rows = self._started, 0
        self._most = job.batch
        self._batch = limits.batch or min(FIRST_BATCH, self._most)
        self._counted, self._counted_rows, self._count_next = Progress(0), 0, 0.0
        self.written = 0
        self.outcome = ""

    def steps(self) -> Iterator[Progress]:
        """Work until nothing is left, a limit is reached or someone says stop."""
        try:
            while not (ending := self._ending()):
                reason = self._wait()
                if reason is not None:
                    yield self._progress(reason.text)
                    yield from self._finish_begun()
                    continue
                self._keep_up()
                if self._supply.begun and (self._sweep_due() or self._teaching_due()):
                    yield from self._finish_begun()
                    continue
                self._sweep()
                yield from self._teach()
                ahead = self._supply.begun
                if not ahead:
                    self._supply.begin(self._size(), self._state)
                batch = self._take()
                if batch is not None:
                    self._look_ahead(batch)
                    yield from self._one_batch(batch)
                elif not ahead and self._finished():
                    ending = "done"
                    break
            yield from self._finish_begun()
            self.outcome = ending
        finally:
            self._supply.close()
            self._refits.release()
        yield self._progress()

    # --- one batch -----------------------------------------------------------------------------

    def _size(self, coming: int = 0) -> int:
        """Rows of the next batch, after those that are `coming`: it ends where a refit is due."""
        until_refit = self._refits.room(self._progress(coming=coming), self._state)
        return min(self._batch, self._rows_left() - coming, until_refit or 2**31)

    def _look_ahead(self, batch: Batch) -> None:
        """Begin the next batch while this one is written, where the work may go on at full speed.

        Not before the map is learned again or the store compacted, which change the order and the
        places of rows; and not where less than all is wanted, lest more be embedded than that.
        """
        limits, coming = self._limits, len(batch.claimed)
        held_back = (self._probe, self._rate, limits.cost, limits.enough)
        if any(reason is not None for reason in held_back):
            return
        if self._untidy + 1 >= TIDY_EVERY or self._teaching_due(coming):
            return
        if self._size(coming) > 0 and not self._job.stop.is_set():
            self._supply.begin(self._size(coming), self._state, beside=batch.claimed)

    def _take(self) -> Batch | None:
        """The batch that was begun; what it took counts from now on."""
        batch = self._supply.take()
        if batch is not None:
            self._spent.seconds += batch.store_seconds
            self._tokens += batch.tokens
        return batch

    def _finish_begun(self) -> Iterator[Progress]:
        """Write what was encoded ahead."""
        batch = self._take()
        if batch is not None:
            yield from self._one_batch(batch)

    def _one_batch(self, batch: Batch) -> Iterator[Progress]:
        yield from self._write(batch)
        if batch.errors:
            self._job.failures.add(batch.errors)
            self._supply.aside = self._job.failures.set_aside()
        self._tidy()
        self._adapt(batch.encoded, batch.seconds)
        yield self._progress()

    def _write(self, batch: Batch) -> Iterator[Progress]:
        """Where room is made for queries, in pieces with pauses between them."""
        rows, vectors = batch.rows, batch.vectors
        marks, first = Marks("new", self._state.model), 0
        while first < len(rows):
            size = min(self._piece, len(rows) - first) if self._probe else len(rows)
            piece, began = np.arange(first, first + size), time.monotonic()
            whole = size == len(rows)
            with self._spent.busy():
                self.written += self._store.write(
                    rows if whole else rows.take(piece), vectors if whole else vectors[piece], marks
                )
            self._encoded += batch.waited * size / len(rows)
            speed = size / max(time.monotonic() - began, 1e-3)
            self._piece = int(np.clip(PIECE_SECONDS * speed, 32, 16 * self._piece))
            first += size
            if first < len(rows) and (reason := self._rest(self._signals())):
                yield self._progress(reason.text)

    def _tidy(self) -> None:
        """Compact, and bring indexes up to date with the rows that were written."""
        self._untidy += 1
        slow = self._probe is not None and self._probe.slow()
        if self._untidy < (self._tidy_after if slow else TIDY_EVERY):
            return
        with self._spent.busy():
            self._store.optimize()
        self._supply.forget()  # rows may lie elsewhere now
        self._untidy = 0
        if slow and self._probe is not None:  # where it was no help it is not tried as often
            helped = not self._probe.slow()
            self._tidy_after = 1 if helped else min(2 * self._tidy_after, TIDY_EVERY)

    def _adapt(self, rows: int, seconds: float) -> None:
        if self._limits.batch is None and rows:
            wanted = BATCH_SECONDS * rows / max(seconds, 1e-3)
            self._batch = int(np.clip(wanted, 32, min(self._most, 16 * self._batch)))

    # --- between batches -----------------------------------------------------------------------

    def _rows_left(self) -> int:
        limit = self._limits.rows
        return 2**31 if limit is None else max(0, limit - self.written)

    def _ending(self) -> str:
        if self._job.stop.is_set():
            return "stopped"
        if self._rows_left() == 0:
            return "budget reached"
        if self._limits.cost is not None and self._cost() >= self._limits.cost:
            return "cost reached"
        if self._limits.enough is not None:
            return self._limits.enough(self._progress()) or ""
        return ""

    def _cost(self) -> float:
        hours = (time.monotonic() - self._started) / 3_600
        limits = self._limits
        return limits.price_per_1k_tokens * self._tokens / 1_000 + limits.price_per_hour * hours

    def _wait(self, limited: bool = True) -> Reason | None:
        """Wait where there is a reason to; only embedding is `limited` in its rate."""
        control = read_note(self._store, CONTROL)
        rate = control.get("rate", self._limits.rate)
        if rate != self._rate:  # changed while running: count from now
            self._rate, self._rate_since, self._rate_rows = rate, time.monotonic(), self.written
        signals = replace(
            self._signals(),
            paused=bool(control.get("paused")),
            rate=rate if limited else None,
            rows=self.written - self._rate_rows,
            elapsed=time.monotonic() - self._rate_since,
            between=self._limits.between,
        )
        return self._rest(signals)

    def _signals(self) -> Signals:
        """How queries fare, and what the store has done for this run since the last pause."""
        latency = self._probe.latency() if self._probe else None
        self._room.look(latency)
        signals = Signals(
            now=datetime.now(),
            latency=latency and latency.now,
            resting_latency=latency and latency.resting,
            share=self._room.share,
            worked=self._spent.take(),
            encoded=self._encoded,
        )
        self._encoded = 0.0
        return signals

    def _rest(self, signals: Signals) -> Reason | None:
        reason = throttle(signals)
        if reason is not None:
            self._tell("paused" if signals.paused else "throttled", reason)
            self._job.stop.wait(reason.seconds)
        return reason

    def _tell(self, event: str, reason: Reason) -> None:
        """Waiting goes on for long: hooks hear of it when it begins, and now and then."""
        now = time.monotonic()
        if event != self._told or now - self._told_at > TELL_EVERY:
            self._told, self._told_at = event, now
            self._job.tell(event, {"reason": reason.text, "seconds": reason.seconds})

    def _keep_up(self) -> None:
        """Go on with what others have changed; checks that the migration is still ours."""
        current = self._job.state
        if current.model != self._state.model or current.phase != "started":
            raise MigrationError(
                f"{self._store.name}: the migration is {current.phase} and no longer at the model "
                "of this run, so it ends here. See: fastfill status."
            )
        self._state = current

    def _sweep(self, now: bool = False) -> int:
        """Settle what other writers have changed."""
        began = time.time()
        if not (now or self._sweep_due()):
            return 0
        self._keep_up()
        state, done = self._state, Settling()
        # Rows of an earlier map are for whoever re-aligns, until nothing else is left.
        skip = self._claimed if now else lambda rows: outdated(rows, state)
        for step in settling(self._job, state, changed=True, skip=skip):
            done = step
        note_sweep(self._store, began)
        self._swept = began
        self._supply.forget()
        return done.rows + done.refused

    def _sweep_due(self) -> bool:
        return time.time() - self._swept >= SWEEP_EVERY

    def _claimed(self, rows: Rows) -> Mask:
        """(n,) rows that another worker is about to make new."""
        held = self._leases.held_by_others()
        return np.array([key in held for key in rows.ids], dtype=bool)

    # --- learning the map again ----------------------------------------------------------------

    def _teach(self) -> Iterator[Progress]:
        """Where it is due, learn the map again; align what an earlier one has aligned."""
        if not self._teaching_due() or not self._refits.claim():
            return
        progress = self._progress()
        try:
            if self._refits.due(progress, self._state):
                doing = f"learning the map again ({self._refits.number(progress)})"
                yield replace(progress, doing=doing)
                self._state = learn_again(self._job, self._state, progress)
            if self._state.earlier:
                yield from self._realign()
        finally:
            self._refits.release()

    def _teaching_due(self, coming: int = 0) -> bool:
        """Will there be something to learn or to align again, after the rows that are `coming`?"""
        progress = self._progress(coming=coming)
        behind = progress.earlier > 0 and time.monotonic() >= self._realign_next
        return behind or self._refits.due(progress, self._state)

    def _realign(self) -> Iterator[Progress]:
        """Align the rows of earlier maps again, making room for queries, until stopped or done."""
        total, began = self._progress(exactly=True).earlier, time.monotonic()
        self._count_next, self._realign_next = 0.0, 0.0
        self._supply.forget()
        most = max(self._piece, FIRST_BATCH) if self._probe else None
        steps = settling(self._job, self._state, changed=False, skip=self._claimed, most=most)
        while True:
            with self._spent.busy():
                step = next(steps, None)
            if step is None:
                break
            doing = f"re-aligning ({min(step.aligned, total):,} of {total:,})"
            yield replace(self._progress(), doing=doing)
            while (reason := self._wait(limited=False)) and not self._job.stop.is_set():
                yield replace(self._progress(reason.text), doing=doing)
            # After a long wait look again: another worker may do it, the store be tidied up.
            if not self._refits.claim() or time.monotonic() - began > SCAN_LASTS:
                return
        self._state = forget_unused(self._job)
        self._realign_next = time.monotonic() + REALIGN_EVERY

    def _finished(self) -> bool:
        """Nothing to claim: is it because all is done, or because others are at it?"""
        self._leases.release()  # the last batch is written: let no one wait for it
        if self._sweep(now=True):
            return False
        if self._leases.held_by_others():
            self._job.stop.wait(0.5)
            return False
        return True

    def _progress(
        self, reason: str | None = None, *, coming: int = 0, exactly: bool = False
    ) -> Progress:
        """With the rows that are `coming` as if they were written."""
        now = time.monotonic()
        if exactly or now >= self._count_next:  # counting reads the whole table: not for each batch
            self._counted, self._counted_rows = count(self._store, self._state), self.written
            spent = time.monotonic() - now
            self._count_next = now + max(COUNT_EVERY, 50 * spent)
        if exactly:
            self._supply.aside = self._job.failures.set_aside()
        since = self.written - self._counted_rows + coming
        counted = self._counted
        return replace(
            counted,
            new=min(counted.new + since, counted.total),
            aligned=max(counted.aligned - since, 0),
            failed=len(self._supply.aside),
            written=self.written,
            rate=self.written / max(now - self._started, 1e-6),
            cost=self._cost(),
            reason=reason,
        )
