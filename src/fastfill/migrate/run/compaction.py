"""`Compactor`: compacts the store now and then, sooner when queries have become slow."""

from __future__ import annotations

from fastfill.migrate.run.context import Run

EVERY = 20  # batches between two compactions


class Compactor:
    """The compactions of one worker."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._batches = 0  # since the last one
        self._when_slow = 1  # batches after which slow queries are a reason for the next one

    @property
    def due_next(self) -> bool:
        """Will it be due after the next batch?"""
        return self._batches + 1 >= EVERY

    def after_batch(self) -> bool:
        """Compact if it is due, bring indexes up to date; was it done?"""
        self._batches += 1
        probe = self._run.probe
        slow = probe is not None and probe.slow()
        if self._batches < (self._when_slow if slow else EVERY):
            return False
        with self._run.store_time.busy():
            self._run.job.store.optimize()
        self._batches = 0
        if slow and probe is not None:  # where it was no help it is not tried as often
            helped = not probe.slow()
            self._when_slow = 1 if helped else min(2 * self._when_slow, EVERY)
        return True
