"""Prefetching: the next batch is read and encoded while one is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from fastfill.migrate.run.batches import Batch

T = TypeVar("T")


class Prefetcher:
    """Makes one batch at a time in a thread of its own: `begin` it, `take` it when it is wanted.

    What has reached the encoder is finished, whatever happens: its owner writes it or, when that
    is not possible any more, lets go of it.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "fastfill-prefetch")
        self._coming: Future[Batch | None] | None = None
        self._waited = 0.0  # seconds, for what is coming

    @property
    def begun(self) -> bool:
        """Is a batch on its way?"""
        return self._coming is not None

    def begin(self, make: Callable[[], Batch | None]) -> None:
        """Let the thread make a batch."""
        self._waited, self._coming = 0.0, self._thread.submit(make)

    def ready(self, seconds: float | None) -> bool:
        """Wait for the batch that was begun, for so long (None: to the end); is it ready?"""
        if self._coming is None:
            return True
        began = time.monotonic()
        done = wait([self._coming], timeout=seconds).done
        self._waited += time.monotonic() - began
        return bool(done)

    def take(self) -> Batch | None:
        """The batch that was begun, when it is ready; None where there was no row to claim."""
        if self._coming is None:
            return None
        self.ready(None)
        coming, self._coming = self._coming, None
        batch = coming.result()
        return None if batch is None else replace(batch, waited=min(self._waited, batch.seconds))

    def close(self) -> None:
        """Wait for what has begun."""
        self._thread.shutdown(wait=True, cancel_futures=True)


def read_ahead(blocks: Iterator[T]) -> Iterator[T]:
    """The same, each next one made in a thread while the one before is worked on.

    >>> [*read_ahead(iter("abc"))]
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1, "fastfill-read-ahead") as thread:
        coming = thread.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = thread.submit(next, blocks, None)
            yield block
