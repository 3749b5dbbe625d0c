"""What was decided at the first start: given again it must be the same, or else it is told."""

from __future__ import annotations

from fastfill.errors import MigrationError
from fastfill.gallery import Learning, State, load_state
from fastfill.migrate.job import Job
from fastfill.migrate.options import StartOptions


def check_as_started(job: Job, state: State) -> None:
    """Refuse another id, input or distance than that of the open migration."""
    columns = state.columns
    started = {"id": columns.id, "input": columns.input, "distance": state.distance}
    for option, value in job.gallery.asked.items():
        if value is not None and value != started[option]:
            _refuse(job, option, started[option], value)


def check_learning(job: Job, options: StartOptions) -> None:
    """Refuse another method once the map is learned, and tell that pairs change nothing then."""
    state = load_state(job.store) if job.open else None
    if state is None or state.alignment is None or options.alignment is not None:
        return
    if state.ended or job.identity.differences(state):  # refused, or learned anew
        return
    learning = state.learning or Learning(method="that of a saved map")
    method = None if options.fit is None else options.fit.method
    if method not in (None, learning.method, learning.chosen):
        _refuse(job, "method", learning.method, method)
    if options.pairs not in (None, learning.pairs):
        reason = f"The map is learned already, so that {options.pairs:,} pairs change nothing."
        job.callback("noted", {"reason": reason})


def _refuse(job: Job, option: str, started: str | None, given: str | None) -> None:
    was = f"with --{option} {started}" if started else f"without --{option}"
    raise MigrationError(
        f"{job.store.name} was started {was}, and --{option} {given} is another one: leave it out "
        "to go on, or run fastfill rollback and start again."
    )
