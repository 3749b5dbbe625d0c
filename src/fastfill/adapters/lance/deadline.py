"""A limit for calls of LanceDB's client that never come back.

Now and then a future of the client is never resolved: the caller waits for ever, and the process is
idle (github.com/lancedb/lancedb/issues/4210). The client runs every call on one event loop of its
own, so that is where a limit can be set, for the calls of one thread alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
READ = 600.0  # seconds for the next block of a scan, or for one look-up
COMMIT = 1800.0  # of one write: it may read the ids of the whole table first

_limit: ContextVar[float | None] = ContextVar("limit", default=None)


class UnansweredError(RuntimeError):
    """LanceDB has not answered in time."""


@contextmanager
def answered_within(seconds: float) -> Iterator[None]:
    """Each call of the client in this block has so long, else `UnansweredError`.

    A block within another has no longer than that one.
    """
    outer = _limit.get()
    token = _limit.set(seconds if outer is None else min(seconds, outer))
    try:
        yield
    finally:
        _limit.reset(token)


def set_limits(client_loop: Any) -> None:
    """Let the client's event loop keep the limits."""
    unlimited: Callable[[Any], Any] = client_loop.run

    def run(call: Any) -> Any:
        seconds = _limit.get()
        if seconds is None:
            return unlimited(call)
        future = asyncio.run_coroutine_threadsafe(call, client_loop.loop)
        try:
            return future.result(seconds)
        except BaseException as error:
            future.cancel()
            if isinstance(error, TimeoutError):
                raise UnansweredError(
                    f"LanceDB has not answered for {seconds:,.0f} s. Nothing is half-written: run "
                    "the command again, it goes on where it was."
                ) from error
            raise

    client_loop.run = run
