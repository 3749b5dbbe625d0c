"""What `curve` and `compare` show: tables, the report's folder, JSON."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastfill.cli.main import console, for_people, print_json, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

    from fastfill.evaluate import Findings


def show(findings: Findings, output: Path | None, as_json: bool, *, gains: bool = False) -> None:
    """Tables, the folder if one is wanted, JSON if it is asked for."""
    from fastfill.report import comparison_table, grids_of, marks_of, rich_tables

    people, files = for_people(as_json), [] if output is None else _write(output, findings)
    for table in rich_tables(grids_of(findings)):
        print_table(table, people)
    if any(marks_of(findings).values()):
        baseline = findings.comparisons[0].b
        people.print(
            f"▲ better, ▼ worse area than {baseline}: paired bootstrap, 95 %.", markup=False
        )
    if gains and findings.comparisons:
        print_table(comparison_table(findings.comparisons), people)
    if findings.facts.get("served by"):
        say(f"Served by {findings.facts['served by']}.", people)
    if files:
        console.print(f"Next: open {files[0]} in a browser.", markup=False, soft_wrap=True)
    if as_json:
        print_json(findings.to_dict() | {"files": [str(path) for path in files]})


def print_table(table: Table, to: Console) -> None:
    """A table no wider than the screen; one that is wider comes in several parts, none cut off."""
    from rich.console import Console

    wide = Console(stderr=to.stderr, highlight=False, emoji=False, width=400)
    for part in split_table(table, to.width):
        wide.width = max(to.width, wide.measure(part).maximum)
        wide.print(part)
    wide.print("")


def split_table(table: Table, width: int) -> list[Table]:
    """Its columns in as many tables as fit into the width, each beginning with the first column.

    >>> from rich.table import Table
    >>> table = Table("order", "0 %", "100 %", box=None)
    >>> table.add_row("sigma", "40.0", "70.0")
    >>> [[column.header for column in part.columns] for part in split_table(table, 15)]
    [['order', '0 %'], ['order', '100 %']]
    """
    first, *rest = table.columns
    parts: list[list[Column]] = []
    for column in rest:
        if parts and _width([first, *parts[-1], column]) <= width:
            parts[-1].append(column)
        else:
            parts.append([column])
    if len(parts) <= 1:
        return [table]
    tables = [_of_columns([first, *part]) for part in parts]
    tables[0].title, tables[-1].caption = table.title, table.caption
    return tables


def _of_columns(columns: Sequence[Column]) -> Table:
    """A table of these columns of another one."""
    from rich.table import Table

    part = Table(title_justify="left", box=None)
    for column in columns:
        part.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap)
    for row in zip(*(column.cells for column in columns), strict=True):
        part.add_row(*row)
    return part


def _width(columns: Sequence[Column]) -> int:
    from rich.console import Console

    return Console(width=400).measure(_of_columns(columns)).maximum


def _write(folder: Path, findings: Findings) -> list[Path]:
    from fastfill.errors import MissingExtraError
    from fastfill.report import write_folder

    try:
        return write_folder(folder, findings)
    except MissingExtraError as error:
        say(f"Figures are left out. {error}")
        return write_folder(folder, findings, figures=False)


def command_line() -> str:
    """The command as it was typed, for the report."""
    return shlex.join(["fastfill", *sys.argv[1:]])


def watching(as_json: bool) -> bool:
    """Whether a person looks on, who would like a progress bar."""
    return console.is_terminal and not as_json
