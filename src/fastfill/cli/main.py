"""The group of all commands, and how errors and results reach people and programs."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from fastfill.cli.versions import version_lines
from fastfill.errors import FastFillError

MODULES = (  # importing one registers its commands
    "align",
    "export",
    "order",
    "curve",
    "forecast",
    "compare",
    "doctor",
    "start",
    "backfill",
    "status",
    "watch",
    "finish",
    "demo",
    "lab",
)

console = Console(stderr=True, highlight=False, emoji=False)  # what is said on the way
results = Console(highlight=False, emoji=False)  # what a command was asked for, on stdout


def _print_versions(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo("\n".join(version_lines()))
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_versions,
    help="Show the versions of FastFill, Python and the stores' packages.",
)
def commands() -> None:
    """Upgrade the embedding model of a live vector search while it serves."""


def for_people(as_json: bool) -> Console:
    """Where the result of a command is shown to people: stderr only where stdout is for JSON."""
    return console if as_json else results


def say(text: str, to: Console = console) -> None:
    """A line for people, as it is: brackets in a file's name are no markup.

    A command to be copied stays one line.
    """
    if text.startswith("Next: "):
        to.print(text, soft_wrap=True, markup=False)
    else:
        print_folded(text, to=to, markup=False)


def print_folded(*texts: str | Text, to: Console = console, markup: bool = True) -> None:
    """On a screen lines are folded between words; in a file they are as long as they are."""
    to.print(*texts, soft_wrap=not to.is_terminal, markup=markup)


def print_json(value: dict[str, Any]) -> None:
    """One machine-readable object on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def load_commands() -> None:
    """Import every module of commands; those of the lab are imported on first use."""
    for module in MODULES:
        importlib.import_module(f"fastfill.cli.{module}")


def run() -> None:
    """Run a command; a known error is one sentence on stderr and exit code 1, Ctrl-C is 130."""
    load_commands()
    try:
        commands(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Abort:
        console.print("Stopped. Nothing was half-written.")
        sys.exit(130)
    except FastFillError as error:
        print_folded("[bold red]Error:[/]", Text(str(error)))
        sys.exit(1)
