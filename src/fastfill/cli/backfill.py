"""The work of a migration: `fastfill backfill`, `pause`, `resume`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from fastfill.cli.dataset_backfill import AT_REST, AtRestOptions, at_rest_options, embed_at_rest
from fastfill.cli.datasets import refuse_typed
from fastfill.cli.main import commands, console, say
from fastfill.cli.metrics_serving import MetricsOptions, metrics_options, served_metrics
from fastfill.cli.opening import (
    LEFT_OVER,
    STOPPED,
    GalleryOptions,
    hook_option,
    json_option,
    label_option,
    metric_option,
    open_by_url,
    say_next,
    stoppable,
    url_argument,
    warn,
)
from fastfill.cli.options import bundled
from fastfill.cli.reporting import Reporter
from fastfill.cli.status_text import following, retrying, serving_lines, status_json
from fastfill.errors import InputError, RolledBackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from fastfill.migrate import Migration, Progress, Status

NICE = 10  # of 19: how far this process stands back for others on the machine

MORE = 1.05  # quality from which on the new model alone is surely the weaker one


@dataclass(frozen=True)
class BackfillWords:
    """The options of `fastfill backfill` as they were typed."""

    budget: str | None
    max_cost: float | None
    price_per_1k_tokens: float | None
    price_per_hour: float | None
    until: float | None
    metric: str | None
    label: str | None
    policy: str | None
    rate: str | None
    workers: int
    batch: int | None
    between: str | None
    refit: str | None
    no_throttle: bool
    lease: float
    reconnect: float


_options = bundled(
    BackfillWords,
    "words",
    [
        click.option("--budget", help="Rows to do in this run: a number, or a share such as 10%."),
        click.option(
            "--max-cost", type=float, help="Spend no more than this; needs one of the prices."
        ),
        click.option("--price-per-1k-tokens", type=float, help="To count the cost."),
        click.option("--price-per-hour", type=float, help="To count the cost."),
        click.option(
            "--until", type=float, help="End at this share of the new model's quality: 0.99."
        ),
        metric_option,
        label_option,
        click.option("--policy", help="The order. [default: as started]"),
        click.option("--rate", help="Rows per second at most: 200 or 200/s."),
        click.option(
            "--workers",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="Encoders side by side.",
        ),
        click.option(
            "--batch",
            type=click.IntRange(1),
            help="Rows embedded together. [default: 20 s of the encoder]",
        ),
        click.option("--between", metavar="22:00-06:00", help="Hours of the day in which to work."),
        click.option(
            "--refit",
            metavar="5%|never",
            help="Share of the rows after which the map is learned again.",
        ),
        click.option(
            "--no-throttle", is_flag=True, help="Do not slow down for the store's queries."
        ),
        click.option(
            "--lease",
            type=float,
            default=300.0,
            show_default=True,
            help="Seconds after which a dead worker's rows are free.",
        ),
        click.option(
            "--reconnect",
            type=float,
            default=120.0,
            show_default=True,
            help="Seconds for which to try again when the store cannot be reached.",
        ),
    ],
)


@commands.command("backfill", short_help="Re-embed rows by the new model, the worst first.")
@url_argument
@_options
@at_rest_options
@click.option("--retry-failed", is_flag=True, help="Try items again that were quarantined.")
@hook_option
@metrics_options
@json_option
def backfill_command(
    url: str,
    words: BackfillWords,
    at_rest: AtRestOptions,
    retry_failed: bool,
    hook: str | None,
    metrics: MetricsOptions,
    as_json: bool,
) -> None:
    """Re-embed rows with the new model, the worst first, while the gallery serves.

    With --engine, URL is a data set at rest instead, a folder of Parquet files, here or in object
    storage, or a Lance table that nobody migrates: its rows are embedded piece by piece into the
    column COLUMN_new, all of them or --budget of them by COLUMN_rank, and a run that was killed
    goes on where it was.
    """
    if at_rest.engine is not None:
        embed_at_rest(url, at_rest, words.workers, words.budget, as_json)
    else:
        refuse_typed(AT_REST.__contains__, "is for a data set at rest: give --engine too.")
        _backfill_live(url, words, retry_failed, hook, metrics, as_json)


def _backfill_live(
    url: str,
    words: BackfillWords,
    retry_failed: bool,
    hook: str | None,
    metrics: MetricsOptions,
    as_json: bool,
) -> None:
    from fastfill.page import RunFigures

    if not words.no_throttle:
        # An embedded store works in this process, in threads that begin when it is opened: let
        # those that serve go first.
        os.nice(NICE)
    figures = RunFigures()
    migration = open_by_url(url, GalleryOptions(hook=hook), listener=figures.on_event)
    if words.until is not None:
        _warn_of_agreement(words.metric)
    steps = _begin(migration, words)
    if retry_failed:
        migration.retry_failed()
    with (
        served_metrics(metrics, migration, figures),
        Reporter("backfill", as_json) as report,
        stoppable(migration),
    ):
        try:
            for progress in steps:
                figures.on_progress(progress)
                report.progress(progress)
        except RolledBackError as ended:
            say(str(ended))
            sys.exit(STOPPED)
    _show(migration, url, progress, words.until, as_json)


def _begin(migration: Migration, words: BackfillWords) -> Iterator[Progress]:
    """Everything that was typed is checked here; the work begins with the first step."""
    from fastfill.migrate import REFIT_EVERY, parse_hours

    return migration.backfill(
        until=words.until,
        metric=words.metric,
        label=words.label,
        policy=words.policy,
        workers=words.workers,
        rows=rows_of(words.budget, lambda: migration.status().progress.total),
        cost=words.max_cost,
        price_per_1k_tokens=words.price_per_1k_tokens,
        price_per_hour=words.price_per_hour,
        rate=None if words.rate is None else per_second(words.rate),
        between=None if words.between is None else parse_hours(words.between),
        refit=REFIT_EVERY if words.refit is None else step_of(words.refit),
        throttle=not words.no_throttle,
        batch=words.batch,
        lease=words.lease,
        reconnect=words.reconnect,
    )


def _show(
    migration: Migration, url: str, last: Progress, until: float | None, as_json: bool
) -> None:
    """What was done, how good it is, and what comes next."""
    status, quality = migration.status(), last.quality
    say(f"Embedded {last.written:,} rows. {status.progress}")
    if last.cost:
        say(f"This run has cost about {last.cost:.4g}.")
    for line in serving_lines(status):
        say(line)
    if warning := migration.balance().warning:
        warn(warning)
    if as_json:
        click.echo(json.dumps(status_json(status)))
    if quality is not None:
        say(f"{quality} of the new model's {quality.metric}.")
        if quality.value > MORE and status.serving.serving != "aligned":
            warn(
                "What serves now is better than the new model alone is expected to be when every "
                "row is new."
            )
    enough = until is not None and quality is not None and quality.value >= until
    _after_backfill(url, status, enough)


def _warn_of_agreement(metric: str | None) -> None:
    if (metric or "").startswith("agreement"):
        warn(
            f"{metric} asks for the very neighbours of the new model, right or wrong: it reaches "
            "0.99 only near the end. It is forecast from the pairs, because the new neighbours "
            "are not known before. With a column that tells which answers are right (--label), "
            "quality is measured, and reached sooner."
        )


def _after_backfill(url: str, status: Status, enough: bool) -> None:
    left = status.progress.total - status.progress.new
    if status.quarantined:
        list_quarantined(status)
    if enough and left > 0:
        say_next("complete", url, "--partial")
        return
    again = retrying(status)
    if again:
        say("Their aligned vectors go on serving; complete --partial keeps these for good.")
    say_next(following(status), url, *again)
    if again:
        sys.exit(LEFT_OVER)


def list_quarantined(status: Status, to: Console = console) -> None:
    """The first items that could not be embedded, with the reason."""
    failed = len(status.quarantined)
    things = "1 item could not be embedded and is" if failed == 1 else None
    warn(f"{things or f'{failed:,} items could not be embedded and are'} quarantined:", to)
    for key, error in list(status.quarantined.items())[:20]:
        say(f"  {key}: {error}", to)
    if len(status.quarantined) > 20:
        say("  … all of them: fastfill status URL --json", to)


@commands.command("pause")
@url_argument
def pause_command(url: str) -> None:
    """Let all workers wait after their batch."""
    open_by_url(url, encode=False).pause()
    say("Paused: workers wait after their batch.")
    say_next("resume", url)


@commands.command("resume")
@url_argument
@click.option("--rate", help="Another rate for the workers that run: 200 or 200/s.")
def resume_command(url: str, rate: str | None) -> None:
    """Let the workers go on."""
    open_by_url(url, encode=False).resume(None if rate is None else per_second(rate))
    say(
        "Resumed."
        if rate is None
        else f"Resumed with at most {per_second(rate):g} rows per second."
    )
    say_next("status", url)


# --- what is typed -------------------------------------------------------------------------------


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
    if not 0 < number < float("inf") or (budget.endswith("%") and number > 100):
        raise InputError(
            f"A budget is at least one row, or a share up to 100%, not {budget}. To look first: "
            "fastfill status."
        )
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
