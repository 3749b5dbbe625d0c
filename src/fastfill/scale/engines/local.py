"""Processes of this machine. One that is killed is replaced, and its piece done again."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

from fastfill.errors import EngineError
from fastfill.scale.engines.threads import one_thread_for_blas
from fastfill.scale.pieces import Piece

T = TypeVar("T")

TRIES = 4  # of the same piece, before its workers are given up
AHEAD = 3  # pieces for each worker that are waiting or done and not yet asked for


def make_engine(address: str | None, workers: int) -> LocalEngine:
    """So many processes, or one for each core."""
    return LocalEngine(workers or len(os.sched_getaffinity(0)))


@dataclass
class LocalEngine:
    """A pool of processes, kept as long as the engine; with one worker, this process itself.

    >>> pieces = [Piece(f"piece {i}", str(i), i, 10 * i, 10) for i in range(3)]
    >>> list(LocalEngine(1).map(lambda piece: piece.first_row, pieces))
    [0, 10, 20]
    """

    workers: int
    _pool: ProcessPoolExecutor | None = field(default=None, init=False, repr=False, compare=False)

    def map(self, work: Callable[[Piece], T], pieces: Sequence[Piece]) -> Iterator[T]:
        """The results in the order of the pieces."""
        if self.workers == 1 or len(pieces) < 2:
            yield from map(work, pieces)
            return
        waiting, tries = deque(pieces), TRIES
        with tempfile.NamedTemporaryFile(suffix=".work") as packed:  # read once by each process
            pickle.dump(work, packed)
            packed.flush()
            while waiting and tries:
                before = len(waiting)
                try:
                    yield from self._results(packed.name, waiting)
                except BrokenProcessPool:
                    self.close()
                    tries = tries - 1 if len(waiting) == before else TRIES
        if waiting:
            raise EngineError(
                f"{waiting[0].name}: the process that worked on it, or on one of the next, was "
                f"killed {TRIES} times, perhaps for lack of memory. Run again with fewer workers: "
                "finished pieces are kept."
            )

    def close(self) -> None:
        """End the processes; the next use starts others."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = None

    def _opened(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # A fresh interpreter: Arrow's and Lance's threads do not survive a fork.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.workers, context, _start_worker)
        return self._pool

    def _results(self, packed: str, waiting: deque[Piece]) -> Iterator[Any]:
        """Results in order; a piece stays in `waiting` until its result is there."""
        running: deque[Future[Any]] = deque()
        try:
            while waiting:
                for piece in list(waiting)[len(running) : AHEAD * self.workers]:
                    running.append(self._opened().submit(_do, packed, piece))
                result = running.popleft().result()
                waiting.popleft()
                yield result
        finally:
            for call in running:  # after an error, or where no more results are wanted
                call.cancel()


def _start_worker() -> None:
    """BLAS has one thread where there are many processes; none outlives the driver."""
    one_thread_for_blas()
    threading.Thread(target=_end_with_driver, daemon=True).start()


def _end_with_driver() -> None:
    driver = multiprocessing.parent_process()
    if driver is not None:
        wait([driver.sentinel])
        os._exit(1)


@lru_cache(maxsize=1)
def _unpacked(packed: str) -> Callable[[Piece], Any]:
    """The work, with what it has loaded, is kept from piece to piece."""
    with Path(packed).open("rb") as file:
        work: Callable[[Piece], Any] = pickle.load(file)  # noqa: S301 - the driver's own
    return work


def _do(packed: str, piece: Piece) -> Any:
    return _unpacked(packed)(piece)
