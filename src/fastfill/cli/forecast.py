"""`fastfill forecast`: the backfilling curve of a gallery, from its pairs alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from fastfill.align.methods import METHOD_NAMES
from fastfill.align.serving import SERVINGS, Serving
from fastfill.cli.main import commands, console, for_people, print_json, say
from fastfill.cli.options import bundled
from fastfill.features import DISTANCES, Distance

if TYPE_CHECKING:
    from rich.console import Console

    from fastfill.features import Pairs
    from fastfill.forecast import Forecast

QUALITIES = (0.9, 0.95, 0.99)
_ANSWERED = {
    "aligned": "",
    "both": ", answered by both models",
    "old": ", answered by the old model",
}


@dataclass(frozen=True)
class ForecastOptions:
    """What is forecast, and for which gallery and queries."""

    items: int
    metric: str | None
    policy: str
    gallery: str | None
    labels: str | None
    gallery_labels: str | None
    queries: str | None
    query_old: str | None
    serving: Serving
    query_labels: str | None
    method: str
    distance: Distance
    seed: int


_OPTIONS = [
    click.option("--items", type=click.IntRange(min=2), required=True,
                 help="Items of the gallery."),
    click.option("--metric", help="Of quality. [default: map with --labels, else agreement@10]"),
    click.option("--policy", default="mixed", show_default=True, help="The order of the backfill."),
    click.option("--gallery",
                 help="Old vectors of the other items, or of a random sample of them."),
    click.option("--labels", help="Labels of the pairs."),
    click.option("--gallery-labels", help="Labels of the items of --gallery."),
    click.option("--queries", help="Real queries under the new model, in the place of the pairs."),
    click.option("--query-old", help="The same queries under the old model, for --serving."),
    click.option("--serving", type=click.Choice(SERVINGS), default="aligned", show_default=True,
                 help="How queries are answered: both and old need --gallery, and --query-old with "
                 "--queries."),
    click.option("--query-labels", help="Labels of the queries, for metrics with labels."),
    click.option("--method", type=click.Choice(METHOD_NAMES), default="auto", show_default=True),
    click.option("--distance", type=click.Choice(DISTANCES), default="l2", show_default=True),
    click.option("--seed", type=int, default=0, show_default=True),
]  # fmt: skip


@commands.command("forecast", short_help="Predict the backfilling curve of a gallery from pairs.")
@click.argument("old")
@click.argument("new")
@bundled(ForecastOptions, "options", _OPTIONS)
@click.option("--json", "as_json", is_flag=True, help="Print the forecast as JSON on stdout.")
def forecast_command(old: str, new: str, options: ForecastOptions, as_json: bool) -> None:
    """Predict the backfilling curve of a gallery from pairs, random items of it.

    OLD and NEW are the vectors of the same items under both models: FILE.npy, FILE.npz:KEY or
    FILE.parquet.
    """
    if options.gallery_labels is not None and options.gallery is None:
        raise click.UsageError("--gallery-labels needs --gallery: the items it belongs to.")
    if options.query_labels is not None and options.queries is None:
        raise click.UsageError("--query-labels needs --queries: the queries it belongs to.")
    if options.serving != "aligned" and (options.queries is None) != (options.query_old is None):
        raise click.UsageError(
            f"--serving {options.serving} needs --queries and --query-old: the same queries under "
            "both models."
        )
    made = _predict(old, new, options, progress=console.is_terminal and not as_json)
    _show(made, for_people(as_json))
    if as_json:
        reached = {f"{share:.0%}": made.reached(share)._asdict() for share in QUALITIES}
        alone = None if made.alone is None else made.alone[:1].tolist()
        print_json(made.to_json() | {"draws": None, "alone": alone, "reached": reached})


def _predict(old: str, new: str, options: ForecastOptions, progress: bool) -> Forecast:
    """Read the files and rehearse the migration."""
    from fastfill.align import FitOptions
    from fastfill.features import read_column, read_features
    from fastfill.forecast import Forecast

    fit = FitOptions(method=options.method, seed=options.seed)
    pairs = _read_pairs(old, new, options.labels)
    metric = options.metric or ("agreement@10" if options.labels is None else "map")
    rest = None if options.gallery is None else read_features(options.gallery)
    labels = None if rest is None else rest.labels
    if options.gallery_labels is not None:
        labels = read_column(options.gallery_labels, "label")
    queries = None
    if options.queries is not None:
        queries = read_features(options.queries, options.query_labels)
    queries_old = None if options.query_old is None else read_features(options.query_old)
    return Forecast.from_pairs(
        pairs, options.items, metric=metric, policy=options.policy,
        distance=options.distance, fit=fit, gallery=None if rest is None else rest.vectors,
        gallery_labels=labels, queries=queries, queries_old=queries_old, serving=options.serving,
        progress=progress,
    )  # fmt: skip


def _read_pairs(old: str, new: str, labels: str | None) -> Pairs:
    from fastfill.features import Features, Pairs, read_column, read_pairs

    pairs = read_pairs(old, new)
    if labels is None:
        return pairs
    named = Features(pairs.new.vectors, pairs.new.ids, read_column(labels, "label"))
    return Pairs(pairs.old, named)


def _show(forecast: Forecast, to: Console) -> None:
    """A few points of the curve, then what an operator asks for."""
    for fraction in (0.0, 0.1, 0.25, 0.5, 0.75, 1.0):
        value, lower, upper = forecast.at(fraction)
        to.print(
            f"{fraction:4.0%} backfilled: {forecast.metric} {value:.3f}, between {lower:.3f} and "
            f"{upper:.3f}", highlight=False,
        )  # fmt: skip
    say(
        f"This holds for {forecast.holds_for}{_ANSWERED[forecast.serving]}"
        f"{'.' if forecast.queries else '; where people ask for something else, give --queries.'}",
        to,
    )
    if not forecast.trusted:
        say(f"Not to be trusted: {forecast.doubt}", to)
    for share in QUALITIES:
        low, middle, high = forecast.reached(share)
        to.print(
            f"{share:.0%} of the new model at {middle:.0%} ({low:.0%} to {high:.0%})",
            highlight=False,
        )
