"""What kinds of work take on a card, in seconds, without making it wait."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class DeviceClock:
    """Adds up the time of named work: by events on a card, by the wall on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Work of one kind, that others of the same kind are added to."""
        if self.device.type != "cuda":
            began = time.perf_counter()
            yield
            self._seconds[name] += time.perf_counter() - began
            return
        first = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        last = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        first.record()
        yield
        last.record()
        self._events.append((name, first, last))

    def now(self) -> float:
        """The wall, when all that was begun is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def seconds(self) -> dict[str, float]:
        """What each kind has taken so far."""
        self.now()
        for name, first, last in self._events:
            self._seconds[name] += first.elapsed_time(last) / 1000
        self._events.clear()
        return dict(self._seconds)
