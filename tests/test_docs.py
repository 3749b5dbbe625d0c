"""The reference documents every command and every option, and no option that is not there."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import fastfill.cli
from fastfill.cli.main import commands

REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its full name."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for key in command.list_commands(context):
            child = command.get_command(context, key)
            assert child is not None
            yield from leaves(child, f"{name} {key}")
    else:
        yield name, command


def all_commands() -> dict[str, click.Command]:
    """The commands of all modules of the command line, also of those that load on first use."""
    for module in pkgutil.iter_modules(fastfill.cli.__path__):
        importlib.import_module(f"fastfill.cli.{module.name}")
    return dict(leaves(commands, "fastfill"))


def sections() -> dict[str, str]:
    """Text of the reference by the command that its heading names."""
    parts = re.split(r"^## `(.+)`$", REFERENCE.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


COMMANDS = all_commands()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    """A command has a section of its own, which names each of its options."""
    section = sections().get(name)
    assert section is not None, f"{REFERENCE.name} has no section '## `{name}`'"
    documented = set(re.findall(r"`(--[a-z0-9-]+)`", section))
    options = {
        opt
        for param in COMMANDS[name].params
        if isinstance(param, click.Option) and not param.hidden
        for opt in (*param.opts, *param.secondary_opts)
        if opt.startswith("--")
    }
    assert options - {"--help"} == documented


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    """--help says what a command does, and each option has a help or a default to show."""
    command = COMMANDS[name]
    assert command.help
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help or param.show_default, f"{name} {param.opts}"
