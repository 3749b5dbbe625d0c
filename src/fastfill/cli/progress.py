"""Progress on long work, on stderr: bars on a terminal, nothing where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text


class RowBars(Progress):
    """A bar of rows for each step; below them lines about the last, which are never cut."""

    def __init__(self, console: Console) -> None:
        self._notes: Sequence[str] = ()
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:.1f} %", justify="right"),
            TextColumn("{task.fields[rows]}", markup=False),
            console=console,
        )

    def show(self, step: str, done: int, total: int, rows: str, notes: Sequence[str]) -> None:
        """Where a step stands."""
        self._notes = notes
        known = {task.description: task.id for task in self.tasks}
        task = known[step] if step in known else self.add_task(step, total=total, rows=rows)
        self.update(task, completed=done, total=total, rows=rows)

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bars, then the notes, each from the start of a line and folded between words."""
        yield from super().get_renderables()
        yield from map(Text, self._notes)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def training_bar(console: Console) -> Iterator[Callable[[int, int, float], None]]:
    """A bar of epochs with the loss; it starts again for each network that is trained."""
    with _bar(console) as progress:
        task = progress.add_task("training", total=None, note="")

        def report(epoch: int, epochs: int, loss: float) -> None:
            if epoch == 1:
                progress.reset(task, total=epochs)
            progress.update(task, completed=epoch, total=epochs, note=f"loss {loss:.4f}")

        yield report


@contextmanager
def counting_bar(console: Console, what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that counts things done out of all."""
    with _bar(console) as progress:
        task = progress.add_task(what, total=None, note=unit)
        yield lambda done, total: progress.update(task, completed=done, total=total)


StageCallbacks = tuple[
    Callable[[str], Callable[[int, int, float, float], None]],  # model → epoch, epochs, loss, rate
    Callable[[str], None],  # what comes next
]


@contextmanager
def stage_bar(console: Console) -> Iterator[StageCallbacks]:
    """A bar for work of many stages: epochs of the model that is trained, names of the rest."""
    with _bar(console) as progress:
        task = progress.add_task("", total=None, note="")

        def report(model: str) -> Callable[[int, int, float, float], None]:
            progress.reset(task, description=model)

            def epoch(done: int, epochs: int, loss: float, rate: float) -> None:
                note = f"loss {loss:.3f}  {rate:,.0f} images/s"
                progress.update(task, completed=done, total=epochs, note=note)

            return epoch

        def stage(what: str) -> None:
            progress.reset(task, total=None, description=what, note="")

        yield report, stage
