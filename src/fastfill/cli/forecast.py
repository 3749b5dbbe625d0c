"""`fastfill forecast`: the backfilling curve of a gallery, from its pairs alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fastfill.cli.align import METHODS
from fastfill.cli.main import commands, console, print_json
from fastfill.features import DISTANCES, Distance

if TYPE_CHECKING:
    from fastfill.evaluate import Forecast

QUALITIES = (0.9, 0.95, 0.99)


@commands.command()
@click.argument("old")
@click.argument("new")
@click.option("--items", type=click.IntRange(min=2), required=True, help="Items of the gallery.")
@click.option("--metric", default="agreement@10", show_default=True)
@click.option("--policy", default="mixed", show_default=True, help="The order of the backfill.")
@click.option("--gallery", help="Old vectors of the other items, or of a random sample of them.")
@click.option("--labels", help="Labels of the pairs.")
@click.option("--gallery-labels", help="Labels of the items of --gallery.")
@click.option("--queries", help="Real queries under the new model, in the place of the pairs.")
@click.option("--query-labels", help="Labels of the queries, for metrics with labels.")
@click.option("--method", type=click.Choice(METHODS), default="auto", show_default=True)
@click.option("--distance", type=click.Choice(DISTANCES), default="l2", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the forecast as JSON on stdout.")
def forecast(
    old: str,
    new: str,
    items: int,
    metric: str,
    policy: str,
    gallery: str | None,
    labels: str | None,
    gallery_labels: str | None,
    queries: str | None,
    query_labels: str | None,
    method: str,
    distance: Distance,
    seed: int,
    as_json: bool,
) -> None:
    """Predict the backfilling curve of a gallery from pairs, random items of it.

    OLD and NEW are the vectors of the same items under both models: FILE.npy, FILE.npz:KEY or
    FILE.parquet.
    """
    from fastfill.evaluate import Forecast
    from fastfill.features import Features, Pairs, read_column, read_features, read_pairs

    if gallery_labels is not None and gallery is None:
        raise click.UsageError("--gallery-labels needs --gallery: the items it belongs to.")
    if query_labels is not None and queries is None:
        raise click.UsageError("--query-labels needs --queries: the queries it belongs to.")
    pairs = read_pairs(old, new)
    if labels is not None:
        known = Features(pairs.new.vectors, pairs.new.ids, read_column(labels, "label"))
        pairs = Pairs(pairs.old, known)
    rest = None if gallery is None else read_features(gallery)
    names = None if rest is None else rest.labels
    found = Forecast.from_pairs(
        pairs, items, metric=metric, policy=policy, distance=distance, method=method,
        gallery=None if rest is None else rest.vectors,
        gallery_labels=names if gallery_labels is None else read_column(gallery_labels, "label"),
        queries=None if queries is None else read_features(queries, query_labels),
        seed=seed, progress=console.is_terminal and not as_json,
    )  # fmt: skip
    _show(found)
    if as_json:
        reached = {f"{share:.0%}": found.reached(share)._asdict() for share in QUALITIES}
        print_json(found.to_json() | {"draws": None, "reached": reached})


def _show(found: Forecast) -> None:
    """A few points of the curve, then what an operator asks for."""
    for fraction in (0.0, 0.1, 0.25, 0.5, 0.75, 1.0):
        value, lower, upper = found.at(fraction)
        console.print(
            f"{fraction:4.0%} backfilled: {found.metric} {value:.3f}, between {lower:.3f} and "
            f"{upper:.3f}", highlight=False,
        )  # fmt: skip
    for share in QUALITIES:
        low, middle, high = found.reached(share)
        console.print(
            f"{share:.0%} of the new model at {middle:.0%} ({low:.0%} to {high:.0%})",
            highlight=False,
        )
