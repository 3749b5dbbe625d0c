"""What a start is asked for: kept from its beginning, and used again by the start that goes on."""

from __future__ import annotations

from dataclasses import replace

from fastfill.align import FitOptions
from fastfill.gallery import State
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.start_request import StartRequest
from fastfill.migrate.options import StartOptions

OF_QUERIES = ("--queries", "--judgements", "--old-encoder")


def as_asked(job: Job, state: State, options: StartOptions) -> StartOptions:
    """The options of a start that goes on: what is not given is as it was asked for before."""
    if state.phase != "starting":
        return options
    before = StartRequest.load(job.store)
    now = _request(options)
    request = StartRequest.change(job.store, lambda kept: (kept or StartRequest()).updated(now))
    if before is not None:
        _tell_what_is_missing(job, before, now)
    return replace(
        options,
        pairs=request.pairs,
        fit=None if request.fit is None else FitOptions.from_json(request.fit),
        index=request.index,
        serving=request.serving,
        label=request.label,
        allow_trigger=request.allow_trigger,
    )


def need_not_be_given(job: Job, *names: str) -> None:
    """What these options gave is kept in the store by now."""
    request = StartRequest.load(job.store)
    if request is not None and request.without(*names) != request:
        StartRequest.change(job.store, lambda kept: (kept or request).without(*names))


def forget_request(job: Job) -> None:
    """The start has ended, or begins anew with another model."""
    job.store.remove([StartRequest.NAME])


def _request(options: StartOptions) -> StartRequest:
    given = {
        "--alignment FILE": options.alignment is not None,
        "--queries FILE": options.queries is not None,
        "--judgements FILE": options.queries is not None and bool(options.queries.judgements),
        "--old-encoder NAME": options.encode_old is not None,
    }
    return StartRequest(
        options.pairs,
        None if options.fit is None else options.fit.to_json(),
        options.index,
        options.serving,
        options.label,
        options.allow_trigger,
        tuple(option for option, there in given.items() if there),
    )


def _tell_what_is_missing(job: Job, before: StartRequest, now: StartRequest) -> None:
    """Files and models that the start before was given, and that nothing has kept."""
    missing = [option for option in before.given if option not in now.given]
    if missing:
        reason = (
            f"the start that did not end was given {' '.join(missing)}, which it had not kept yet: "
            "give that again, or this one goes on without"
        )
        job.callback("missing", {"store": job.store.name, "reason": reason})
