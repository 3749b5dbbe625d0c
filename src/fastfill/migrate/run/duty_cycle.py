"""`DutyCycle`: how much of the time the work may keep the store busy, so that queries stay quick.

The share falls when queries are slow and grows again when they are not, as the window of TCP does:
it settles near the most that the store bears, and follows when that changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fastfill.migrate.run.latency import Latency
from fastfill.migrate.run.throttle import SLOWER

FALL, RISE = 0.7, 1.25  # factors of the share: by chance alone it stays near 1
LEAST = 0.02
EVERY = 1.5  # seconds between two changes: what the last one did must be seen first


class DutyCycle:
    """The share of one run.

    >>> now = [0.0]
    >>> cycle = DutyCycle(clock=lambda: now[0])
    >>> for now[0] in (2.0, 4.0):
    ...     cycle.look(Latency(now=0.030, resting=0.010))
    >>> round(cycle.share, 2)
    0.49
    >>> now[0] = 6.0
    >>> cycle.look(Latency(now=0.010, resting=0.010))
    >>> round(cycle.share, 2)
    0.61
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.share = 1.0
        self._clock = clock
        self._next = clock()

    def look(self, latency: Latency | None) -> None:
        """Change the share, now and then, by what queries take."""
        if latency is None or self._clock() < self._next:
            return
        slow = latency.now > SLOWER * latency.resting
        self.share = min(max(self.share * (FALL if slow else RISE), LEAST), 1.0)
        self._next = self._clock() + EVERY
