"""What `curve` and `compare` show: tables, the report's folder, JSON."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fastfill.cli.main import console, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from fastfill.evaluate import Findings


def show(findings: Findings, output: Path | None, as_json: bool, *, gains: bool = False) -> None:
    """Tables on stderr, the folder if one is wanted, JSON on stdout if it is asked for."""
    from fastfill.report import comparison_table, grids_of, marks_of, rich_tables

    files = [] if output is None else _write(output, findings)
    for table in rich_tables(grids_of(findings)):
        print_table(table)
    if any(marks_of(findings).values()):
        baseline = findings.comparisons[0].b
        console.print(
            f"▲ better, ▼ worse area than {baseline}: paired bootstrap, 95 %.", markup=False
        )
    if gains and findings.comparisons:
        print_table(comparison_table(findings.comparisons))
    if findings.facts.get("served by"):
        console.print(f"Served by {findings.facts['served by']}.", markup=False, soft_wrap=True)
    if files:
        console.print(f"Next: open {files[0]} in a browser.", markup=False, soft_wrap=True)
    if as_json:
        print_json(findings.to_dict() | {"files": [str(path) for path in files]})


def print_table(table: Table) -> None:
    """A table as wide as it is: numbers are never cut off, whatever the terminal."""
    from rich.console import Console

    wide = Console(stderr=True, highlight=False, width=400)
    wide.width = max(console.width, wide.measure(table).maximum)
    wide.print(table, "")


def _write(folder: Path, findings: Findings) -> list[Path]:
    from fastfill.errors import MissingExtraError
    from fastfill.report import write_folder

    try:
        return write_folder(folder, findings)
    except MissingExtraError as error:
        console.print(f"Figures are left out. {error}", markup=False, soft_wrap=True)
        return write_folder(folder, findings, figures=False)


def command_line() -> str:
    """The command as it was typed, for the report."""
    return shlex.join(["fastfill", *sys.argv[1:]])


def watching(as_json: bool) -> bool:
    """Whether a person looks on, who would like a progress bar."""
    return console.is_terminal and not as_json
