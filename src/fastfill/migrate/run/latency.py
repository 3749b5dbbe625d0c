"""Probing the store's query latency, so that the work does not slow down the application."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import NamedTuple

import numpy as np

from fastfill.features import Matrix
from fastfill.migrate.job import Job
from fastfill.migrate.run.throttle import SLOWER

EVERY = 0.1  # seconds between two probes
GENTLE = 10  # and at least so many times what a probe takes
FIRST = 25  # probes before the work begins; the first ones warm caches up
KEPT, RESTING_KEPT = 100, 200  # latest probes: all, and those while the store was left alone
SLOW_ONES = 0.95  # the quantile of all latencies that is looked at
ENOUGH = 20  # probes for a quantile to be worth looking at
FRESH = 3  # probes of a new look
K = 10


class StoreTime:
    """How long the store has been at work for a run; a probe, where there is one, knows of it.

    >>> spent = StoreTime(None)
    >>> with spent.busy():
    ...     pass
    >>> spent.take() >= 0, spent.take()
    (True, 0.0)
    """

    def __init__(self, probe: LatencyProbe | None) -> None:
        self._probe, self.seconds = probe, 0.0

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While this lasts, the store is at work for this run."""
        began = time.monotonic()
        with self._probe.working() if self._probe else nullcontext():
            yield
        self.seconds += time.monotonic() - began

    def take(self) -> float:
        """The seconds since they were taken last."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class Latency(NamedTuple):
    """Seconds that 95 of 100 queries take at most: now, and while the store is left alone."""

    now: float
    resting: float


class LatencyProbe:
    """A thread that times real searches for vectors of the gallery, all the time.

    It knows when the work keeps the store busy (`working`), so that what the work does to queries
    can be told from what the application does to itself. One is enough for all workers of a run.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._queries = self._some_vectors()
        self._asked = 0
        self._at_work = 0  # workers that keep the store busy at this moment
        self._works = 0  # how often one has begun to
        self._all: deque[float] = deque(maxlen=KEPT)
        self._resting: deque[float] = deque(maxlen=RESTING_KEPT)
        self._lock, self._end = threading.Lock(), threading.Event()
        first = [self._time() for _ in range(FIRST if len(self._queries) else 0)][FIRST // 5 :]
        self._idle = float(np.median(first)) if first else None
        self._resting.extend(first)
        self._thread = threading.Thread(target=self._watch, name="fastfill-probe", daemon=True)
        if first:
            self._thread.start()

    @contextmanager
    def working(self) -> Iterator[None]:
        """While this lasts, queries share the store with the work."""
        with self._lock:
            self._at_work, self._works = self._at_work + 1, self._works + 1
        try:
            yield
        finally:
            with self._lock:
                self._at_work -= 1

    def latency(self) -> Latency | None:
        """What the work does to queries; None while too little is known."""
        with self._lock:
            now, resting = list(self._all), list(self._resting)
        if len(now) < ENOUGH or len(resting) < ENOUGH:
            return None
        return Latency(*(float(np.quantile(each, SLOW_ONES)) for each in (now, resting)))

    def slow(self) -> bool:
        """A new look while nothing else goes on: do queries take longer than before the work?"""
        if self._idle is None:
            return False
        return float(np.median([self._time() for _ in range(FRESH)])) > SLOWER * self._idle

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        wait = EVERY
        while not self._end.wait(wait):
            works, busy = self._works, self._at_work > 0
            with suppress(Exception):  # the worker meets it too, and tells
                seconds = self._time()
                wait = max(EVERY, GENTLE * seconds)
                with self._lock:
                    self._all.append(seconds)
                    if not busy and self._works == works:
                        self._resting.append(seconds)

    def _time(self) -> float:
        query = self._queries[self._asked % len(self._queries)]
        self._asked += 1
        began = time.perf_counter()
        self._job.store.search(query, K, side="new", distance=self._job.gallery.distance)
        return time.perf_counter() - began

    def _some_vectors(self) -> Matrix:
        for rows in self._job.store.scan("aligned", batch=16, new=True):
            if rows.new is not None:
                return rows.new
        return np.zeros((0, 1), dtype=np.float32)
