"""`fastfill lab`: run the paper's experiments, list them, report what they show."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastfill.cli.main import console, for_people, print_folded, print_json, say
from fastfill.cli.options import bundled
from fastfill.errors import InputError
from fastfill.lab.settings import RunSettings, portable

if TYPE_CHECKING:
    from rich.table import Table

    from fastfill.lab.experiments import Experiment
    from fastfill.lab.results import ExperimentResults
    from fastfill.lab.runner import ExperimentRunner
    from fastfill.lab.training import Report

RESULTS = Path("benchmarks") / "results" / "lab"
BASELINES = ("bct", "ract")  # models that can be left out
LOG_EVERY = 10.0  # seconds between two lines of a log
FELT = 0.5  # seconds from which on a stage is worth a line

StageCallbacks = tuple[Callable[[str], "Report"], Callable[[str], None] | None]

_results = click.option(
    "--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True,
    help="Where each seed's result is kept, a small JSON file.",
)  # fmt: skip
_json = click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON on stdout.")
_experiments = click.argument("experiments", nargs=-1, required=True, metavar="NAME...")


def _baselines(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(filter(None, text.split(",")))
    unknown = [name for name in names if name not in BASELINES]
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: use {' or '.join(BASELINES)}.")
    return names


_settings = bundled(
    RunSettings,
    "settings",
    [
        click.option(
            "--data", required=True, metavar="NAME[=DIR]",
            help="A data set and its folder; digits has none, others are in $FASTFILL_DATA/NAME.",
        ),
        click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True,
                     help="How many seeds."),
        click.option("--first-seed", type=click.IntRange(min=0), default=0, show_default=True,
                     help="The first of them, where other machines do others."),
        click.option("--device", help="cpu or cuda; cuda by default where there is one."),
        click.option("--effort", type=click.FloatRange(min=0, min_open=True), default=1.0,
                     show_default=True, help="Share of the models' epochs."),
        click.option("--map-epochs", type=click.IntRange(min=1), help="Instead of the map's own."),
        click.option("--views", type=click.IntRange(min=0), default=20, show_default=True,
                     help="Views of each image that maps are learned from; 0: fixed features."),
        click.option("--minutes", type=float,
                     help="Stop in time; the same command goes on later."),
        click.option("--without", default="", metavar="bct,ract", callback=_baselines,
                     help="Leave these models out of all tables but main and top5."),
        click.option("--work", type=click.Path(path_type=Path), default=Path(".lab"),
                     show_default=True, help="The cache of images, features, maps and curves."),
    ],
)  # fmt: skip


@click.group()
def lab() -> None:
    """The commands behind `fastfill lab`."""


@lab.command(short_help="Run experiments by NAME, or all; a stopped run goes on.")
@_experiments
@_settings
@_results
@_json
def run(experiments: tuple[str, ...], settings: RunSettings, results: Path, as_json: bool) -> None:
    """Run experiments by NAME (see `fastfill lab list`), or `all`; what is missing is trained.

    A run that was stopped goes on where it was, and a second table reuses the models.
    """
    with _runner(experiments, settings) as (runner, chosen):
        left = runner.run(chosen, results, say, command=portable(["fastfill", *sys.argv[1:]]))
    if left:
        say(f"{len(left)} results are left: run the same command again to go on.")
    else:
        say(f"\nNext: fastfill lab report --results {results}")
    if as_json:
        paths = [
            str(runner.result_path(results, one, seed))
            for seed in settings.seed_numbers for one in chosen if (one.name, seed) not in left
        ]  # fmt: skip
        print_json({"data": runner.data, "results": paths, "left": len(left)})


@lab.command(short_help="Train the models and learn the maps, without any curve yet.")
@_experiments
@_settings
@_json
def prepare(experiments: tuple[str, ...], settings: RunSettings, as_json: bool) -> None:
    """Train the models and learn the maps of experiments, without any curve yet.

    `fastfill lab run` finds them in the cache: the GPU is busy only as long as it trains.
    """
    with _runner(experiments, settings) as (runner, chosen):
        left = runner.prepare(chosen)
    say(f"{left} seeds are left: run the same command again to go on." if left else "Done.")
    if as_json:
        print_json({"data": runner.data, "work": str(settings.work), "left": left})


@contextmanager
def _runner(
    names: Sequence[str], settings: RunSettings
) -> Iterator[tuple[ExperimentRunner, list[Experiment]]]:
    """What runs experiments, with its progress shown, and the experiments of these names."""
    from fastfill.lab.data import parse
    from fastfill.lab.experiments import choose_experiments

    chosen = choose_experiments(names, parse(settings.data)[0])  # before torch is loaded

    from fastfill.lab.runner import ExperimentRunner

    with _progress() as (report, stage):
        yield ExperimentRunner(settings, report=report, begun=stage, ended=_say_seconds), chosen


def _say_seconds(stage: str, seconds: float) -> None:
    """A line for every stage that took long enough to be felt."""
    if seconds >= FELT:
        say(f"{stage}: {seconds:.1f} s")


@contextmanager
def _progress() -> Iterator[StageCallbacks]:
    """Where training stands: a bar on a terminal, lines in a log."""
    from fastfill.cli.progress import stage_bar

    if console.is_terminal:
        with stage_bar(console) as told:
            yield told
    else:
        yield _log_epochs, None


def _log_epochs(model: str) -> Report:
    """A line for the first and the last epoch, and every ten seconds."""
    last = [0.0]

    def report(epoch: int, epochs: int, loss: float, rate: float) -> None:
        if time.monotonic() - last[0] > LOG_EVERY or epoch == epochs:
            last[0] = time.monotonic()
            say(f"{model}  {epoch}/{epochs}  loss {loss:.3f}  {rate:,.0f} images/s")

    return report


@lab.command("list", short_help="List the experiments and the data sets of each.")
@_results
@_json
def show(results: Path, as_json: bool) -> None:
    """List the experiments, the data sets that each has a protocol for, and what was run."""
    from fastfill.lab.experiments import EXPERIMENTS, data_sets
    from fastfill.lab.results import read_results

    read = read_results(results) if any(results.glob("*/*-seed*.json")) else []
    listed = []
    for name, experiment in EXPERIMENTS.items():
        seeds = {one.data: one.seeds for one in read if one.experiment.name == name}
        listed.append({"name": name, "title": experiment.title, "source": experiment.source,
                       "data": data_sets(experiment), "seeds": seeds})  # fmt: skip
    for_people(as_json).print(_experiment_table(listed))
    if as_json:
        print_json({"experiments": listed})


def _experiment_table(listed: list[dict[str, Any]]) -> Table:
    """Name, title and place in the paper; below them the data sets and the seeds that were run."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for one in listed:
        ran = {data: f" (seeds run: {len(seeds)})" for data, seeds in one["seeds"].items()}
        names = [*one["data"], *(data for data in ran if data not in one["data"])]
        data = ", ".join(f"{name}{ran.get(name, '')}" for name in names)
        text = Text.assemble(f"{one['title']}: {one['source']}\n", (data, "dim"))
        table.add_row(Text(one["name"], style="bold"), text)
    return table


@lab.command(short_help="Write tables and figures beside the paper's.")
@_results
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("lab-report"),
              show_default=True, help="Folder for DATA.md and its figures.")  # fmt: skip
@click.option("--data", help="Only this data set.")
@_json
def report(results: Path, output: Path, data: str | None, as_json: bool) -> None:
    """Write tables and figures beside the paper's, and which of its conclusions hold."""
    from fastfill.lab.claims import judge_claims
    from fastfill.lab.markdown_report import write_report
    from fastfill.lab.results import data_names, read_results

    every = read_results(results)
    chosen = [one for one in every if data in (None, one.data)]
    if not chosen:
        raise InputError(
            f"{results} holds no results of {data!r}, only of {', '.join(data_names(every))}."
        )
    written = write_report(chosen, output)
    for one in chosen:
        _print_verdicts(one)
    say(f"\nWrote {len(written)} files to {output}.")
    if as_json:
        facts = [
            {"data": one.data, "experiment": one.experiment.name, "seeds": one.seeds,
             "claims": [vars(claim) for claim in judge_claims(one)]}
            for one in chosen
        ]  # fmt: skip
        print_json({"files": [str(path) for path in written], "experiments": facts})


def _print_verdicts(results: ExperimentResults) -> None:
    from rich.text import Text

    from fastfill.lab.claims import FAILS, HOLDS, judge_claims

    colours = {HOLDS: "green", FAILS: "red"}
    heading = f"\n{results.experiment.name} on {results.data}, {len(results.seeds)} seeds"
    console.print(Text(heading, style="bold"))
    for claim in judge_claims(results):
        verdict = (claim.verdict, colours.get(claim.verdict, "yellow"))
        print_folded(Text.assemble(verdict, f": {claim.paper}"))
        print_folded(Text(f"  {claim.found}", style="dim"))
