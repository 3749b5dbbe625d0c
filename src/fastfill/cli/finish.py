"""The end of a migration: `fastfill complete`, `rollback`."""

from __future__ import annotations

import click

from fastfill.cli.main import commands, say
from fastfill.cli.opening import open_by_url, say_next, url_argument
from fastfill.cli.status_text import added


@commands.command("complete")
@url_argument
@click.option("--drop-old", is_flag=True, help="Drop the old vectors: there is no way back.")
@click.option("--partial", is_flag=True, help="Keep rows that are still aligned as they are.")
def complete_command(url: str, drop_old: bool, partial: bool) -> None:
    """End the migration when every row is new."""
    migration = open_by_url(url, encode=False)
    migration.complete(drop_old=drop_old, partial=partial)
    status = migration.status()
    gone = "The old vectors are gone." if drop_old else "The old vectors are still there."
    say(f"Complete: the column '{added(status)}' is the gallery. {gone}")
    if not drop_old:
        say_next("complete", url, "--drop-old")


@commands.command("rollback")
@url_argument
def rollback_command(url: str) -> None:
    """Drop what the migration has added; the old vectors are as they were."""
    migration = open_by_url(url, encode=False)
    migration.rollback()
    say("Rolled back: only the owner's columns are left. Query with the old model.")
    say_next("status", url)
