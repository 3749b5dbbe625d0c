"""`RowQueue`: the one place that decides which rows are embedded next.

Rows without any vector come first, then aligned rows by falling priority. Rows are picked for many
batches at once, because a pick reads the marks of many rows.
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
        self._next = 0  # position of the next row
        self._until = 0.0

    def next(self, limit: int, exclude: Collection[Id]) -> Picked:
        """The next rows, at most `limit`; none only where there is none to pick."""
        if self._picked is None or self._clock() >= self._until:
            self._pick(limit, exclude)
        rows = self._take(limit, exclude)
        if not len(rows):
            self._pick(limit, exclude)
            rows = self._take(limit, exclude)
        return rows

    def forget(self) -> None:
        """Pick anew: priorities or places of rows have changed."""
        self._picked = None

    def _pick(self, limit: int, exclude: Collection[Id]) -> None:
        most = max(limit, min(BATCHES * limit, AHEAD))
        for generation in ORDER:
            self._picked = self._store.pick(generation, most, exclude)
            if len(self._picked):
                break
        self._next, self._until = 0, self._clock() + LASTS

    def _take(self, limit: int, exclude: Collection[Id]) -> Picked:
        picked = self._picked
        if picked is None:
            return Picked(objects([]))
        chosen: list[int] = []
        while self._next < len(picked) and len(chosen) < limit:
            if picked.ids[self._next] not in exclude:
                chosen.append(self._next)
            self._next += 1
        return picked.take(np.array(chosen, dtype=np.int64))
