"""The command line: one module per group of commands, each command a few lines."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `fastfill` command."""
    from fastfill.cli.main import run

    run()
