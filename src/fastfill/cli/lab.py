"""`fastfill lab`: run the paper's experiments, list them, report what they show."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastfill.cli.main import commands, console, print_json
from fastfill.errors import InputError

if TYPE_CHECKING:
    from fastfill.lab.results import Runs

RESULTS = Path("benchmarks") / "lab"

_results = click.option(
    "--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True,
    help="Where each seed's result is kept, a small JSON file.",
)  # fmt: skip
_json = click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON on stdout.")


@commands.group()
def lab() -> None:
    """The paper's laboratory: train, compare and report every system."""


@lab.command()
@click.argument("experiments", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--data", required=True, metavar="NAME[=DIR]",
    help="A data set and its folder; digits has none, others are in $FASTFILL_DATA/NAME.",
)  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--device", help="cpu or cuda; cuda by default where there is one.")
@click.option("--effort", type=click.FloatRange(min=0, min_open=True), default=1.0,
              show_default=True, help="Share of the models' epochs.")  # fmt: skip
@click.option("--map-epochs", type=click.IntRange(min=1), help="Instead of the map's own.")
@click.option("--minutes", type=float, help="Stop in time; the same command goes on later.")
@click.option("--without", default="", metavar="bct,ract",
              help="Leave these rows out of all tables but main.")  # fmt: skip
@click.option("--work", type=click.Path(path_type=Path), default=Path(".lab"), show_default=True,
              help="The cache of images, features, maps and curves.")  # fmt: skip
@_results
@_json
def run(
    experiments: tuple[str, ...],
    data: str,
    seeds: int,
    device: str | None,
    effort: float,
    map_epochs: int | None,
    minutes: float | None,
    without: str,
    work: Path,
    results: Path,
    as_json: bool,
) -> None:
    """Run experiments by NAME (see `fastfill lab list`), or `all`; what is missing is trained.

    A run that was stopped goes on where it was, and a second table reuses the models.
    """
    from fastfill.cli.progress import stage_bar
    from fastfill.lab.driver import Laboratory, Settings, portable

    command = portable(["fastfill", *sys.argv[1:]])
    settings = Settings(
        data, work, results, device, effort, map_epochs, minutes,
        tuple(filter(None, without.split(","))), command,
    )  # fmt: skip
    with stage_bar(console) as (report, stage):
        laboratory = Laboratory(settings, report, stage)
        chosen = laboratory.experiments(experiments)
        left = laboratory.run(chosen, range(seeds), lambda line: console.print(line, markup=False))
    if left:
        console.print(f"{len(left)} results are left: run the same command again to go on.")
    else:
        console.print(f"\nNext: fastfill lab report --results {results}", soft_wrap=True)
    if as_json:
        paths = [
            str(laboratory.path(one, seed))
            for seed in range(seeds) for one in chosen if (one.name, seed) not in left
        ]  # fmt: skip
        print_json({"data": laboratory.name, "results": paths, "left": len(left)})


@lab.command("list")
@_results
@_json
def show(results: Path, as_json: bool) -> None:
    """List the experiments, the data sets that each has a protocol for, and what was run."""
    from rich.table import Table

    from fastfill.lab.experiments import EXPERIMENTS, data_sets
    from fastfill.lab.results import read_runs

    runs = read_runs(results) if any(results.glob("*/*-seed*.json")) else []
    table = Table("name", "what", "in the paper", "data", "seeds run", box=None, pad_edge=False)
    listed = []
    for name, one in EXPERIMENTS.items():
        ran = {found.data: found.seeds for found in runs if found.experiment.name == name}
        listed.append({"name": name, "title": one.title, "source": one.source,
                       "data": data_sets(one), "seeds": ran})  # fmt: skip
        seeds = ", ".join(f"{data}: {len(numbers)}" for data, numbers in ran.items())
        table.add_row(name, one.title, one.source, ", ".join(data_sets(one)), seeds)
    console.print(table)
    if as_json:
        print_json({"experiments": listed})


@lab.command()
@_results
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("lab-report"),
              show_default=True, help="Folder for DATA.md and its figures.")  # fmt: skip
@click.option("--data", help="Only this data set.")
@_json
def report(results: Path, output: Path, data: str | None, as_json: bool) -> None:
    """Write tables and figures beside the paper's, and which of its conclusions hold."""
    from fastfill.lab.reporting import write_report
    from fastfill.lab.results import names, read_runs

    every = read_runs(results)
    runs = [one for one in every if data in (None, one.data)]
    if not runs:
        raise InputError(
            f"{results} holds no results of {data!r}, only of {', '.join(names(every))}."
        )
    written = write_report(runs, output)
    for one in runs:
        _verdicts(one)
    console.print(f"\nWrote {len(written)} files to {output}.", soft_wrap=True)
    if as_json:
        from fastfill.lab.claims import claims

        found = [{"data": one.data, "experiment": one.experiment.name, "seeds": one.seeds,
                  "claims": [vars(claim) for claim in claims(one)]} for one in runs]  # fmt: skip
        print_json({"files": [str(path) for path in written], "experiments": found})


def _verdicts(runs: Runs) -> None:
    from rich.text import Text

    from fastfill.lab.claims import FAILS, HOLDS, claims

    colours = {HOLDS: "green", FAILS: "red"}
    heading = f"\n{runs.experiment.name} on {runs.data}, {len(runs.seeds)} seeds"
    console.print(Text(heading, style="bold"))
    for claim in claims(runs):
        line = Text.assemble(
            (claim.verdict, colours.get(claim.verdict, "yellow")), f": {claim.paper}"
        )
        console.print(line, soft_wrap=True)
        console.print(Text(f"  {claim.found}", style="dim"), soft_wrap=True)
