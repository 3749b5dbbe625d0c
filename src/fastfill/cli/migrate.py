"""The life of a migration: plan, pairs, start, backfill, status, …, complete or rollback."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fastfill.cli.main import commands, console, print_json, say
from fastfill.cli.migration_words import (
    added,
    following,
    per_second,
    rows_of,
    sentence,
    step_of,
)
from fastfill.cli.migration_words import (
    as_json as status_json,
)
from fastfill.cli.reporting import Reporter
from fastfill.errors import InputError

if TYPE_CHECKING:
    from fastfill.align import Alignment
    from fastfill.migrate import Migration, Status

POLITE = 10  # of 19: how far this process stands back for others on the machine
STOPPED, LEFT_OVER = 3, 4  # exit codes; 1 is an error, 2 a wrong command line
F = TypeVar("F", bound=Callable[..., Any])

_url = click.argument("url")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
_distance = click.option(
    "--distance",
    type=click.Choice(["l2", "cosine", "ip"]),
    help="Distance of the search. [default: that of the store's index]",
)
_metric = click.option("--metric", help="Quality in which metric. [default: map with --label]")
_label = click.option(
    "--label", metavar="COLUMN", help="Answers with the query's value in this column are right."
)


def _describing(function: F) -> F:
    """Options that say what is migrated; asked for once, then the store knows."""
    for option in (
        click.option("--hook", metavar="PROGRAM", help="Called with each event, JSON on stdin."),
        click.option("--root", help="Folder or URL that inputs are paths under."),
        _distance,
        click.option(
            "--encoder",
            help="The new model: module:function, sentence-transformers:NAME or an https address.",
        ),
        click.option("--input", metavar="COLUMN", help="What is to be encoded: text, bytes, path."),
        click.option("--id", metavar="COLUMN", help="The key of the items. [default: id]"),
    ):
        function = option(function)
    return function


def _open(url: str, *, encoder: str | None = None, encode: bool = True, **given: Any) -> Migration:
    """The migration at a URL; what is not given comes from its state in the store."""
    from fastfill.migrate import Migration, hook
    from fastfill.wiring import connect, open_encoder

    gallery = connect(
        url, id=given.get("id"), input=given.get("input"), distance=given.get("distance")
    )
    state = gallery.state
    spec = encoder or (state.encoder if state is not None else None)
    if spec is None and encode:
        raise InputError(
            "No migration is open here. To plan or start one, give the new model with --encoder, "
            "for example my_module:encode."
        )
    root = given.get("root") or (state.root if state is not None else None)
    return Migration(
        gallery,
        open_encoder(spec) if encode and spec else None,
        encoder_name=spec or "",
        tell=hook(given["hook"], _warn) if given.get("hook") else None,
        root=root,
    )


def _warn(message: str) -> None:
    console.print(f"[yellow]Warning:[/] {message}", soft_wrap=True)


def _say(message: object) -> None:
    say(str(message))


def _next(verb: str, url: str, *options: str) -> None:
    console.print(" ".join(["Next: fastfill", verb, f"'{url}'", *options]), soft_wrap=True)


@contextmanager
def _stoppable(migration: Migration) -> Iterator[None]:
    """SIGTERM and the first Ctrl-C end the work cleanly after the batch."""

    def stop(*_: object) -> None:
        migration.stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if migration.stop.is_set():
        _say("Stopped after a batch; nothing is lost. Run the same command again to go on.")
        sys.exit(STOPPED)


@commands.command("plan")
@_url
@_describing
@click.option("--price-per-1k-tokens", type=float, help="To tell the cost.")
@click.option("--price-per-hour", type=float, help="To tell the cost.")
@click.option("--print-sql", is_flag=True, help="Show the statements that would run (PostgreSQL).")
@_metric
@_label
@_json
def plan_command(
    url: str,
    as_json: bool,
    print_sql: bool,
    price_per_1k_tokens: float | None,
    price_per_hour: float | None,
    metric: str | None,
    label: str | None,
    **given: Any,
) -> None:
    """Tell what a migration would do and cost; changes nothing."""
    migration = _open(url, **given)
    plan = migration.plan(
        metric=metric,
        label=label,
        price_per_1k_tokens=price_per_1k_tokens,
        price_per_hour=price_per_hour,
    )
    statements = migration.statements(plan.new_dim) if print_sql else []
    if as_json:
        print_json({**plan.to_json(), "sql": statements})
    else:
        _say(plan)
        for statement in statements:
            click.echo(f"{statement};")
    status = migration.status()
    if status.phase == "started" and not given["encoder"]:  # a look at what lies ahead
        _next(following(status), url)
        return
    options = [
        f"--{key} {given[key]}" for key in ("id", "input", "encoder", "distance") if given[key]
    ]
    _next("start", url, *options, "--pairs 2000")


@commands.command("pairs")
@_url
@_describing
@click.option(
    "-n", "wanted", type=click.IntRange(2), default=2_000, show_default=True, help="How many pairs."
)
@_json
def pairs_command(url: str, wanted: int, as_json: bool, **given: Any) -> None:
    """Embed a random sample with the new model: the pairs that the map is learned from."""
    migration = _open(url, **given)
    with Reporter("pairs", as_json) as report, _stoppable(migration):
        have = migration.pairs(wanted, report.rows)
    _say(f"{have:,} rows have both an old and a new vector.")
    if as_json:
        print_json({"pairs": have})
    _next("start", url)


def align_store(url: str, *, method: str = "auto", **options: Any) -> Alignment:
    """Learn from the pairs in a store, for `fastfill align URL -o FILE`."""
    return _open(url, encode=False).align(method=method, **options)


@commands.command("start")
@_url
@_describing
@click.option(
    "--pairs", type=click.IntRange(2), default=2_000, show_default=True, help="To learn from."
)
@click.option("--alignment", type=click.Path(exists=True, dir_okay=False), help="A saved one.")
@click.option("--method", default="auto", show_default=True, help="How the map is learned.")
@click.option(
    "--policy", help="The order of backfilling. [default: mixed; margin with a classifier]"
)
@click.option("--index/--no-index", default=None, help="Build an index on the added column.")
@_json
def start_command(
    url: str,
    pairs: int,
    alignment: str | None,
    method: str,
    policy: str | None,
    index: bool | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Embed pairs, learn the map, align every row: then the new model serves."""
    from fastfill.align import Alignment

    migration = _open(url, **given)
    loaded = None if alignment is None else Alignment.load(alignment)
    with Reporter("start", as_json) as report, _stoppable(migration):
        done = migration.start(
            pairs, loaded, method=method, policy=policy, index=index, progress=report.stage
        )
    status = migration.status()
    _say(
        f"Aligned {done.aligned:,} rows, adopted {done.adopted:,}, {done.waiting:,} wait for their "
        f"first vector. {status.progress.new:,} of {status.progress.total:,} are new. "
        f"Query the column '{added(status)}' with the new model from now on."
    )
    _index_advice(migration)
    if as_json:
        print_json(status_json(status))
    _next("backfill", url)


@commands.command("backfill")
@_url
@click.option("--budget", help="Rows to do in this run: a number, or a share such as 10%.")
@click.option("--max-cost", type=float, help="End when this much has been spent.")
@click.option("--price-per-1k-tokens", type=float, default=0.0, help="To count the cost.")
@click.option("--price-per-hour", type=float, default=0.0, help="To count the cost.")
@click.option("--until", type=float, help="End at this share of the new model's quality: 0.99.")
@_metric
@_label
@click.option("--policy", help="The order. [default: as started]")
@click.option("--rate", help="Rows per second at most: 200 or 200/s.")
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, help="Encoders side by side."
)
@click.option(
    "--batch", type=click.IntRange(1), help="Rows embedded together. [default: 20 s of the encoder]"
)
@click.option("--between", metavar="22:00-06:00", help="Hours of the day in which to work.")
@click.option(
    "--refit", metavar="5%|never", help="Share of the rows after which the map is learned again."
)
@click.option("--retry-failed", is_flag=True, help="Try items again that were set aside.")
@click.option("--no-throttle", is_flag=True, help="Do not make room for the store's queries.")
@click.option(
    "--lease", type=float, default=300.0, help="Seconds after which a dead worker's rows are free."
)
@click.option("--hook", metavar="PROGRAM", help="Called with each event, JSON on stdin.")
@_json
def backfill_command(
    url: str,
    budget: str | None,
    max_cost: float | None,
    until: float | None,
    metric: str | None,
    label: str | None,
    rate: str | None,
    between: str | None,
    refit: str | None,
    retry_failed: bool,
    no_throttle: bool,
    policy: str | None,
    workers: int,
    batch: int | None,
    price_per_1k_tokens: float,
    price_per_hour: float,
    lease: float,
    as_json: bool,
    **given: Any,
) -> None:
    """Re-embed rows with the new model, the worst first, while the gallery serves."""
    from fastfill.migrate import parse_hours

    if not no_throttle:
        # An embedded store works in this process, in threads that begin when it is opened: let
        # those that serve go first.
        os.nice(POLITE)
    migration = _open(url, **given)
    if retry_failed:
        migration.forgive()
    total = migration.status().progress.total
    again: dict[str, Any] = {} if refit is None else {"refit": step_of(refit)}
    _warn_of_agreement(until, metric)
    steps = migration.backfill(
        policy=policy,
        workers=workers,
        until=until,
        metric=metric,
        label=label,
        rows=rows_of(budget, total),
        cost=max_cost,
        rate=None if rate is None else per_second(rate),
        between=None if between is None else parse_hours(between),
        price_per_1k_tokens=price_per_1k_tokens,
        price_per_hour=price_per_hour,
        make_room=not no_throttle,
        batch=batch,
        lease=lease,
        **again,
    )
    with Reporter("backfill", as_json) as report, _stoppable(migration):
        for progress in steps:
            report.progress(progress)
    status = migration.status()
    _say(f"Embedded {progress.written:,} rows. {status.progress}")
    if warning := migration.balance().warning:
        _warn(warning)
    if as_json:
        click.echo(json.dumps(status_json(status)))
    quality = progress.quality
    if quality is not None:
        _say(f"{quality} of the new model's {quality.metric}.")
    enough = until is not None and quality is not None and quality.value >= until
    _after_backfill(url, status, enough)


def _warn_of_agreement(until: float | None, metric: str | None) -> None:
    if until is not None and (metric or "").startswith("agreement"):
        _warn(
            f"{metric} asks for the very neighbours of the new model, right or wrong: it reaches "
            "0.99 only near the end. It is forecast from the pairs, because the new neighbours "
            "are not known before. With a column that tells which answers are right (--label), "
            "quality is measured, and reached sooner."
        )


def _after_backfill(url: str, status: Status, enough: bool) -> None:
    left = status.progress.total - status.progress.new
    if status.set_aside:
        _list_set_aside(status)
    if enough and left > 0:
        _next("complete", url, "--partial")
    elif left == 0:
        _next("complete", url)
    elif left > len(status.set_aside):
        _next("backfill", url)
    else:
        _next("backfill", url, "--retry-failed")
        sys.exit(LEFT_OVER)


def _list_set_aside(status: Status) -> None:
    _warn(f"{len(status.set_aside):,} items could not be embedded and were set aside:")
    for key, error in list(status.set_aside.items())[:20]:
        _say(f"  {key}: {error}")
    if len(status.set_aside) > 20:
        _say("  … all of them: fastfill status URL --json")


@commands.command("status")
@_url
@click.option("--watch", is_flag=True, help="Again every two seconds, until it is complete.")
@_json
def status_command(url: str, watch: bool, as_json: bool) -> None:
    """Tell where the migration stands, counted in the store."""
    migration = _open(url, encode=False)
    while True:
        status = migration.status()
        if as_json:
            print_json({**status_json(status), "history": migration.history()})
        else:
            _say(sentence(status))
            if status.outlook is not None:
                _say(status.outlook)
        if not watch or status.phase in ("complete", "rolled back"):
            break
        time.sleep(2)
    if status.set_aside and not as_json:
        _list_set_aside(status)
    _next(following(status), url)


@commands.command("pause")
@_url
def pause_command(url: str) -> None:
    """Let all workers wait after their batch."""
    _open(url, encode=False).pause()
    _say("Paused: workers wait after their batch.")
    _next("resume", url)


@commands.command("resume")
@_url
@click.option("--rate", help="Another rate for the workers that run: 200 or 200/s.")
def resume_command(url: str, rate: str | None) -> None:
    """Let the workers go on."""
    _open(url, encode=False).resume(None if rate is None else per_second(rate))
    _say("Resumed." if rate is None else f"Resumed with at most {rate} rows per second.")
    _next("status", url)


@commands.command("verify")
@_url
@click.option(
    "--sample", type=click.IntRange(1), default=64, show_default=True, help="Rows to check."
)
@click.option("--no-encoder", is_flag=True, help="Do not embed a sample again.")
@_json
def verify_command(url: str, sample: int, no_encoder: bool, as_json: bool) -> None:
    """Count in the store, embed a sample again and compare."""
    migration = _open(url, encode=not no_encoder)
    found = migration.verify(sample)
    if as_json:
        print_json(found.to_json())
    _say(
        f"{found.progress}\nunsettled rows: {found.unsettled:,}; rows without a vector: "
        f"{found.without_vector:,}; wrong among {found.checked_new:,} new: {len(found.wrong_new):,}"
        f"; wrong among {found.checked_aligned:,} aligned: {len(found.wrong_aligned):,}; "
        f"aligned by an earlier map: {found.earlier:,}"
    )
    _index_advice(migration)
    if not found.good:
        _next("backfill", url)
        sys.exit(LEFT_OVER)
    _next(following(migration.status()), url)


@commands.command("complete")
@_url
@click.option("--drop-old", is_flag=True, help="Drop the old vectors: there is no way back.")
@click.option("--partial", is_flag=True, help="Keep rows that are still aligned as they are.")
def complete_command(url: str, drop_old: bool, partial: bool) -> None:
    """End the migration when every row is new."""
    migration = _open(url, encode=False)
    migration.complete(drop_old=drop_old, partial=partial)
    status = migration.status()
    gone = "The old vectors are gone." if drop_old else "The old vectors are still there."
    _say(f"Complete: the column '{added(status)}' is the gallery. {gone}")
    if not drop_old:
        _next("complete", url, "--drop-old")


@commands.command("rollback")
@_url
def rollback_command(url: str) -> None:
    """Drop what the migration has added; the old vectors are as they were."""
    migration = _open(url, encode=False)
    migration.rollback()
    _say("Rolled back: only the owner's columns are left. Query with the old model.")
    _next("status", url)


def _index_advice(migration: Migration) -> None:
    health = migration.index_health()
    if health.recall is not None:
        _say(f"The index on the added column finds {100 * health.recall:.1f} % of the neighbours.")
    if not health.good:
        _warn("The index is stale: rebuild it with fastfill start URL --index.")
