"""`fastfill demo`: the whole story on handwritten digits, in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastfill.cli.main import commands, console, print_json

if TYPE_CHECKING:
    from fastfill.digits import Upgrade
    from fastfill.evaluate import Findings

METRICS = ("cmc@1", "map")
METHOD = "kernel"  # in closed form: the demo needs no torch


@commands.command(short_help="Upgrade a small model on handwritten digits, and watch it.")
@click.option(
    "-o", "--output", default="demo-output", show_default=True, help="Folder for the report."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON on stdout.")
def demo(output: str, as_json: bool) -> None:
    """Upgrade a small model on real handwritten digits, and watch retrieval recover."""
    from fastfill.cli.demo_live import live
    from fastfill.digits import make_upgrade

    console.print("[bold]1. Two models.[/] The old one has seen the digits 0–4, the new one all.")
    upgrade = make_upgrade()
    gallery = len(upgrade.gallery)
    console.print(f"   A gallery of {gallery:,} digits embedded by the old model.\n")
    console.print("[bold]2. Align.[/] Learn h: old → new, and its error σ², from the pairs.\n")
    findings = evaluate(upgrade)
    show(upgrade, findings)
    folder = Path(output)
    write(findings, folder)
    measured = live(upgrade, folder)
    console.print(f"\nNext: open {folder / 'report.html'}", soft_wrap=True)
    if as_json:
        print_json({"report": str(folder / "report.html"), **summary(findings), **measured})


def evaluate(upgrade: Upgrade) -> Findings:
    """FCT (l2, random order) and FastFill (l2 with σ² and a penalty by it, σ order)."""
    from fastfill.align import Alignment
    from fastfill.evaluate import Candidate, Setting, study
    from fastfill.features import Features, Pairs

    labels = upgrade.train_labels
    pairs = Pairs(
        Features(upgrade.old(upgrade.train)), Features(upgrade.new(upgrade.train), labels=labels)
    )
    old = Features(upgrade.old(upgrade.gallery), name="old gallery")
    new = Features(upgrade.new(upgrade.gallery), name="new gallery")
    candidates = []
    for name, loss, policy in (
        ("FCT, random", "l2", "random"),
        ("FastFill, sigma", "l2+uncertainty", "sigma"),
    ):
        ours = "uncertainty" in loss
        alignment = Alignment.fit(
            pairs, method=METHOD, head=upgrade.new.head if ours else None,
            penalty=None if ours else 0.0,
        )  # fmt: skip
        candidates.append(
            Candidate(name, alignment(old), policy, alignment=loss, head=upgrade.new.head)
        )
    setting = Setting(new, upgrade.labels, old=old, metrics=METRICS, points=21, seeds=3)
    return study(
        setting, candidates, title="FastFill demo: handwritten digits", command="fastfill demo"
    )


def show(upgrade: Upgrade, findings: Findings) -> None:
    """What serves before, at once, on the way and at the end."""
    from rich.table import Table

    table = Table("queries on gallery", "top-1", "mAP", box=None, pad_edge=False)
    raw = raw_old_gallery(upgrade)
    levels = findings.levels
    rows: list[tuple[str, dict[str, float]]] = [
        ("old model on old gallery (before)", {m: levels[m]["old/old"] for m in METRICS}),
        ("new model on old gallery, unaligned", raw),
    ]
    rows += [(f"{name}: at once, 0 % backfilled", at) for name, at in _points(findings, 0.0)]
    rows += [(f"{name}: 25 % backfilled", at) for name, at in _points(findings, 0.25)]
    rows.append(("new model on new gallery (100 %)", {m: levels[m]["new/new"] for m in METRICS}))
    for label, values in rows:
        table.add_row(label, *(f"{100 * values[m]:5.1f} %" for m in METRICS))
    console.print("[bold]3. Serve and backfill.[/]")
    console.print(table)


def raw_old_gallery(upgrade: Upgrade) -> dict[str, float]:
    """New queries on the old vectors as they are; the shorter of the two is filled with zeros."""
    import numpy as np

    from fastfill.align import Aligned
    from fastfill.evaluate import backfill_curves

    new, old = upgrade.new(upgrade.gallery), upgrade.old(upgrade.gallery)
    padded = np.zeros_like(new)
    padded[:, : old.shape[1]] = old
    curves = backfill_curves(
        Aligned(padded, np.zeros(len(new))), new, upgrade.labels,
        policy="random", metrics=METRICS, points=[0.0],
    )  # fmt: skip
    return {metric: float(curves[metric].values[0]) for metric in METRICS}


def write(findings: Findings, folder: Path) -> None:
    """The report, with figures where matplotlib is installed."""
    from fastfill.errors import MissingExtraError
    from fastfill.report import write_folder

    try:
        write_folder(folder, findings)
    except MissingExtraError as error:
        write_folder(folder, findings, figures=False)
        console.print(f"[dim]No figures: {error}[/]")


def summary(findings: Findings) -> dict[str, Any]:
    """The curves' areas and ends, by name and metric."""
    return {
        "curves": [
            {"name": c.name, "metric": c.metric, "area": c.area, "start": c.start, "end": c.end}
            for c in findings.curves
        ]
    }


def _points(findings: Findings, fraction: float) -> list[tuple[str, dict[str, float]]]:
    """Every series at one fraction, the mean over its seeds."""
    names = list(dict.fromkeys(curve.name for curve in findings.curves))
    points = []
    for name in names:
        values = {}
        for metric in METRICS:
            same = [c for c in findings.curves if c.name == name and c.metric == metric]
            values[metric] = sum(c.at(fraction) for c in same) / len(same)
        points.append((name, values))
    return points
