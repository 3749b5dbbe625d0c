"""The end of a migration: `fastfill complete`, `rollback`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from fastfill.cli.main import commands, print_json, say
from fastfill.cli.opening import (
    GalleryOptions,
    json_option,
    open_by_url,
    say_next,
    url_argument,
    where_option,
)
from fastfill.cli.status_text import added, status_json

if TYPE_CHECKING:
    from fastfill.migrate import Migration, Status


@commands.command("complete")
@url_argument
@click.option("--drop-old", is_flag=True, help="Drop the old vectors: there is no way back.")
@click.option("--partial", is_flag=True, help="Keep rows that are still aligned as they are.")
@click.option("--swap", is_flag=True, help="Give the new vectors the name of the old ones.")
@click.option("--no-encoder", is_flag=True, help="Do not embed a few rows again to compare them.")
@where_option
@json_option
def complete_command(
    url: str,
    drop_old: bool,
    partial: bool,
    swap: bool,
    no_encoder: bool,
    where: tuple[str, ...],
    as_json: bool,
) -> None:
    """End the migration when every row is new."""
    encode: Literal[False, "to check"] = False if no_encoder else "to check"
    migration = open_by_url(url, GalleryOptions(where=where), encode=encode)
    migration.complete(drop_old=drop_old, partial=partial, swap=swap)
    status = _end(migration, as_json)
    dropped = status.state is not None and status.state.drop_old
    gone = "The old vectors are gone." if dropped else "The old vectors are still there."
    say(f"Complete: the column '{added(status)}' is the gallery. {gone}")
    if swap:
        back = "" if dropped else " Back: fastfill swap-back."
        say(f"Let the application embed by the new model from now on.{back}")
    if status.state is not None and status.state.columns.layout == "side":
        say(
            "The new ones are in FastFill's own table, beside yours: complete --swap tells how to "
            "move them."
        )
    elif not dropped:
        say_next("complete", url, "--drop-old")


@commands.command("swap-back")
@url_argument
@where_option
@json_option
def swap_back_command(url: str, where: tuple[str, ...], as_json: bool) -> None:
    """Give the old vectors their name back, after complete --swap."""
    migration = open_by_url(url, GalleryOptions(where=where), encode=False)
    migration.swap_back()
    status = _end(migration, as_json)
    say(f"Swapped back: the new vectors are in '{added(status)}' again.")
    say_next("complete", url, "--swap")


@commands.command("rollback", short_help="Drop what the migration has added; the old vectors stay.")
@url_argument
@where_option
@json_option
def rollback_command(url: str, where: tuple[str, ...], as_json: bool) -> None:
    """Drop what the migration has added; the old vectors are as they were."""
    migration = open_by_url(url, GalleryOptions(where=where), encode=False)
    dropped = migration.rollback()
    _end(migration, as_json)
    if not dropped:
        say("It was rolled back before: nothing is left to do.")
    else:
        say("Rolled back: only the owner's columns are left. Query with the old model.")
    say_next("status", url)


def _end(migration: Migration, as_json: bool) -> Status:
    """Say where it stands now, and what others wrote in a swap that somebody should look at."""
    status, late = migration.status(), migration.late_writes()
    if as_json:
        print_json({**status_json(status), "late_writes": [each.entry for each in late]})
    for each in late:
        say(str(each))
    return status
