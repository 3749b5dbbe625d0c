"""Threads of a worker process."""

from __future__ import annotations

from functools import cache


@cache
def one_thread_for_blas() -> None:
    """Where there is a process for each core, more threads than one only wait for each other."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
