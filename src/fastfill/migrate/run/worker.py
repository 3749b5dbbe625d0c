"""`Worker`: claim, encode outside any transaction, compare-and-set, again until done.

Where nothing holds the work back, the next batch is claimed, read and encoded while one is written.
What else there is to do waits until it is written too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import numpy as np

from fastfill.gallery import State
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.audit import whoami
from fastfill.migrate.ledger.leases import Leases
from fastfill.migrate.options import BackfillOptions
from fastfill.migrate.progress import Progress
from fastfill.migrate.quality.watch import QualityWatch
from fastfill.migrate.run.batches import Batch, BatchMaker
from fastfill.migrate.run.compaction import Compactor
from fastfill.migrate.run.context import Run
from fastfill.migrate.run.counting import RowCounter
from fastfill.migrate.run.latency import LatencyProbe
from fastfill.migrate.run.pacing import Pacer
from fastfill.migrate.run.prefetch import Prefetcher
from fastfill.migrate.run.refitting import Refitter
from fastfill.migrate.run.spending import Spending
from fastfill.migrate.run.sweeping import Sweeper
from fastfill.migrate.run.writing import BatchWriter

BATCH_SECONDS = 20.0  # a batch is what the encoder does in this time, so that little is lost
FIRST_BATCH, LEAST_BATCH = 512, 32  # rows
ENDLESS = 2**31  # rows
LOOK_AGAIN = 0.5  # seconds, where others hold what is left
LOOK = 2.0  # seconds between two steps while a batch is made
WAITING_FOR_OTHERS = "for rows that another worker holds, at most {:.0f} s more if it is gone"


class Worker:
    """One worker of a migration: iterate over `steps` to make it work."""

    def __init__(
        self,
        job: Job,
        state: State,
        options: BackfillOptions,
        *,
        rows: int | None = None,
        number: int = 0,
        probe: LatencyProbe | None = None,
        watch: QualityWatch | None = None,
        spending: Spending | None = None,
    ) -> None:
        """`rows` are those that this one may embed; `watch` says when quality is enough."""
        self._job, self._rows, self._watch = job, rows, watch
        spending = spending or Spending(options.prices, options.cost)
        self.run = Run(job, state, options, f"{whoami()}/{number}", probe, spending)
        self._leases = Leases(job.store, self.run.owner, seconds=options.lease)
        self._maker = BatchMaker(job, job.encoder(state, retry=True), self._leases, probe, spending)
        self._prefetcher = Prefetcher()
        self._counter = RowCounter(self.run, self._maker)
        self._pacer = Pacer(self.run)
        self._writer = BatchWriter(self.run, self._pacer)
        self._compactor = Compactor(self.run)
        self._sweeper = Sweeper(self.run, self._leases)
        self._refitter = Refitter(
            self.run, self._counter, self._pacer, self._sweeper, self._maker.queue
        )
        self._batch = options.batch or min(FIRST_BATCH, job.batch)
        self.outcome = ""

    def steps(self) -> Iterator[Progress]:
        """Work until nothing is left, a limit is reached or someone says stop."""
        try:
            while not (ending := self._ending()):
                reason = self._pacer.wait()
                if reason is not None:
                    yield self._counter.progress(reason.text)
                    yield from self._write_prefetched()
                    continue
                self.run.follow_state()
                if self._prefetcher.begun and (self._sweeper.due or self._refitter.due()):
                    yield from self._write_prefetched()
                    continue
                yield from self._keep_up()
                if (yield from self._next_batch()):
                    ending = "done"
                    break
            yield from self._write_prefetched()
            self.outcome = ending
        finally:
            self._prefetcher.close()
            self._leases.release()
            self._refitter.close()
        yield self._counter.progress()

    # --- one batch -----------------------------------------------------------------------------

    def _next_batch(self) -> Generator[Progress, None, bool]:
        """Make and write one batch; returns True when nothing is left to do."""
        ahead = self._prefetcher.begun
        if not ahead:
            self._begin(self._size())
        batch = yield from self._take()
        if batch is not None:
            self._prefetch(batch)
            yield from self._write(batch)
        return batch is None and not ahead and (yield from self._finished())

    def _begin(self, most: int, keep: Batch | None = None) -> None:
        state, held = self.run.state, [] if keep is None else list(keep.claimed)
        self._prefetcher.begin(lambda: self._maker.make(most, state, held))

    def _take(self) -> Generator[Progress, None, Batch | None]:
        """The batch that was begun, with steps until it is there; what it took counts then."""
        reason = None
        while not self._prefetcher.ready(LOOK):
            reason = self._job.waits.reason()
            yield self._counter.progress(reason)
        if reason is not None:
            yield self._counter.progress()  # it goes on
        batch = self._prefetcher.take()
        if batch is not None:
            self.run.store_time.seconds += batch.store_seconds
        return batch

    def _prefetch(self, batch: Batch) -> None:
        """Begin the next batch while this one is written, where the work may go on at full speed.

        Not before the map is learned again or the store compacted, which change the order and the
        places of rows; and not where less than all is wanted: more would be embedded than that.
        """
        run, coming = self.run, len(batch.claimed)
        limits = (run.probe, self._pacer.rate, run.options.cost, self._watch)
        if any(limit is not None for limit in limits):
            return
        if self._compactor.due_next or self._refitter.due(coming):
            return
        if self._size(coming) > 0 and not self._job.stop.is_set():
            self._begin(self._size(coming), keep=batch)

    def _write_prefetched(self) -> Iterator[Progress]:
        batch = yield from self._take()
        if batch is not None:
            yield from self._write(batch)

    def _write(self, batch: Batch) -> Iterator[Progress]:
        for reason in self._writer.write(batch):
            yield self._counter.progress(reason.text)
        if batch.errors:
            self._job.quarantine.add(batch.errors)
            self._maker.look_at_quarantine()
        if self._compactor.after_batch():
            self._maker.queue.forget_places()
        self._adapt(batch)
        yield self._counter.progress()

    # --- how much, how long --------------------------------------------------------------------

    def _size(self, coming: int = 0) -> int:
        """Rows of the next batch, after those that are `coming`: it ends where a refit is due."""
        until_refit = self._refitter.rows_until_due(self._counter.progress(coming=coming))
        return min(self._batch, self._rows_left() - coming, until_refit or ENDLESS)

    def _adapt(self, batch: Batch) -> None:
        if self.run.options.batch is None and batch.encoded:
            wanted = BATCH_SECONDS * batch.encoded / max(batch.seconds, 1e-3)
            most = min(self._job.batch, 16 * self._batch)
            self._batch = int(np.clip(wanted, LEAST_BATCH, most))

    def _rows_left(self) -> int:
        return ENDLESS if self._rows is None else max(0, self._rows - self.run.written)

    def _ending(self) -> str:
        """Why to end, if there is a reason."""
        most = self.run.options.cost
        if self._job.stop.is_set():
            return "stopped"
        if self._rows_left() == 0:
            return "budget reached"
        if self._maker.spent or (most is not None and self.run.spending.cost >= most):
            return "cost reached"
        if self._watch is not None:
            return self._watch.enough(self._counter.progress()) or ""
        return ""

    # --- between batches -----------------------------------------------------------------------

    def _keep_up(self) -> Iterator[Progress]:
        """Sweep and refit where that is due."""
        if self._sweeper.due:
            yield from self._announce(self._sweeper.words())
            self._sweeper.sweep()
            self._maker.queue.forget()
        elif self._sweeper.look():
            self._maker.queue.forget()
        yield from self._refitter.steps()

    def _announce(self, words: str | None) -> Iterator[Progress]:
        """Say what will take long before it is begun."""
        if words is not None:
            yield replace(self._counter.progress(), doing=words)

    def _finished(self) -> Generator[Progress, None, bool]:
        """Nothing to claim: is it because all is done, or because others are at it?"""
        self._leases.release()  # the last batch is written: no one needs to wait for it
        self._maker.queue.forget()
        if self._maker.others_are_at_it():
            yield self._counter.progress(WAITING_FOR_OTHERS.format(self._leases.others_end_in()))
            self._job.stop.wait(LOOK_AGAIN)
            return False
        yield from self._announce(self._sweeper.words(final=True))
        return not self._sweeper.sweep(final=True) and not self._maker.others_are_at_it()
