"""Looking at a migration: `fastfill status`, `verify`."""

from __future__ import annotations

import sys
import time

import click

from fastfill.cli.backfill import list_quarantined
from fastfill.cli.main import commands, for_people, print_json, results, say
from fastfill.cli.opening import (
    LEFT_OVER,
    GalleryOptions,
    advise_on_index,
    json_option,
    open_by_url,
    say_next,
    url_argument,
    where_option,
)
from fastfill.cli.status_text import (
    activity_lines,
    following,
    repairing,
    retrying,
    sentence,
    serving_lines,
    status_json,
)
from fastfill.errors import some

EVERY = 2.0  # seconds


@commands.command("status")
@url_argument
@click.option("--watch", is_flag=True, help="Again every two seconds, until it is complete.")
@where_option
@json_option
def status_command(url: str, watch: bool, where: tuple[str, ...], as_json: bool) -> None:
    """Tell where the migration stands, counted in the store."""
    migration = open_by_url(url, GalleryOptions(where=where), encode=False)
    while True:
        status = migration.status()
        if as_json:
            print_json({**status_json(status), "history": migration.history()})
        else:
            say(sentence(status), results)
            for line in (*activity_lines(status, time.time()), *serving_lines(status)):
                say(line, results)
            if status.forecast is not None:
                say(str(status.forecast), results)
        if not watch or status.phase in ("complete", "rolled back"):
            break
        time.sleep(EVERY)
    if status.quarantined and not as_json:
        list_quarantined(status, results)
    if (verb := following(status)) != "status":
        say_next(verb, url, *status.again, *retrying(status))


@commands.command("verify")
@url_argument
@click.option(
    "--sample", type=click.IntRange(1), default=64, show_default=True, help="Rows to check."
)
@click.option("--seed", type=click.IntRange(0), help="Of the random choice. [default: a new one]")
@click.option("--no-encoder", is_flag=True, help="Do not embed a sample again.")
@json_option
def verify_command(
    url: str, sample: int, seed: int | None, no_encoder: bool, as_json: bool
) -> None:
    """Count in the store, embed a random sample again and compare."""
    migration = open_by_url(url, encode=not no_encoder)
    checked, people = migration.verify(sample, seed), for_people(as_json)
    if as_json:
        print_json(checked.to_json())
    say(
        f"{checked.progress}\nunsettled rows: {checked.unsettled:,}; rows without a vector: "
        f"{checked.without_vector:,}; wrong among {checked.checked_new:,} new: "
        f"{len(checked.wrong_new):,}; wrong among {checked.checked_aligned:,} aligned: "
        f"{len(checked.wrong_aligned):,}; aligned by the map before: {checked.stale:,}",
        people,
    )
    for kind, wrong in (("new", checked.wrong_new), ("aligned", checked.wrong_aligned)):
        if wrong:
            say(f"Wrong {kind} rows: {some(wrong)}", people)
    advise_on_index(migration, people)
    if checked.wrong_new:  # which a backfill does not embed again
        from fastfill.migrate.model_check import WAY_OUT

        say(f"{WAY_OUT}.")
        sys.exit(LEFT_OVER)
    if not checked.good:
        say_next(repairing(migration.status()), url)
        sys.exit(LEFT_OVER)
    status = migration.status()
    say_next(following(status), url, *retrying(status))
