"""Probing the store's query latency, to make room for the application's queries."""

from __future__ import annotations

import time

import numpy as np

from fastfill.features import Matrix
from fastfill.migrate.job import Job
from fastfill.migrate.throttle import SLOWER

IDLE_PROBES = 15
KEPT = 5  # latest probes that the present latency is the median of
FRESH = 3  # probes of a new look
EVERY = 0.5  # seconds between two probes at least
K = 10


class Probe:
    """Times real searches for vectors of the gallery."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._queries = self._some_vectors()
        self._latest: list[float] = []
        self._asked, self._asked_at = 0, 0.0
        times = [self._time() for _ in range(IDLE_PROBES if len(self._queries) else 0)]
        self.idle = float(np.median(times[2:])) if times else None  # the first ones warm caches up

    def now(self) -> float | None:
        """Seconds that a query takes at present: the median of the latest few."""
        if not len(self._queries):
            return None
        if not self._latest or time.monotonic() - self._asked_at > EVERY:
            self._latest = [*self._latest[1 - KEPT :], self._time()]
        return float(np.median(self._latest))

    def slow(self) -> bool:
        """A new look while nothing else goes on: do queries take longer than before the work?"""
        if self.idle is None:
            return False
        self._latest = [self._time() for _ in range(FRESH)]
        return float(np.median(self._latest)) > SLOWER * self.idle

    def _time(self) -> float:
        query = self._queries[self._asked % len(self._queries)]
        self._asked += 1
        self._asked_at = time.monotonic()
        began = time.perf_counter()
        self._job.store.search(query, K, side="new", distance=self._job.gallery.distance)
        return time.perf_counter() - began

    def _some_vectors(self) -> Matrix:
        for rows in self._job.store.scan("aligned", batch=16, new=True):
            if rows.new is not None:
                return rows.new
        return np.zeros((0, 1), dtype=np.float32)
