"""`fastfill align --engine`: learn a map from pairs in pieces, folders or a Lance table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import click

from fastfill.cli.datasets import open_source, refuse_typed
from fastfill.cli.main import console, say
from fastfill.cli.options import bundled
from fastfill.errors import InputError

if TYPE_CHECKING:
    from fastfill.align import Alignment
    from fastfill.features import Distance
    from fastfill.scale import Engine, PairColumns


@dataclass(frozen=True)
class PairOptions:
    """Who reads pairs in pieces, and which columns they are."""

    engine: str | None
    address: str | None
    workers: int
    column: str
    key: str
    sample: int | None
    work: str | None


pair_options = bundled(
    PairOptions,
    "pieces",
    [
        click.option("--engine", type=click.Choice(["local", "ray", "daft"]),
                     help="OLD and NEW are folders of Parquet files, or OLD alone is a folder or a "
                     "Lance table with the columns COLUMN and COLUMN_new."),
        click.option("--address", help="Address of a Ray cluster, for --engine ray or daft."),
        click.option("--workers", type=click.IntRange(min=0), default=0,
                     help="Processes to use with --engine; by default one for each core."),
        click.option("--column", default="vector", show_default=True,
                     help="The column of vectors in folders, for --engine."),
        click.option("--key", default="id", show_default=True,
                     help="The column by which two folders are matched, for --engine."),
        click.option("--sample", type=click.IntRange(min=50), metavar="N",
                     help="Pairs for what cannot be learned from sums, for --engine.  [default: "
                     "5,000; 50,000 for auto and networks]"),
        click.option("--work", metavar="FOLDER", help="Where two folders are matched; on a cluster "
                     "in shared storage.  [default: OUTPUT.work]"),
    ],
)  # fmt: skip

PIECES = {field.name for field in fields(PairOptions)}
ALLOWED = PIECES | {
    "old", "new", "output", "method", "distance", "seed", "old_name", "new_name", "as_json",
}  # fmt: skip


def align_pieces(
    old: str,
    new: str | None,
    output: str,
    pieces: PairOptions,
    *,
    method: str,
    distance: Distance,
    seed: int,
    models: tuple[str, str],
) -> Alignment:
    """Match two folders if there are two, then learn."""
    from fastfill.scale import Folder, fit_over_pieces, open_engine

    refuse_typed(lambda name: name not in ALLOWED, "is for single files: leave it out.")
    engine = open_engine(pieces.engine or "local", address=pieces.address, workers=pieces.workers)
    work = pieces.work or f"{output}.work"
    pairs = _in_one(old, pieces) if new is None else _matched(old, new, work, pieces, engine)
    alignment = fit_over_pieces(
        pairs, method=method, distance=distance, seed=seed, models=models, sample=pieces.sample,
        engine=engine,
    )  # fmt: skip
    if new is not None:
        Folder(work).clear()
    return alignment


def _in_one(old: str, options: PairOptions) -> PairColumns:
    from fastfill.scale import LanceTable, PairColumns

    source = open_source(old)
    if isinstance(source, LanceTable):
        return PairColumns(source.latest(), source.column, f"{source.column}_new")
    return PairColumns(source, options.column, f"{options.column}_new")


def _matched(old: str, new: str, work: str, options: PairOptions, engine: Engine) -> PairColumns:
    from fastfill.cli.progress import counting_bar
    from fastfill.scale import LanceTable, matched_pairs

    for side in (old, new):
        if isinstance(open_source(side), LanceTable):
            raise InputError(f"{side}: only folders are matched. Add the column COLUMN_new to it.")
    with counting_bar(console, "matching", "parts") as tick:
        pairs = matched_pairs(
            old, new, work, key=options.key, column=options.column, engine=engine, tick=tick
        )
    rows = sum(piece.rows for piece in pairs.source.pieces())
    say(f"{rows:,} items are in both folders.")
    return pairs
