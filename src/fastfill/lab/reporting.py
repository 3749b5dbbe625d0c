"""`fastfill lab report`: what was run, as Markdown with tables, figures and verdicts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fastfill.errors import FileError
from fastfill.features import replacing
from fastfill.lab.claims import claims
from fastfill.lab.pictures import pictures
from fastfill.lab.published import AUTHORS
from fastfill.lab.results import Runs, names
from fastfill.lab.tables import group_table, kendall_table, main_table
from fastfill.report import save

LEGEND = (
    "Figures are areas under the backfilling curve in %, mean ± standard deviation over the seeds; "
    "old/old and new/new are levels. Bold: the best that can be run. *Gap closed*: share of the "
    "distance from FCT in random order to new/new, in %. *FastFill leads*: points, and in how many "
    "of the seeds a paired bootstrap over the queries is significant (95 %). No row uses a pilot "
    "of the gallery, that is items embedded before the order is fixed."
)


def write_report(runs: Iterable[Runs], folder: Path) -> list[Path]:
    """Write `DATA.md` for each data set, and its figures beside it as SVG and PNG."""
    listed = list(runs)
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: no folder can be made there ({error.strerror}).") from error
    for data in names(listed):
        parts = [f"# The paper's experiments on {data}\n\n{LEGEND}\n"]
        for one in (runs for runs in listed if runs.data == data):
            links = []
            for name, caption, figure in pictures(one):
                stem = folder / f"{data}-{name}"
                written += save(figure, stem)
                links.append(f"![{caption}]({stem.name}.svg)")
            parts.append(section(one, links))
        page = folder / f"{data}.md"
        with replacing(page) as draft:
            draft.write_text("\n".join(parts), encoding="utf-8")
        written.append(page)
    return written


def section(runs: Runs, links: Iterable[str] = ()) -> str:
    """One experiment: what was run, its tables, figures and verdicts."""
    chosen = runs.experiment
    parts = [f"## {chosen.title} ({chosen.name}: {chosen.source})", body(runs), *links]
    return "\n\n".join(parts) + "\n"


def body(runs: Runs) -> str:
    """The same without its heading and pictures, as benchmarks print it."""
    parts = [provenance(runs)]
    for test in runs.tests:
        if len(runs.tests) > 1:
            images = runs.results[0]["tests"][test]["images"]
            parts.append(f"Test classes {test} ({images:,} images):")
        parts.append(main_table(runs, test))
    if "kendall" in runs.experiment.measures:
        parts.append(kendall_table(runs, runs.tests[0]) + "\n\nIn brackets: the paper, ImageNet.")
    if "groups" in runs.experiment.measures:
        parts.append(group_table(runs, runs.tests[0]))
    if runs.experiment.name == "main":
        parts.append(authors())
    parts.append("\n".join(f"- {claim}" for claim in claims(runs)))
    return "\n\n".join(parts)


def provenance(runs: Runs) -> str:
    """Data, seeds, command, models and maps: where the figures come from."""
    first = runs.results[0]
    models = ", ".join(
        f"{name} {facts['model']} ({facts['epochs']} epochs)"
        for name, facts in first["models"].items()
    )
    maps = first["map"]
    epochs = "" if maps["epochs"] is None else f", {maps['epochs']} epochs"
    seeds = ", ".join(map(str, runs.seeds))
    devices = {facts["device"] for facts in first["models"].values() if "device" in facts}
    trained = f", trained on {' and '.join(sorted(devices))}" if devices else ""
    return (
        f"Data {runs.data}; seeds {seeds}; maps: {maps['method']}{epochs}; "
        f"models: {models}{trained}.\n\n    {first['command']}"
    )


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
