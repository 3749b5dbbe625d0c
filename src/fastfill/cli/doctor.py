"""A look at a gallery before it is migrated: `fastfill doctor`."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

import click
from rich.text import Text

from fastfill.cli.main import commands, print_folded, print_json, results, say
from fastfill.cli.opening import json_option, url_argument
from fastfill.errors import StoreError

if TYPE_CHECKING:
    from fastfill.migrate import Diagnosis

SIGNS = {"ok": "[green]ok[/]     ", "warning": "[yellow]warning[/]", "problem": "[red]problem[/]"}


@commands.command(
    "doctor", short_help="Tell what stands in the way of a migration; changes nothing."
)
@url_argument
@click.option("--id", metavar="COLUMN", help="The key of the items. [default: id]")
@click.option("--input", metavar="COLUMN", help="What is to be encoded: text, bytes, path.")
@click.option(
    "--distance",
    type=click.Choice(["l2", "cosine", "ip"]),
    help="Distance of the search. [default: that of the store's index]",
)
@click.option("--dim", type=click.IntRange(1), help="Dimensions of the new model, for the space.")
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Random rows to look at one by one.",
)
@json_option
def doctor_command(
    url: str,
    id: str | None,
    input: str | None,
    distance: str | None,
    dim: int | None,
    sample: int,
    as_json: bool,
) -> None:
    """Tell what stands in the way of a migration; changes nothing, exit code 1 if anything does."""
    from fastfill.gallery import Gallery
    from fastfill.migrate import Diagnosis, diagnose
    from fastfill.wiring import open_store

    try:
        with closing(open_store(url)) as store:
            gallery = Gallery(store, id=id, input=input, distance=distance)
            diagnosis = diagnose(gallery, sample=sample, dim=dim)
    except StoreError as error:  # such as a column that holds no vectors
        diagnosis = Diagnosis.refused(url.rpartition("#")[2], error)
    if as_json:
        print_json(diagnosis.to_json())
    else:
        _show(diagnosis)
    sys.exit(0 if diagnosis.good else 1)


def _show(diagnosis: Diagnosis) -> None:
    if diagnosis.sampled:
        sample = "a random sample of" if diagnosis.random else "the first"
        whole = diagnosis.sampled >= diagnosis.rows
        looked = "all of them" if whole else f"{sample} {diagnosis.sampled:,} of them"
        rows = f"{diagnosis.rows:,} rows; {looked} were looked at one by one."
        say(f"{diagnosis.store}: {rows}", results)
    for check in diagnosis.checks:
        text = Text(f"{check.name}: {check.text.rstrip('.')}.")
        print_folded(SIGNS[check.level], text, to=results)
