"""`Line`: the next rows to embed, picked for several batches at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from fastfill.gallery import Id

BATCHES, AHEAD = 16, 1 << 16  # batches, and ids at most, that are picked together
LASTS = 5.0  # seconds after which they are picked anew: priorities change, others work too

Pick = Callable[[int, Collection[Id]], list[Id]]


class Line:
    """Picks ahead of the work; each id is given out once, and again after it was picked anew.

    >>> left = [*range(9)]
    >>> line = Line(lambda limit, exclude: [n for n in left if n not in exclude][:limit])
    >>> line.next(2, exclude=[1]), line.next(2, exclude=[])
    ([0, 2], [3, 4])
    """

    def __init__(self, pick: Pick, clock: Callable[[], float] = time.monotonic) -> None:
        self._pick = pick
        self._clock = clock
        self._ids: list[Id] = []  # the next one is the last
        self._until = 0.0

    def next(self, limit: int, exclude: Collection[Id]) -> list[Id]:
        """The next ids, at most `limit`; none only where there is none to pick."""
        found: list[Id] = []
        while self._ids and len(found) < limit and self._clock() < self._until:
            key = self._ids.pop()
            if key not in exclude:
                found.append(key)
        if found:
            return found
        self._ids = self._pick(max(limit, min(BATCHES * limit, AHEAD)), exclude)[::-1]
        self._until = self._clock() + LASTS
        found = self._ids[: -limit - 1 : -1]
        del self._ids[-limit:]
        return found

    def forget(self) -> None:
        """Pick anew: priorities or places have changed."""
        self._ids = []
