"""`fastfill curve --engine`: the exact curve of a gallery in pieces, a folder or a Lance table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import click

from fastfill.cli import evaluation
from fastfill.cli.datasets import open_source, refuse_typed
from fastfill.cli.findings import command_line, show
from fastfill.cli.main import console
from fastfill.cli.options import bundled

if TYPE_CHECKING:
    from fastfill.cli.evaluation import EvaluationOptions
    from fastfill.scale import GalleryColumns


@dataclass(frozen=True)
class PieceOptions:
    """Who counts a gallery in pieces, and which of its columns."""

    engine: str | None
    address: str | None
    workers: int
    column: str
    label: str


piece_options = bundled(
    PieceOptions,
    "pieces",
    [
        click.option("--engine", type=click.Choice(["local", "ray", "daft"]),
                     help="FILE is a gallery in pieces, a folder of Parquet files or a Lance "
                     "table, with the columns COLUMN_aligned, COLUMN_new and COLUMN_rank."),
        click.option("--address", help="Address of a Ray cluster, for --engine ray or daft."),
        click.option("--workers", type=click.IntRange(min=0), default=0,
                     help="Processes to use with --engine; by default one for each core."),
        click.option("--column", default="vector", show_default=True,
                     help="What the columns of a folder are called, for --engine."),
        click.option("--label", metavar="COLUMN", default="label", show_default=True,
                     help="The labels of the items, for --engine."),
    ],
)  # fmt: skip


PIECES = {field.name for field in fields(PieceOptions)}
ALLOWED = PIECES | {
    "file", "query_new", "query_labels", "metrics", "points", "distance", "title", "output",
    "as_json",
}  # fmt: skip


def curve_over_pieces(file: str | None, pieces: PieceOptions, options: EvaluationOptions) -> None:
    """Count in every piece, add up, show."""
    from fastfill.cli.progress import counting_bar
    from fastfill.evaluate import Findings
    from fastfill.features import read_column
    from fastfill.scale import curves_over_pieces, open_engine

    refuse_typed(
        lambda name: name not in ALLOWED, "is for galleries in files: leave it out with --engine."
    )
    if file is None or options.query_new is None:
        raise click.UsageError("--engine needs a gallery (FILE) and its queries (--query-new).")
    distance = options.distance or "l2"
    gallery = _columns(file, pieces)
    queries = evaluation.read_vectors(options.query_new, distance)
    labels = queries.labels
    if options.query_labels is not None:
        labels = read_column(options.query_labels, "label")
    if labels is None:
        raise click.UsageError("The queries have no labels: give them as --query-labels FILE.")
    engine = open_engine(pieces.engine or "local", address=pieces.address, workers=pieces.workers)
    with counting_bar(console, "counting", "pieces") as tick:
        curves = curves_over_pieces(
            gallery, queries.vectors, labels, metrics=options.metrics or "cmc@1,cmc@5,map",
            points=options.points, distance=distance, engine=engine, tick=tick,
        )  # fmt: skip
    title = options.title or f"Backfilling curves of {file}"
    levels = {name: {"new/new": curve.end} for name, curve in curves.items()}
    found = Findings(title, list(curves.values()), levels=levels, command=command_line())
    show(found, options.output, options.as_json)


def _columns(file: str, options: PieceOptions) -> GalleryColumns:
    from fastfill.scale import GalleryColumns, LanceTable

    source = open_source(file)
    column = options.column
    if isinstance(source, LanceTable):
        source, column = source.latest(), source.column
    return GalleryColumns(
        source, f"{column}_aligned", f"{column}_new", f"{column}_rank", options.label
    )
