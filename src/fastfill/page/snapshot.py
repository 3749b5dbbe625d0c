"""`CachedReader`: reads at most so often, however many look, and never for most of the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

EVERY = 2.0  # seconds between two reads
SHARE = 20  # counting rows may take long: reading takes at most one part in so many of the time

Value = TypeVar("Value")


class CachedReader(Generic[Value]):
    """One value, read again when it is old; an error is raised and not kept.

    >>> numbers = iter(range(10))
    >>> reader = CachedReader(lambda: next(numbers), every=60)
    >>> reader(), reader()
    (0, 0)
    """

    def __init__(
        self,
        read: Callable[[], Value],
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._every, self._clock = read, every, clock
        self._lock = threading.Lock()
        self._value: list[Value] = []  # empty, or the one
        self._next = 0.0

    def __call__(self) -> Value:
        """The value, a few seconds old at most where reading is quick."""
        with self._lock:  # requests come in threads
            began = self._clock()
            if not self._value or began >= self._next:
                self._value = [self._read()]
                ended = self._clock()
                self._next = ended + max(self._every, SHARE * (ended - began))
            return self._value[0]
