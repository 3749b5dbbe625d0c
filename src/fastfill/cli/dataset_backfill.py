"""`fastfill backfill --engine`: embed the rows of a data set at rest, a folder or a Lance table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import click

from fastfill.cli.datasets import check_output, open_source, refuse_typed, run_job
from fastfill.cli.main import say
from fastfill.cli.options import bundled
from fastfill.errors import InputError

if TYPE_CHECKING:
    from fastfill.scale import Engine, JobResult, RankRange


@dataclass(frozen=True)
class AtRestOptions:
    """What a data set at rest is embedded with, by whom, and into what."""

    engine: str | None
    address: str | None
    encoder: str | None
    input: str | None
    column: str
    key: str | None
    from_rank: int
    output: str | None


at_rest_options = bundled(
    AtRestOptions,
    "at_rest",
    [
        click.option("--engine", type=click.Choice(["local", "ray", "daft"]),
                     help="URL is a data set at rest, a folder of Parquet files or a Lance table: "
                     "embed its rows, --workers encoders side by side."),
        click.option("--address", help="Address of a Ray cluster, for --engine ray or daft."),
        click.option("--encoder", help="The new model, for --engine: module:function, "
                     "sentence-transformers:NAME or an https address."),
        click.option("--input", metavar="COLUMN", help="What is to be encoded, for --engine."),
        click.option("--column", default="vector", show_default=True,
                     help="The column of old vectors in a folder: COLUMN_new is added, and "
                     "--budget goes by COLUMN_rank."),
        click.option("--key", help="Write only this column of a folder and the added one."),
        click.option("--from-rank", type=click.IntRange(0), default=0, help="Rows before this rank "
                     "were embedded by a former run; --budget counts from it on."),
        click.option("-o", "--output", help="The folder to write, for a folder with --engine."),
    ],
)  # fmt: skip

AT_REST = {field.name for field in fields(AtRestOptions)}
SHARED = {"url", "workers", "budget", "as_json"}


def embed_at_rest(
    url: str, options: AtRestOptions, workers: int, budget: str | None, as_json: bool
) -> None:
    """Embed the rows of a folder or a Lance table, all of them or those of the first ranks."""
    from fastfill.scale import EmbedRows, LanceTable, embed_folder, embed_table
    from fastfill.wiring import open_encoder

    wrong = "belongs to a live migration: leave it out with --engine."
    refuse_typed(lambda name: name not in AT_REST | SHARED, wrong)
    if options.encoder is None or options.input is None:
        raise InputError("Give --encoder, the new model, and --input, the column to encode.")
    target, source = check_output(url, options.output), open_source(url)
    column = source.column if isinstance(source, LanceTable) else options.column
    total = partial(_rows, url)
    rows = EmbedRows(
        partial(open_encoder, options.encoder), options.encoder, options.input, f"{column}_new",
        _ranks(f"{column}_rank", options.from_rank, budget, total),
    )  # fmt: skip
    engine = _engine(options, workers)

    def job(tick: Callable[[int, int], None]) -> JobResult:
        if isinstance(source, LanceTable):
            return embed_table(rows, source, engine=engine, tick=tick)
        return embed_folder(rows, url, target, key=options.key, engine=engine, tick=tick)

    run_job("embedding", job, target, as_json)


def _rows(url: str) -> int:
    return sum(piece.rows for piece in open_source(url).pieces())


def _ranks(
    column: str, first: int, budget: str | None, total: Callable[[], int]
) -> RankRange | None:
    """The ranks of a budget; all rows, with a rank or without, where there is none."""
    from fastfill.cli.backfill import rows_of
    from fastfill.scale import RankRange

    rows = rows_of(budget, total)
    if rows is None and not first:
        return None
    return RankRange(column, first, first + (total() if rows is None else rows))


def _engine(options: AtRestOptions, workers: int) -> Engine:
    """With Ray, actors that keep their encoder; one that is lost is started again."""
    from fastfill.scale import open_engine

    if options.engine == "ray":
        from fastfill.scale.engines.ray import RayEngine

        return RayEngine(options.address, workers, actors=workers, tell=say)
    return open_engine(options.engine or "local", address=options.address, workers=workers)
