"""Processes of this machine. One that is killed is replaced, and its piece done again."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, TypeVar

from fastfill.errors import EngineError
from fastfill.scale.engines.threads import one_thread_for_blas
from fastfill.scale.pieces import Piece

T = TypeVar("T")

TRIES = 4  # of the same piece, before its workers are given up
AHEAD = 3  # pieces for each worker that are waiting or done and not yet asked for

_work: Callable[[Piece], Any]  # of this worker process, set when it starts


def make_engine(address: str | None, workers: int) -> LocalEngine:
    """So many processes, or one for each core."""
    return LocalEngine(workers or len(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class LocalEngine:
    """A pool of processes; with one worker, this process itself.

    >>> pieces = [Piece(f"piece {i}", str(i), i, 10 * i, 10) for i in range(3)]
    >>> list(LocalEngine(1).map(lambda piece: piece.first_row, pieces))
    [0, 10, 20]
    """

    workers: int

    def map(self, work: Callable[[Piece], T], pieces: Sequence[Piece]) -> Iterator[T]:
        """The results in the order of the pieces."""
        if self.workers == 1 or len(pieces) < 2:
            yield from map(work, pieces)
            return
        waiting, tries = deque(pieces), TRIES
        with _kept(work) as file:
            while waiting and tries:
                before = len(waiting)
                try:
                    with self._pool(file) as pool:
                        yield from self._results(pool, waiting)
                except BrokenProcessPool:
                    tries = tries - 1 if len(waiting) == before else TRIES
        if waiting:
            raise EngineError(
                f"{waiting[0].name}: the process that worked on it, or on one of the next, was "
                f"killed {TRIES} times, perhaps for lack of memory. Run again with fewer workers: "
                "finished pieces are kept."
            )

    def _pool(self, file: Path) -> ProcessPoolExecutor:
        # A fresh interpreter: Arrow's and Lance's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.workers, context, _start_worker, (file,))

    def _results(self, pool: ProcessPoolExecutor, waiting: deque[Piece]) -> Iterator[Any]:
        """Results in order; a piece stays in `waiting` until its result is there."""
        running: deque[Future[Any]] = deque()
        try:
            while waiting:
                for piece in list(waiting)[len(running) : AHEAD * self.workers]:
                    running.append(pool.submit(_do, piece))
                result = running.popleft().result()
                waiting.popleft()
                yield result
        finally:
            for call in running:  # after an error, or where no more results are wanted
                call.cancel()


@contextmanager
def _kept(work: Callable[[Piece], Any]) -> Iterator[Path]:
    """The work in a file of this user alone, from which each worker takes it.

    As an argument of theirs it would go through a pipe, and whoever starts a worker waits for ever
    where that is killed before it has read more than the pipe holds.
    """
    with tempfile.TemporaryDirectory(prefix="fastfill-") as folder:
        file = Path(folder, "work")
        file.write_bytes(ForkingPickler.dumps(work))
        yield file


def _start_worker(file: Path) -> None:
    """Take the work once; no process outlives the driver, or has threads for BLAS."""
    global _work
    _work = ForkingPickler.loads(file.read_bytes())
    one_thread_for_blas()
    threading.Thread(target=_end_with_driver, daemon=True).start()


def _end_with_driver() -> None:
    driver = multiprocessing.parent_process()
    if driver is not None:
        wait([driver.sentinel])
        os._exit(1)


def _do(piece: Piece) -> Any:
    return _work(piece)
