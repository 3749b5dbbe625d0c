"""Progress for people and programs: a bar on a terminal, plain lines or JSON lines elsewhere."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from fastfill.cli.main import console, print_folded

if TYPE_CHECKING:
    from fastfill.migrate import Progress

INTERVAL = 5.0  # seconds between two lines


class Reporter:
    """Shows how a verb goes on; use it as a context."""

    def __init__(
        self, verb: str, as_json: bool, also: Callable[[str, int, int], None] = lambda *_: None
    ) -> None:
        """`also` hears of the steps of a start: what is done, rows done, rows in all."""
        self._verb = verb
        self._as_json, self._also = as_json, also
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}
        self._said = 0.0

    def __enter__(self) -> Reporter:
        if console.is_terminal and not self._as_json:
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[text]}", markup=False),
                console=console,
            )
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def rows(self, done: int, total: int) -> None:
        """So many rows of a step are done."""
        self.stage(self._verb, done, total)

    def stage(self, name: str, done: int, total: int) -> None:
        """So many rows of a named step are done."""
        self._also(name, done, total)
        self._show(name, done, total, f"{done:,}/{total:,}", {"stage": name, "done": done})

    def progress(self, progress: Progress) -> None:
        """A step of a backfill."""
        self._show("backfill", progress.new, progress.total, str(progress), progress.to_json())

    def _show(self, name: str, done: int, total: int, text: str, values: dict[str, Any]) -> None:
        if self._bar is not None:
            if name not in self._tasks:
                self._tasks[name] = self._bar.add_task(name, total=total, text="")
            self._bar.update(self._tasks[name], completed=done, total=total, text=text)
            return
        if time.monotonic() - self._said < INTERVAL:
            return
        self._said = time.monotonic()
        if self._as_json:
            click.echo(json.dumps(values))
        else:
            print_folded(f"{name}: {text}", markup=False)
