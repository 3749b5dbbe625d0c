"""The command that comes next, with the reason, for those who watch a migration."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from fastfill.cli.opening import command_line
from fastfill.cli.status_text import WORSE, following, is_worse, retrying

if TYPE_CHECKING:
    from fastfill.migrate import Status


class Advice(NamedTuple):
    """A command to be copied, and why."""

    why: str
    command: str


def advice(status: Status, url: str, now: float | None = None) -> Advice:
    """What to do next.

    >>> from fastfill.migrate import Progress, Status
    >>> advice(Status("planned", Progress(10), None), "lance://./db#photos.vector").command
    "fastfill plan 'lance://./db#photos.vector' --input COLUMN --encoder MODULE:FUNCTION"
    """
    why, verb, *options = _next(status, time.time() if now is None else now)
    return Advice(why, command_line(verb, url, *options))


def _next(status: Status, now: float) -> tuple[str, ...]:
    if status.phase == "started" and not status.paused:
        return _while_started(status, now)
    if status.phase == "complete":
        return _when_complete(status)
    why = {
        "planned": "See what a migration would do and cost; a plan changes nothing.",
        "rolled back": "To begin again:",
        "starting": "The start has not ended. If it no longer runs, the same command continues it:",
        "completing": "The completion has not ended. If it no longer runs, continue it:",
        "rolling back": "The rollback has not ended. If it no longer runs, continue it:",
    }
    if status.paused:
        return ("All workers wait until they are told to go on.", "resume")
    new = ("--input COLUMN", "--encoder MODULE:FUNCTION")
    options = new if following(status) == "plan" else status.again
    return (why.get(status.phase, "See where it stands:"), following(status), *options)


def _while_started(status: Status, now: float) -> tuple[str, ...]:
    progress = status.progress
    left = progress.total - progress.new
    if any(report.alive(now) for report in status.workers.values()):
        return ("The backfill runs: nothing to do. To let it wait:", "pause")
    if left == 0:
        return (WORSE if is_worse(status) else "Every row is new.", following(status))
    if again := retrying(status):
        why = "Nothing is left but items that could not be embedded. To try them again:"
        return (why, "backfill", *again)
    return (f"No run is at work, and {left:,} rows are not new yet.", "backfill")


def _when_complete(status: Status) -> tuple[str, ...]:
    if status.state is None or status.state.drop_old:
        return ("It is complete. Nothing is left to do.", "status")
    return (
        "It is complete. The old vectors are still there; dropping them cannot be undone.",
        "complete",
        "--drop-old",
    )
