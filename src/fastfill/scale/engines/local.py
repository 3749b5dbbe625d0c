"""Processes of this machine. One that is killed is replaced, and its piece done again."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener, wait
from multiprocessing.reduction import ForkingPickler
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
        while waiting and tries:
            before = len(waiting)
            try:
                with self._pool(work) as pool:
                    yield from self._results(pool, waiting)
            except BrokenProcessPool:
                tries = tries - 1 if len(waiting) == before else TRIES
        if waiting:
            raise EngineError(
                f"{waiting[0].name}: the process that worked on it, or on one of the next, was "
                f"killed {TRIES} times, perhaps for lack of memory. Run again with fewer workers: "
                "finished pieces are kept."
            )

    @contextmanager
    def _pool(self, work: Callable[[Piece], T]) -> Iterator[ProcessPoolExecutor]:
        """Workers that end when their driver hangs up.

        They are not waited for: one that waits for its next piece holds a lock, and where it is
        killed then, the others never hear that there is none.
        """
        # A fresh interpreter: Arrow's and Lance's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with _served(work) as address:
            pool = ProcessPoolExecutor(self.workers, context, _start_worker, (address,))
            try:
                yield pool
            finally:
                pool.shutdown(wait=False)

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
def _served(work: Callable[[Piece], Any]) -> Iterator[str]:
    """The address at which a worker that has started asks for the work, and stays on the line.

    As an argument of theirs it would go through a pipe, and whoever starts a worker waits for ever
    where that is killed before it has read more than the pipe holds.
    """
    data, over = ForkingPickler.dumps(work), threading.Event()
    listener = Listener(authkey=_key())
    address = str(listener.address)
    threading.Thread(target=_serve, args=(listener, data, over), daemon=True).start()
    try:
        yield address
    finally:
        over.set()
        with suppress(OSError):  # it has gone, after somebody's call
            Client(address).close()


def _serve(listener: Listener, data: Any, over: threading.Event) -> None:
    """Hand the work to whoever asks and has the key; one that dies meanwhile needs it no more.

    In the end hang up: whoever is still there ends then.
    """
    with listener, ExitStack() as lines:
        while not over.is_set():
            with suppress(OSError, EOFError, multiprocessing.AuthenticationError):
                lines.enter_context(listener.accept()).send_bytes(data)


def _key() -> bytes:
    """The same in this process and in those that it starts, and in no others."""
    return bytes(multiprocessing.current_process().authkey)


def _start_worker(address: str) -> None:
    """Ask for the work once; no process outlives the driver's wish, or has threads for BLAS."""
    global _work
    try:
        driver = Client(address, authkey=_key())
        _work = driver.recv()
    except (OSError, EOFError):  # all is done already
        os._exit(1)
    one_thread_for_blas()
    threading.Thread(target=_end_with_driver, args=(driver,), daemon=True).start()


def _end_with_driver(driver: Connection) -> None:
    wait([driver])  # it never says more: it hangs up, or has died
    os._exit(1)


def _do(piece: Piece) -> Any:
    return _work(piece)
