"""The command that the live page offers next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fastfill.cli.advice import advice
from fastfill.gallery import Columns, State
from fastfill.migrate import Progress, Status, WorkerReport

URL = "lance://./db#photos.vector"
STATE = State("started", Columns("id", "text", "vector"), "l2", "m:encode", "1f", 8)
HALF, ALL = Progress(10, new=5, aligned=5), Progress(10, new=10)
RUNNING = {"ann": WorkerReport(at=995.0)}
BROKEN = dict.fromkeys(range(5), "cannot be read")


@pytest.mark.parametrize(
    ("status", "command"),
    [
        (Status("starting", HALF, STATE), "fastfill start '{}'"),
        (Status("started", HALF, STATE), "fastfill backfill '{}'"),
        (Status("started", HALF, STATE, workers=RUNNING), "fastfill pause '{}'"),
        (Status("started", HALF, STATE, paused=True, workers=RUNNING), "fastfill resume '{}'"),
        (
            Status("started", HALF, STATE, quarantined=BROKEN),
            "fastfill backfill '{}' --retry-failed",
        ),
        (Status("started", ALL, STATE), "fastfill complete '{}'"),
        (Status("completing", ALL, STATE), "fastfill complete '{}'"),
        (Status("complete", ALL, STATE), "fastfill complete '{}' --drop-old"),
        (Status("complete", ALL, replace(STATE, drop_old=True)), "fastfill status '{}'"),
        (Status("rolling back", HALF, STATE), "fastfill rollback '{}'"),
    ],
)
def test_the_next_command_fits_where_it_stands(status: Status, command: str) -> None:
    """Each phase, a pause, a run at work and items that failed have their own."""
    assert advice(status, URL, now=1_000.0).command == command.format(URL)


def test_dropping_comes_with_a_warning() -> None:
    """The only command that cannot be undone says so."""
    assert "cannot be undone" in advice(Status("complete", ALL, STATE), URL).why
