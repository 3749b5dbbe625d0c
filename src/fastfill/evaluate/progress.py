"""A progress bar for long curves, on stderr, only where it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tick = Callable[[int, int], None]  # queries done, queries in all


@contextmanager
def ticking(progress: bool, what: str) -> Iterator[Tick | None]:
    """A function that moves a bar, or None where no bar is wanted."""
    if not progress:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, emoji=False), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
