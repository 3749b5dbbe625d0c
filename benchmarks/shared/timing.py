"""Times that can be compared although other work goes on."""

from __future__ import annotations

import time
from collections.abc import Callable


def fastest(*works: Callable[[], object], times: int = 5, warm_up: int = 0) -> list[float]:
    """The shortest time of each, taken in turns, so that a busy machine troubles all alike.

    The first `warm_up` turns are not counted.
    """
    spent: list[list[float]] = [[] for _ in works]
    for turn in range(warm_up + times):
        for work, taken in zip(works, spent, strict=True):
            began = time.perf_counter()
            work()
            if turn >= warm_up:
                taken.append(time.perf_counter() - began)
    return [min(taken) for taken in spent]
