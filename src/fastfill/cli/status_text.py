"""The status of a migration as a sentence, as JSON, and the verb that comes next."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastfill.gallery import State
    from fastfill.migrate import Status


WORSE = (
    "Every row is new, and the new model alone measured worse than the old search: complete "
    "refuses. Roll back, or say by fastfill start --serving aligned that it is to serve all the "
    "same."
)

UNRELATED = (
    "Both models hardly find the same neighbours, no more than chance has it, and agreement does "
    "not tell which of them is right: give start --queries with --judgements, or --label, before "
    "you trust the new model."
)


def added(status: Status) -> str:
    """The column that the migration fills."""
    return status.state.columns.new if status.state is not None else ""


def is_worse(status: Status) -> bool:
    """Is every row new, and did the new model alone measure worse than the old search?"""
    choice, done = status.serving, status.progress.new == status.progress.total
    return status.phase == "started" and done and choice.serving != "aligned" and choice.worse_alone


def retrying(status: Status) -> tuple[str, ...]:
    """The option of a backfill where nothing is left but items that could not be embedded."""
    left = status.progress.total - status.progress.new
    failed = status.phase == "started" and 0 < left <= len(status.quarantined)
    return ("--retry-failed",) if failed and not status.paused else ()


def following(status: Status) -> str:
    """The verb that comes next."""
    if status.paused:
        return "resume"
    if status.phase == "started" and status.progress.new == status.progress.total:
        return "status" if is_worse(status) else "complete"
    return {
        "planned": "plan",
        "rolled back": "plan",
        "starting": "start",
        "started": "backfill",
        "completing": "complete",
        "rolling back": "rollback",
    }.get(status.phase, "status")


def repairing(status: Status) -> str:
    """The verb that puts rows right: a backfill, where one may run."""
    return "backfill" if status.phase == "started" and not status.paused else following(status)


def serving_lines(status: Status) -> list[str]:
    """How to serve, by which evidence, and when the old model can be switched off."""
    state, choice = status.state, status.serving
    if state is not None and status.phase == "complete":
        return [str(choice), _columns_at_the_end(state)]
    if state is None or not status.choices or status.phase != "started":
        return []
    if is_worse(status):
        return [str(choice), WORSE]
    after = {
        "aligned": "The old model is not needed any more: it can be switched off.",
        "both": "Keep the old model until this line says otherwise, at the latest until complete.",
        "old": "Nothing changes for searches yet; it is measured again as rows become new."
        if choice.evidence is not None
        else "Nothing changes for searches until start is told otherwise: --serving or --queries.",
    }
    doubt = [UNRELATED] if choice.by_chance else []
    return [str(choice), after[choice.serving], *doubt]


def _columns_at_the_end(state: State) -> str:
    """Which column is which, after the completion."""
    swapped = ", which they were given in the old ones' place" * state.swapped
    old = "have been dropped" if state.drop_old else f"are still there, in '{state.columns.old}'"
    return f"The new vectors are in '{state.columns.new}'{swapped}; the old ones {old}."


def activity_lines(status: Status, now: float) -> list[str]:
    """What the runs do, or why they wait, as the live page says it; none where there is no run."""
    from fastfill.page.summary import activity

    if status.phase != "started" or not status.workers:
        return []
    shown = activity(status, now)
    return [f"{shown.word}: {shown.detail}" if shown.detail else f"{shown.word}."]


def sentence(status: Status) -> str:
    """Where a migration stands, for people."""
    from fastfill.gallery import where_text

    if status.state is None or status.phase == "rolled back":
        return f"{status.phase}: {status.progress.total:,} rows, no migration is open."
    progress, refits = status.progress, status.state.refits
    more = (
        (f"{progress.aligned:,} aligned", True),
        (f"{progress.stale:,} of these by the map before", progress.stale),
        (f"{progress.waiting:,} waiting", progress.waiting),
        (f"{progress.unmarked:,} not swept yet", progress.unmarked),
        (f"map learned again {refits} time{'s' * (refits > 1)}", refits),
        ("paused", status.paused),
    )
    said = ", ".join(text for text, there in more if there)
    where = where_text(status.state.columns.where)
    part = f"  where {where}" if where else ""
    return f"{status.phase}: {progress}  ({said})  by {status.state.encoder}{part}"


def status_json(status: Status) -> dict[str, Any]:
    """The same for programs."""
    state = status.state
    return {
        "phase": status.phase,
        "progress": status.progress.to_json(),
        "paused": status.paused,
        "rate": status.rate,
        "encoder": None if state is None else state.encoder,
        "alignment": None if state is None else state.alignment,
        "refits": 0 if state is None else state.refits,
        "column": added(status),
        "layout": None if state is None else state.columns.layout,
        "where": {} if state is None else dict(state.columns.where),
        "serving": status.serving.to_json(),
        "choices": [choice.to_json() for choice in status.choices],
        "workers": {who: asdict(report) for who, report in status.workers.items()},
        "swept": status.swept or None,
        "forecast": None if status.forecast is None else status.forecast.to_json(),
        "quarantined": {str(key): error for key, error in status.quarantined.items()},
    }
