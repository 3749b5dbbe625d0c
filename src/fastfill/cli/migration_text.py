"""Texts of a migration: budgets, rates and steps as they are typed, the status as it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastfill.errors import InputError

if TYPE_CHECKING:
    from fastfill.migrate import Status


def rows_of(budget: str | None, total: Callable[[], int]) -> int | None:
    """Rows of a budget, which is a number or a share of all rows, counted where that is needed.

    >>> rows_of("10%", lambda: 500), rows_of("1,000", lambda: 0)
    (50, 1000)
    """
    if budget is None:
        return None
    try:
        number = float(budget.removesuffix("%").replace(",", ""))
    except ValueError:
        raise InputError(
            f"A budget is a number of rows or a share (500 or 10%), not {budget!r}."
        ) from None
    return max(1, round(total() * number / 100 if budget.endswith("%") else number))


def step_of(refit: str) -> float | None:
    """The share of the rows between two refits; None for `never`."""
    if refit == "never":
        return None
    try:
        return float(refit.removesuffix("%")) / (100 if refit.endswith("%") else 1)
    except ValueError:
        raise InputError(
            f"Refits come at a share of the rows (5%) or never, not {refit!r}."
        ) from None


def per_second(rate: str) -> float:
    """A rate as 200 or 200/s."""
    try:
        value = float(rate.removesuffix("/s"))
    except ValueError:
        raise InputError(f"A rate is rows per second (200 or 200/s), not {rate!r}.") from None
    if value <= 0:
        raise InputError("A rate is more than 0. To stop the workers for a while: fastfill pause.")
    return value


def added(status: Status) -> str:
    """The column that the migration fills."""
    return status.state.columns.new if status.state is not None else ""


def following(status: Status) -> str:
    """The verb that comes next."""
    if status.paused:
        return "resume"
    if status.phase == "started" and status.progress.new == status.progress.total:
        return "complete"
    return {
        "planned": "plan",
        "rolled back": "plan",
        "starting": "start",
        "started": "backfill",
        "completing": "complete",
        "rolling back": "rollback",
    }.get(status.phase, "status")


def sentence(status: Status) -> str:
    """Where a migration stands, for people."""
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
    return f"{status.phase}: {progress}  ({said})  by {status.state.encoder}"


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
        "forecast": None if status.forecast is None else status.forecast.to_json(),
        "quarantined": {str(key): error for key, error in status.quarantined.items()},
    }
