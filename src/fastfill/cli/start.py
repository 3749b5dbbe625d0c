"""The beginning of a migration: `fastfill plan`, `pairs`, `start`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from fastfill.cli.main import commands, for_people, print_json, say
from fastfill.cli.metrics_serving import MetricsOptions, metrics_options, served_metrics
from fastfill.cli.opening import (
    GalleryOptions,
    advise_on_index,
    gallery_options,
    json_option,
    label_option,
    metric_option,
    open_by_url,
    say_next,
    stoppable,
    url_argument,
)
from fastfill.cli.options import bundled
from fastfill.cli.reporting import Reporter
from fastfill.cli.status_text import added, following, serving_lines, status_json
from fastfill.errors import InputError

if TYPE_CHECKING:
    from fastfill.align import ServingOption
    from fastfill.gallery import LayoutOption
    from fastfill.migrate import Migration, QuerySet
    from fastfill.migrate.encoding import Encode

PAIRS = 2_000
WILL_MEASURE = (
    "serve with: measured at the end of start, on queries of yours if you give some (--queries), "
    "else on the pairs; until then nothing changes for searches"
)


@dataclass(frozen=True)
class ServingWords:
    """How to serve, and on what to measure it, as typed."""

    serving: ServingOption | None
    queries: str | None
    judgements: str | None
    old_encoder: str | None

    def opened(self) -> tuple[QuerySet | None, Encode | None]:
        """The queries and the old model, read and loaded."""
        from fastfill.migrate import QuerySet
        from fastfill.wiring import open_encoder

        if self.judgements is not None and self.queries is None:
            raise InputError("Judgements are of queries: give these too, with --queries.")
        queries = None if self.queries is None else QuerySet.read(self.queries, self.judgements)
        return queries, None if self.old_encoder is None else open_encoder(self.old_encoder)


_serving_options = bundled(
    ServingWords,
    "serving",
    [
        click.option(
            "--serving",
            type=click.Choice(["auto", "old", "aligned", "both"]),
            help="How readers search; auto, the default: what measures best.",
        ),
        click.option(
            "--queries",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            help="To measure it on: texts (.jsonl, or one on a line), or an .npz with old and new.",
        ),
        click.option(
            "--judgements",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            help="Which items are right for which queries (TREC or BEIR), or were clicked.",
        ),
        click.option(
            "--old-encoder", metavar="NAME", help="The old model, to embed queries that are texts."
        ),
    ],
)


_layout_option = click.option(
    "--layout",
    type=click.Choice(["auto", "columns", "side"]),
    default="auto",
    show_default=True,
    help="Add columns to the table, or a table beside it (PostgreSQL); auto: what suits it.",
)


def _say_layout(migration: Migration, layout: LayoutOption) -> None:
    """Where what is added goes, and why, where the store leaves a choice."""
    chosen = migration.layout(layout)
    if not chosen.only:
        say(str(chosen))


@commands.command("plan")
@url_argument
@gallery_options
@click.option("--price-per-1k-tokens", type=float, help="To tell the cost.")
@click.option("--price-per-hour", type=float, help="To tell the cost.")
@click.option("--print-sql", is_flag=True, help="Show the statements that would run (PostgreSQL).")
@_layout_option
@metric_option
@label_option
@json_option
def plan_command(
    url: str,
    gallery: GalleryOptions,
    price_per_1k_tokens: float | None,
    price_per_hour: float | None,
    print_sql: bool,
    layout: LayoutOption,
    metric: str | None,
    label: str | None,
    as_json: bool,
) -> None:
    """Tell what a migration would do and cost; changes nothing."""
    migration = open_by_url(url, gallery)
    plan = migration.plan(
        metric=metric,
        label=label,
        price_per_1k_tokens=price_per_1k_tokens,
        price_per_hour=price_per_hour,
        layout=layout,
    )
    statements = migration.statements(plan.new_dim, layout) if print_sql else []
    if as_json:
        print_json({**plan.to_json(), "sql": statements})
    else:
        for statement in statements:
            click.echo(f"{statement};")
    status, people = migration.status(), for_people(print_sql)
    if not as_json:
        for line in (str(plan), *(serving_lines(status) or [WILL_MEASURE])):
            say(line, people)
    if status.phase == "started" and not gallery.encoder:  # a look at what lies ahead
        say_next(following(status), url)
    else:
        told = [] if layout == "auto" else [f"--layout {layout}"]
        say_next("start", url, *gallery.as_typed(), f"--pairs {PAIRS}", *told)


@commands.command(
    "pairs", short_help="Embed a random sample by the new model, to learn a map from."
)
@url_argument
@gallery_options
@click.option(
    "-n", "wanted", type=click.IntRange(2), default=PAIRS, show_default=True, help="How many pairs."
)
@_layout_option
@json_option
def pairs_command(
    url: str, gallery: GalleryOptions, wanted: int, layout: LayoutOption, as_json: bool
) -> None:
    """Embed a random sample with the new model: the pairs that the map is learned from."""
    migration = open_by_url(url, gallery)
    _say_layout(migration, layout)
    with Reporter("pairs", as_json) as report, stoppable(migration):
        have = migration.pairs(wanted, report.rows, layout=layout)
    say(f"{have:,} rows have both an old and a new vector.")
    if as_json:
        print_json({"pairs": have})
    say_next("start", url)


@commands.command("start", short_help="Embed pairs, learn the map, align every row; then serve.")
@url_argument
@gallery_options
@click.option("--pairs", type=click.IntRange(2), help=f"To learn from. [default: {PAIRS}]")
@click.option("--alignment", type=click.Path(exists=True, dir_okay=False), help="A saved one.")
@click.option("--method", help="How the map is learned. [default: auto]")
@click.option(
    "--policy", help="The order of backfilling. [default: mixed; margin with a classifier]"
)
@click.option("--index/--no-index", default=None, help="Build an index on the added column.")
@_layout_option
@click.option(
    "--allow-trigger",
    is_flag=True,
    help="Let a trigger on your table note what others write (PostgreSQL, layout side).",
)
@_serving_options
@label_option
@metrics_options
@json_option
def start_command(
    url: str,
    gallery: GalleryOptions,
    pairs: int | None,
    alignment: str | None,
    method: str | None,
    policy: str | None,
    index: bool | None,
    layout: LayoutOption,
    allow_trigger: bool,
    serving: ServingWords,
    label: str | None,
    metrics: MetricsOptions,
    as_json: bool,
) -> None:
    """Embed pairs, learn the map, align every row; then serve with what measured best.

    A start that was killed goes on by the same command; options that are left out are as before.
    """
    from fastfill.align import Alignment
    from fastfill.page import RunFigures

    figures = RunFigures()
    migration = open_by_url(url, gallery, listener=figures.on_event)
    loaded = None if alignment is None else Alignment.load(alignment)
    queries, encode_old = serving.opened()
    _say_layout(migration, layout)
    if migration.prompts:
        say(f"The encoder {migration.prompts}.")
    with (
        served_metrics(metrics, migration, figures),
        Reporter("start", as_json, also=figures.on_stage) as report,
        stoppable(migration),
    ):
        done = migration.start(
            pairs,
            loaded,
            policy=policy,
            method=method,
            index=index,
            serving=serving.serving,
            queries=queries,
            encode_old=encode_old,
            label=label,
            layout=layout,
            allow_trigger=allow_trigger,
            progress=report.stage,
        )
    status = migration.status()
    say(
        f"Aligned {done.aligned:,} rows, adopted {done.adopted:,}, {done.waiting:,} wait for their "
        f"first vector. {status.progress.new:,} of {status.progress.total:,} are new, in column "
        f"'{added(status)}'."
    )
    for line in serving_lines(status):
        say(line)
    advise_on_index(migration)
    if as_json:
        print_json(status_json(status))
    say_next(following(status), url)
