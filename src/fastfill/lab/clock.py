"""The stages of a run: named when they begin, timed when they end, stopped when time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastfill.errors import FastFillError

Begun = Callable[[str], None]  # what comes next
Ended = Callable[[str, float], None]  # what it was, and its seconds


class OutOfTimeError(FastFillError):
    """The time given is over; what was trained so far is in the checkpoint."""


class StageClock:
    """Tells what a run is doing and how long each stage took.

    >>> clock = StageClock(ended=lambda name, seconds: print(f"{name}: {seconds:.0f} s"))
    >>> with clock.stage("map l2"):
    ...     pass
    map l2: 0 s
    """

    def __init__(
        self,
        minutes: float | None = None,
        *,
        begun: Begun | None = None,
        ended: Ended | None = None,
    ) -> None:
        """`minutes`: when to stop, so that another call can go on."""
        self.until = None if minutes is None else time.monotonic() + 60 * minutes
        self.took: dict[str, float] = {}  # seconds of the stages that have ended, by their names
        self._begun, self._ended = begun, ended

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Something that takes time; refused with `OutOfTimeError` when there is none left."""
        if self._begun is not None:
            self._begun(name)
        if self.until is not None and time.monotonic() > self.until:
            raise OutOfTimeError("The time given is over.")
        began = time.monotonic()
        yield
        self.took[name] = self.took.get(name, 0.0) + time.monotonic() - began
        if self._ended is not None:
            self._ended(name, self.took[name])
