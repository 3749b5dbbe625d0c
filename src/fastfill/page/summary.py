"""`summary`: the few figures on top of the live page, and what goes on in one word."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from fastfill.migrate import Status, WorkerReport, duration
from fastfill.report.formats import title

Kind = Literal["idle", "working", "waiting", "stopped", "done"]  # the colour of the word

OF_PHASE: dict[str, tuple[Kind, str, str]] = {
    "planned": ("idle", "Not started", "No migration is open."),
    "starting": ("working", "Starting", "Rows are being aligned; the old search serves."),
    "completing": ("working", "Completing", ""),
    "complete": ("done", "Complete", "The new vectors are the gallery."),
    "rolling back": ("working", "Rolling back", ""),
    "rolled back": ("idle", "Rolled back", "Only the owner's columns are left."),
}
LATE = 25.0  # seconds without a report after which it is said that a run may be gone
WAYS = {  # and what that means for the old model
    "old": ("old model", "Nothing changes for searches yet."),
    "aligned": ("new model", "Searches do not need the old model."),
    "both": ("both models", "Keep the old model running."),
}


class Activity(NamedTuple):
    """What goes on: its kind, a word for people, and what there is to say about it."""

    kind: Kind
    word: str
    detail: str


def summary(status: Status, now: float) -> dict[str, Any]:
    """Figures for people, from what is in the store.

    >>> from fastfill.migrate import Progress
    >>> running = {"ann": WorkerReport(at=100.0, rate=5.0)}
    >>> started = Status("started", Progress(100, new=50, aligned=50), None, workers=running)
    >>> shown = summary(started, now=101.0)
    >>> shown["activity"]["word"], shown["rate"], shown["left"]
    ('Backfilling', 5.0, '10 s')
    """
    alive = {} if status.paused else _alive(status, now)
    rate = sum(report.rate for report in alive.values())
    rest = status.progress.total - status.progress.new - len(status.quarantined)
    quality = status.quality
    return {
        "activity": activity(status, now)._asdict(),
        "rate": rate if alive else None,
        "left": duration(rest / rate) if rate > 0 and rest > 0 else None,
        "quality": None if quality is None else str(quality).removeprefix("quality "),
        "metric": None if quality is None else title(quality.metric),
        "serves": WAYS["old" if status.state is None else status.state.serves],
        "swept": duration(max(0.0, now - status.swept)) if status.swept else None,
    }


def activity(status: Status, now: float) -> Activity:
    """What goes on, in one word."""
    if status.phase != "started":
        return Activity(*OF_PHASE[status.phase])
    alive = _alive(status, now)
    if status.paused:
        waits = f"{len(alive)} at rest" if alive else "no run is there to go on"
        return Activity("waiting", "Paused", f"Workers wait after their batch ({waits}).")
    if alive:
        who, last = max(alive.items(), key=lambda one: one[1].at)
        if now - last.at >= LATE:
            heard = f"{who} was last heard of {duration(now - last.at)} ago"
            return Activity("waiting", "No news", f"{heard}, and a run reports every ten seconds.")
        return _at_work(list(alive.values()))
    if status.progress.new == status.progress.total:
        return Activity("done", "All rows are new", "Ready to be completed.")
    if status.workers:
        who, last = max(status.workers.items(), key=lambda one: one[1].at)
        heard = f"{who} was last heard of {duration(now - last.at)} ago."
        return Activity("stopped", "Stopped", f"{heard} Every row still serves.")
    return Activity("idle", "Not running", "No run is at work; every row serves.")


def _at_work(reports: list[WorkerReport]) -> Activity:
    """Several runs may go on: it waits where all of them do."""
    reasons = [report.reason for report in reports if report.reason]
    doing = [report.doing for report in reports if report.doing]
    if len(reasons) == len(reports):
        return Activity("waiting", "Waiting", _sentence(reasons[0]))
    return Activity("working", "Backfilling", _sentence(doing[0]) if doing else "")


def _alive(status: Status, now: float) -> dict[str, WorkerReport]:
    return {who: report for who, report in status.workers.items() if report.alive(now)}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
