"""`Line`: the next rows to embed, picked for several batches at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from fastfill.gallery import Id, Picked, objects

BATCHES, AHEAD = 16, 1 << 19  # batches, and rows at most, that are picked together
LASTS = 5.0  # seconds after which they are picked anew where others work too

Pick = Callable[[int, Collection[Id]], Picked]
_NONE = Picked(objects([]))


class Line:
    """Picks ahead of the work; each row is given out once, and again after it was picked anew.

    >>> left = [*range(9)]
    >>> line = Line(lambda limit, exclude: Picked(objects([n for n in left if n not in exclude])))
    >>> line.next(2, exclude=[1]).ids.tolist(), line.next(2, exclude=[]).ids.tolist()
    ([0, 2], [3, 4])
    """

    def __init__(self, pick: Pick, clock: Callable[[], float] = time.monotonic) -> None:
        self._pick = pick
        self._clock = clock
        self._picked, self._position = _NONE, 0
        self._picked_at = 0.0

    def next(self, limit: int, exclude: Collection[Id], shared: bool = False) -> Picked:
        """The next rows, at most `limit`; none only where there is none to pick.

        What was picked is kept until it is used up or forgotten; where others work on the same
        rows, `shared`, only for some seconds.
        """
        if shared and self._clock() >= self._picked_at + LASTS:
            self.forget()
        chosen = self._take(limit, exclude)
        if not len(chosen):
            self._picked = self._pick(max(limit, min(BATCHES * limit, AHEAD)), exclude)
            self._position, self._picked_at = 0, self._clock()
            chosen = self._take(limit, exclude)
        return chosen

    def _take(self, limit: int, exclude: Collection[Id]) -> Picked:
        positions: list[int] = []
        while self._position < len(self._picked) and len(positions) < limit:
            if self._picked.ids[self._position] not in exclude:
                positions.append(self._position)
            self._position += 1
        return self._picked.take(positions)

    def forget(self) -> None:
        """Pick anew: priorities or places have changed."""
        self._picked, self._position = _NONE, 0
