"""What the verbs of a migration share: opening it by its URL, ending it cleanly, the next verb."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from fastfill.cli.main import console, print_folded, say
from fastfill.cli.options import bundled
from fastfill.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from fastfill.gallery import State
    from fastfill.migrate import Callback, Migration
    from fastfill.migrate.encoding import Encode

STOPPED, LEFT_OVER = 3, 4  # exit codes; 1 is an error, 2 a wrong command line

url_argument = click.argument("url")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
metric_option = click.option(
    "--metric", help="Quality in which metric. [default: map with --label]"
)
label_option = click.option(
    "--label", metavar="COLUMN", help="Answers with the query's value in this column are right."
)
hook_option = click.option(
    "--hook", metavar="PROGRAM", help="Called with each event, JSON on stdin."
)


where_option = click.option(
    "--where",
    metavar="COLUMN=VALUE",
    multiple=True,
    help="Only the rows with this value; several: with all of them. [default: as started]",
)


@dataclass(frozen=True)
class GalleryOptions:
    """What is migrated; asked for once, then the store knows."""

    id: str | None = None
    input: str | None = None
    encoder: str | None = None
    distance: str | None = None
    root: str | None = None
    hook: str | None = None
    where: tuple[str, ...] = ()

    def as_typed(self) -> list[str]:
        """Those that the next command must be given too."""
        given = [(key, getattr(self, key)) for key in ("id", "input", "encoder", "distance")]
        given += [("where", shlex.quote(condition)) for condition in self.where]
        return [f"--{key} {value}" for key, value in given if value]


gallery_options = bundled(
    GalleryOptions,
    "gallery",
    [
        click.option("--id", metavar="COLUMN", help="The key of the items. [default: id]"),
        click.option("--input", metavar="COLUMN", help="What is to be encoded: text, bytes, path."),
        click.option(
            "--encoder",
            help="The new model: module:function, sentence-transformers:NAME or an https address.",
        ),
        click.option(
            "--distance",
            type=click.Choice(["l2", "cosine", "ip"]),
            help="Distance of the search. [default: that of the store's index]",
        ),
        click.option("--root", help="Folder or URL that inputs are paths under."),
        hook_option,
        where_option,
    ],
)


def open_by_url(
    url: str,
    options: GalleryOptions | None = None,
    *,
    encode: bool | Literal["to check"] = True,
    listener: Callback | None = None,
) -> Migration:
    """The migration at a URL; what is not given comes from its state in the store.

    `listener` hears of events beside the operator's hook. An encoder that is only needed to check
    may be missing: that is said, and it is not loaded where no migration is under way.
    """
    from fastfill.gallery import parse_where
    from fastfill.migrate import Migration
    from fastfill.wiring import connect, open_encoder

    options = options or GalleryOptions()
    gallery = connect(
        url,
        id=options.id,
        input=options.input,
        distance=options.distance,
        where=parse_where(options.where) or None,
    )
    state = gallery.state
    spec = options.encoder or (state.encoder if state is not None else None)
    if spec is None and encode is True:
        raise InputError(
            "No migration is open here. To plan or start one, give the new model with --encoder, "
            "for example my_module:encode."
        )
    encoder = None
    if spec and encode == "to check":
        encoder = _encoder_to_check(spec) if state and state.phase == "started" else None
    elif spec and encode:
        encoder = open_encoder(spec)
    return Migration(
        gallery,
        encoder,
        encoder_name=spec or "",
        callback=_callback(options.hook, listener),
        root=_root(options, state),
    )


def _encoder_to_check(spec: str) -> Encode | None:
    from fastfill.wiring import open_encoder

    try:
        return open_encoder(spec)
    except Exception as error:  # whatever the operator's module does when it is imported
        say(f"No new row was embedded again to compare it: {spec} could not be loaded ({error}).")
        return None


def _root(options: GalleryOptions, state: State | None) -> str | None:
    return options.root or (state.root if state is not None else None)


def _callback(program: str | None, listener: Callback | None) -> Callback:
    """Run the operator's hook; say on the screen what no progress line can."""
    from fastfill.migrate import hook

    run_hook = None if program is None else hook(program, warn)

    def callback(event: str, details: dict[str, Any]) -> None:
        if event == "reconnecting":
            warn(f"{details['reason']}; trying again in {details['seconds']:.0f} s.")
        if event in ("judgements", "missing"):
            warn(f"{details['reason']}.")
        if event in ("untried", "noted", "unchecked"):
            say(details["reason"])
        if event == "model":
            warn(f"{details['reason']}; every row is done again.")
        for hear in (run_hook, listener):
            if hear is not None:
                hear(event, details)

    return callback


def warn(message: str, to: Console = console) -> None:
    """A line for people that they should not miss."""
    print_folded("[yellow]Warning:[/]", message, to=to)


def say_next(verb: str, url: str, *options: str) -> None:
    """The command that comes next, to be copied."""
    say(f"Next: {command_line(verb, url, *options)}")


def command_line(verb: str, url: str, *options: str) -> str:
    """A command as it is typed.

    >>> command_line("complete", "lance://./db#photos.vector", "--partial")
    "fastfill complete 'lance://./db#photos.vector' --partial"
    """
    return " ".join(["fastfill", verb, f"'{url}'", *options])


@contextmanager
def stoppable(migration: Migration) -> Iterator[None]:
    """SIGTERM and the first Ctrl-C end the work cleanly after the batch."""

    def stop(*_: object) -> None:
        migration.stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if migration.stop.is_set():
        say("Stopped after a batch; nothing is lost. Run the same command again to go on.")
        sys.exit(STOPPED)


def advise_on_index(migration: Migration, to: Console = console) -> None:
    """How good the index on the added column is."""
    health = migration.index_health()
    if health.recall is not None:
        found = f"{100 * health.recall:.1f} % of the neighbours"
        say(f"The index on the added column finds {found}.", to)
    if not health.good:
        warn("The index is stale: rebuild it with fastfill start URL --index.")
