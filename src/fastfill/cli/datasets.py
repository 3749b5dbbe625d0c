"""What commands share where they work on a folder or a Lance table, not on a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fastfill.cli.main import console, print_json, say
from fastfill.errors import InputError
from fastfill.wiring import is_url

if TYPE_CHECKING:
    from fastfill.scale import Engine, JobResult, LanceTable, ParquetFolder

LANCE = "lance://"


@dataclass(frozen=True)
class EngineOptions:
    """Who runs the pieces of a data set, and which of its columns are used."""

    engine: str
    address: str | None
    workers: int
    column: str
    key: str | None

    def open(self) -> Engine:
        """The engine; refuses one that is not installed before anything is read."""
        from fastfill.scale import open_engine

        return open_engine(self.engine, address=self.address, workers=self.workers)


ENGINE_OPTIONS = [
    click.option("--engine", type=click.Choice(["local", "ray", "daft"]), default="local",
                 show_default=True, help="What runs the pieces of a folder or a Lance table."),
    click.option("--address", help="Address of a Ray cluster, for --engine ray or daft."),
    click.option("--workers", type=click.IntRange(min=0), default=0,
                 help="Processes to use; by default one for each core."),
    click.option("--column", default="vector", show_default=True,
                 help="The column of old vectors in a folder of Parquet files."),
    click.option("--key", help="Write only this column of a folder and the added ones."),
]  # fmt: skip


def is_dataset(old: str) -> bool:
    """Is it a folder, local or in object storage, or a Lance table?

    >>> is_dataset("lance://./data#photos.vector"), is_dataset("old.npy")
    (True, False)
    """
    return "://" in old or Path(old).is_dir()


def check_output(old: str, output: str | None) -> str:
    """Where files are written to; a Lance table is its own output."""
    if old.startswith(LANCE):
        if output is not None:
            raise InputError(f"{old} gets the columns itself: leave out -o {output}.")
        return old
    if output is None:
        raise InputError(f"Say where the results of {old} are written to: -o OUT.")
    return output


def open_source(data: str) -> ParquetFolder | LanceTable:
    """The data set at rest of a URL or a path."""
    from fastfill.scale import LanceTable, ParquetFolder

    if data.startswith(LANCE):
        return LanceTable.from_url(data)
    if is_url(data):
        raise InputError(
            f"{data} is a live store, and engines work on data at rest: a folder of Parquet files "
            "or a Lance table. Leave out --engine for a live migration."
        )
    return ParquetFolder(data)


def refuse_typed(wrong: Callable[[str], bool], why: str) -> None:
    """Refuse options that were typed and are wrong here, by the names that click gives them."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if typed and wrong(name):
            raise click.UsageError(f"{parameter.opts[0]} {why}")


def refuse_for_datasets(options: dict[str, object]) -> None:
    """Refuse options of files, which a data set in pieces cannot have."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InputError(
            f"{given[0]} belongs to a single file. Leave it out for a folder or a Lance table."
        )


def refuse_for_files(options: EngineOptions) -> None:
    """Refuse options of data sets, which a single file is not."""
    given = {"--engine": options.engine != "local", "--address": options.address,
             "--workers": options.workers, "--key": options.key}  # fmt: skip
    for name in [name for name, value in given.items() if value]:
        raise InputError(f"{name} is for folders of Parquet files and Lance tables. Leave it out.")


def run_job(
    what: str,
    job: Callable[[Callable[[int, int], None]], JobResult],
    target: str,
    as_json: bool,
    again: str = "Run the same command again to fill them in.",
) -> None:
    """Run it under a bar, and say what it has done; `again` says how late rows are dealt with."""
    from fastfill.cli.progress import counting_bar

    with counting_bar(console, what, "pieces") as tick:
        result = job(tick)
    before = result.pieces - result.done
    resumed = f", {before:,} of them finished before" if before > 0 else ""
    say(f"Done: {result.rows:,} rows in {result.pieces:,} pieces{resumed}, in {target}.")
    if result.left:
        late = f"{result.left:,} rows that others appended meanwhile have nothing in these columns."
        say(f"{late} {again}")
    if as_json:
        facts = {"rows": result.rows, "pieces": result.pieces, "done": result.done,
                 "left": result.left}  # fmt: skip
        print_json({**facts, "output": target})
