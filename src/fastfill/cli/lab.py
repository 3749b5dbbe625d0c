"""The door to `fastfill lab`: the laboratory is imported when one of its commands is used."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import click

from fastfill.cli.main import commands
from fastfill.errors import MissingExtraError


class LazyGroup(click.Group):
    """A group of commands whose module is imported when a command is listed or looked up."""

    def __init__(self, name: str, home: str, help: str) -> None:
        """`home`: 'module:attribute' of the group that holds the commands."""
        super().__init__(name, help=help)
        self.home = home

    def _load(self) -> click.Group:
        if find_spec("torch") is None:
            raise MissingExtraError("torch", "lab", "The laboratory")
        module, _, attribute = self.home.partition(":")
        group: click.Group = getattr(importlib.import_module(module), attribute)
        return group

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return self._load().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        return self._load().get_command(ctx, cmd_name)


commands.add_command(
    LazyGroup(
        "lab",
        "fastfill.lab.cli:lab",
        "The paper's laboratory: train, compare and report every system.",
    )
)
