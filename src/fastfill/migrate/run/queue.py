"""`RowQueue`: the one place that decides which rows are embedded next.

Rows without any vector come first, then aligned rows by falling priority. Rows are picked for many
batches at once, because a pick reads the marks of many rows. What another worker was seen to hold
in the meantime is its work, also when it no longer holds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import numpy as np

from fastfill.gallery import Generation, Id, Picked, Store, objects

ORDER: tuple[Generation, ...] = ("waiting", "aligned")
BATCHES, AHEAD = 16, 1 << 17  # batches, and rows at most unless a batch has more, picked together
LASTS = 60.0  # seconds after which rows are picked anew: others work and write too


class RowQueue:
    """Rows picked ahead of the work; each is given out once, and again after it was picked anew.

    >>> from fastfill.gallery import Columns, Marks, MemoryStore
    >>> store = MemoryStore({"id": [1, 2, 3], "text": ["a", "b", "c"], "vector": [[1.0]] * 3})
    >>> store.bind(Columns(id="id", input="text", old="vector")); store.expand(1)
    >>> order = Marks("aligned", "map", priority=np.float32([1, 3, 2]))
    >>> store.write(store.read([1, 2, 3]), np.ones((3, 1), np.float32), order)
    3
    >>> queue = RowQueue(store)
    >>> queue.next(2, exclude=[2]).ids.tolist(), queue.next(2, exclude=[]).ids.tolist()
    ([3, 1], [2, 3])
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._picked: Picked | None = None
        self._left: list[int] = []  # positions of the rows that are not given out yet
        self._more = False  # are there rows beyond those that were picked?
        self._until = 0.0

    def next(self, limit: int, exclude: Collection[Id], skip: int = 0) -> Picked:
        """The next rows, at most `limit`; none only where there is none to pick.

        The first `skip` rows are left for others who look at the same time, if there are so many.
        """
        self._drop(exclude)
        # Half a batch is better than another look.
        short = len(self._left) < limit / 2 and (self._more or not self._left)
        if self._picked is None or short or self._clock() >= self._until:
            self._pick(limit, exclude)
        return self._take(limit, skip)

    def forget(self) -> None:
        """Pick anew: priorities of rows have changed, or others work at them."""
        self._picked, self._left = None, []

    def forget_places(self) -> None:
        """Pick anew where rows were picked with their places: they may lie elsewhere now."""
        if self._picked is not None and self._picked.places is not None:
            self.forget()

    def _pick(self, limit: int, exclude: Collection[Id]) -> None:
        most = max(limit, min(BATCHES * limit, AHEAD))
        for generation in ORDER:
            self._picked = self._store.pick(generation, most, exclude)
            if len(self._picked):
                break
        found = 0 if self._picked is None else len(self._picked)
        self._left, self._more = list(range(found)), found == most
        self._until = self._clock() + LASTS

    def _drop(self, exclude: Collection[Id]) -> None:
        if self._picked is not None and exclude:
            ids = self._picked.ids
            self._left = [n for n in self._left if ids[n] not in exclude]

    def _take(self, limit: int, skip: int) -> Picked:
        if self._picked is None:
            return Picked(objects([]))
        first = max(0, min(skip, len(self._left) - limit))
        chosen = self._left[first : first + limit]
        del self._left[first : first + limit]
        return self._picked.take(np.array(chosen, dtype=np.int64))
