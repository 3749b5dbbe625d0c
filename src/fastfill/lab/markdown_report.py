"""`fastfill lab report`: what was run, as Markdown with tables, figures and verdicts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import mean

from fastfill.errors import FileError
from fastfill.features import replacing
from fastfill.lab.claims import judge_claims
from fastfill.lab.figures import experiment_figures
from fastfill.lab.published_tables import AUTHORS
from fastfill.lab.results import ExperimentResults, Result, data_names
from fastfill.lab.tables import group_table, kendall_table, main_table
from fastfill.report import save

ACCURACIES = ("train_accuracy", "test_accuracy")  # of a model, where it has a classifier

LEGEND = (
    "Figures are areas under the backfilling curve in %, mean ± standard deviation over the seeds; "
    "old/old and new/new are levels. Bold: the best that can be run. *Gap closed*: share of the "
    "distance from FCT in random order to new/new, in %. *FastFill leads*: points, and in how many "
    "of the seeds a paired bootstrap over the queries is significant (95 %). Rows that use a "
    "pilot of the gallery, that is items embedded before the order is fixed, say so at the end."
)

WITHOUT = "`--without` leaves models out of all tables but those of `main` and `top5`."


def write_report(results: Iterable[ExperimentResults], folder: Path) -> list[Path]:
    """Write `DATA.md` for each data set, and its figures beside it as SVG and PNG."""
    listed = list(results)
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: no folder can be made there ({error.strerror}).") from error
    for data in data_names(listed):
        parts = [f"# The paper's experiments on {data}\n\n{LEGEND}\n"]
        for one in (one for one in listed if one.data == data):
            links = []
            for name, caption, figure in experiment_figures(one):
                stem = folder / f"{data}-{name}"
                written += save(figure, stem)
                links.append(f"![{caption}]({stem.name}.svg)")
            parts.append(section(one, links))
        page = folder / f"{data}.md"
        with replacing(page) as draft:
            draft.write_text("\n".join(parts), encoding="utf-8")
        written.append(page)
    return written


def section(results: ExperimentResults, links: Iterable[str] = ()) -> str:
    """One experiment: what was run, its tables, figures and verdicts."""
    experiment = results.experiment
    parts = [
        f"## {experiment.title} ({experiment.name}: {experiment.source})",
        body(results),
        *links,
    ]
    return "\n\n".join(parts) + "\n"


def body(results: ExperimentResults) -> str:
    """The same without its heading and figures, as benchmarks print it."""
    parts = [provenance(results)]
    for test in results.tests:
        if len(results.tests) > 1:
            images = results.per_seed[0]["tests"][test]["images"]
            parts.append(f"Test classes {test} ({images:,} images):")
        parts.append(main_table(results, test))
    if "kendall" in results.experiment.measures:
        parts.append(
            kendall_table(results, results.tests[0]) + "\n\nIn brackets: the paper, ImageNet."
        )
    if "groups" in results.experiment.measures:
        parts.append(group_table(results, results.tests[0]))
    if results.experiment.name == "main":
        parts.append(authors())
    parts.append("\n".join(f"- {claim}" for claim in judge_claims(results)))
    return "\n\n".join(parts)


def provenance(results: ExperimentResults) -> str:
    """Data, seeds, commands, models and maps: where the figures come from."""
    first = results.per_seed[0]
    models = ", ".join(_model(name, facts) for name, facts in first["models"].items())
    maps = first["map"]
    epochs = "" if maps["epochs"] is None else f", {maps['epochs']} epochs"
    views = f", {maps['views']} views of each image" if maps.get("views") else ", fixed features"
    seeds = ", ".join(map(str, results.seeds))
    devices = {facts["device"] for facts in first["models"].values() if "device" in facts}
    trained = f", trained on {' and '.join(sorted(devices))}" if devices else ""
    return (
        f"Data {results.data}; seeds {seeds}; maps: {maps['method']}{epochs}{views}; "
        f"models: {models}{trained}{_time(results)}.\n\n{_commands(results)}"
    )


def _commands(results: ExperimentResults) -> str:
    """Every command by which a seed of this table was run, and what one word of them means."""
    listed = "\n".join(f"    {command}" for command in results.commands)
    return f"{listed}\n\n{WITHOUT}" if "--without" in listed else listed


def _time(results: ExperimentResults) -> str:
    """How long the models of a seed were trained and, where nothing was reused, all of it took."""
    trained = [
        sum(facts.get("seconds", 0.0) for facts in one["models"].values())
        for one in results.per_seed
    ]
    said = f" in {mean(trained):,.0f} s a seed" if all(trained) else ""
    whole = [
        one["seconds"]["all"] for one in results.per_seed
        if all(f"training of {facts['model']}, seed {one['seed']}"
               in one.get("seconds", {"stages": ()})["stages"] for facts in one["models"].values())
    ]  # fmt: skip
    if not whole:
        return said
    seeds = "" if len(whole) == len(results.per_seed) else f" ({len(whole)} of them)"
    return f"{said}; from backbones to tables {mean(whole):,.0f} s a seed{seeds}"


def _model(name: str, facts: Result) -> str:
    """A model with its epochs, and how well it knows its training and its test images."""
    shares = [f"{100 * facts[key]:.1f} % {key.split('_')[0]}" for key in ACCURACIES if key in facts]
    accuracy = f", accuracy {' / '.join(shares)}" if shares else ""
    return f"{name} {facts['model']} ({facts['epochs']} epochs{accuracy})"


def authors() -> str:
    """The authors' relative result, computed from their published figures."""
    shares = []
    for metric in ("cmc@1", "map"):
        low, own, high = (AUTHORS.rows[name][metric] for name in ("FCT", "FastFill", "new/new"))
        shares.append(f"{100 * (own - low) / (high - low):.0f} %")
    return (
        f"On CIFAR-100 the authors' FastFill closes {shares[0]} of the top-1 gap and {shares[1]} "
        "of the mAP gap between FCT in random order and new/new."
    )
