"""python -m benchmarks.paper_features [--device cuda] [--seed 0] [--epochs 80]

The paper's map, losses and orders on CIFAR-100 features, upgrades A, B and C: one table. Curves of
22 evenly spaced points, gallery = queries = test, new queries, L2; AUC is the mean of the points.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from benchmarks.shared.paths import DATA
from benchmarks.shared.scenarios import Scenario, cifar100
from benchmarks.shared.sections import write_section
from fastfill.align import Aligned, Alignment
from fastfill.evaluate import backfill_curves, plain_metrics
from fastfill.order import Order, PolicyInput, l2_loss

NEEDS_GPU = True
NEEDS_DATA: tuple[str, ...] = ("features",)

METRICS = ("cmc@1", "map")
POINTS = 22
QUALITY = DATA / "paper_features.json"  # read by benchmarks.auto
Cell = tuple[float, float] | None  # top-1 and mAP


def main() -> None:
    """Fit every map once per upgrade, then draw all curves of its galleries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=None)
    args = parser.parse_args()
    columns: dict[str, dict[str, Cell]] = {}
    for name in "ABC":
        scenario = cifar100(name)
        maps = fit_maps(scenario, args.seed, args.device, args.epochs)
        for gallery in galleries(scenario):
            columns[gallery.name] = table(gallery, maps, args.device)
            print(gallery.name, columns[gallery.name], flush=True)
    QUALITY.write_text(json.dumps(columns, indent=1) + "\n")
    command = "python -m benchmarks.paper_features" + (
        f" --device {args.device}" if args.device else ""
    )
    write_section("The paper on CIFAR-100 features", command, markdown(columns))


def fit_maps(
    scenario: Scenario, seed: int, device: str | None, epochs: int | None
) -> dict[str, Alignment]:
    """ridge, and the paper's network with the losses of its ablation."""
    maps = {"ridge": Alignment.fit(scenario.pairs, method="ridge", seed=seed)}
    for loss in ("l2", "disc", "l2+disc"):
        for extra in ("", "+uncertainty"):
            maps[loss + extra] = Alignment.fit(
                scenario.pairs,
                method="paper",
                loss=loss + extra,
                head=scenario.head if "disc" in loss else None,
                seed=seed,
                device=device,
                epochs=epochs,
            )
    return maps


def galleries(scenario: Scenario) -> list[Scenario]:
    """C is looked at on the new model's classes, on classes it never saw, and on all."""
    if scenario.name != "C":
        return [scenario]
    seen = scenario.labels < 50
    return [
        scenario.among(seen, "C, seen classes"),
        scenario.among(~seen, "C, unseen classes"),
        scenario.among(seen | ~seen, "C, all classes"),
    ]


def table(s: Scenario, maps: dict[str, Alignment], device: str | None) -> dict[str, Cell]:
    """One column: every system on one gallery."""
    cuda = device if device and device.startswith("cuda") else None

    def plain(queries: np.ndarray | None, gallery: np.ndarray) -> Cell:
        if queries is None:
            values = plain_metrics(None, gallery, s.labels, metrics=METRICS, device=cuda)
        else:  # a query is the new vector of a gallery item: that item is left out by the curve
            curves = backfill_curves(
                Aligned(gallery, np.zeros(len(gallery))), s.new, s.labels, policy="random",
                metrics=METRICS, points=[0.0], device=cuda,
            )  # fmt: skip
            values = {m: float(curves[m].values[0]) for m in METRICS}
        return 100 * values["cmc@1"], 100 * values["map"]

    aligned = {name: alignment(s.old) for name, alignment in maps.items()}
    column: dict[str, Cell] = {
        "old/old": plain(None, s.old),
        "new/new": plain(None, s.new),
        "raw old gallery": plain(s.new, s.old),
    }
    for name, part in aligned.items():
        label = {"l2": "FCT (l2)", "l2+disc+uncertainty": "FastFill"}.get(name, name)
        column[f"{label} at 0 %"] = plain(s.new, part.vectors)
    for label, (name, policy) in ORDERS.items():
        column[label] = auc(s, aligned[name], policy, cuda)
    return column


ORDERS = {
    "ridge, random": ("ridge", "random"),
    "FCT (l2), random": ("l2", "random"),
    "l2+disc, random": ("l2+disc", "random"),
    "FastFill, random": ("l2+disc+uncertainty", "random"),
    "FastFill, sigma": ("l2+disc+uncertainty", "sigma"),
    "FastFill, entropy": ("l2+disc+uncertainty", "entropy"),
    "FastFill, oracle l2": ("l2+disc+uncertainty", "oracle l2"),
    "FastFill, oracle l2+disc": ("l2+disc+uncertainty", "oracle"),
}


def auc(s: Scenario, aligned: Aligned, policy: str, device: str | None) -> Cell:
    """Mean of the 22 points; the oracle through the head only where it knows the classes."""
    if policy == "oracle" and s.head is not None and s.labels.max() >= len(s.head):
        return None
    order: str | Order = policy
    if policy == "oracle l2":
        order = Order.by_score(l2_loss(aligned.vectors, s.new), policy)
    curves = backfill_curves(
        aligned, s.new, s.labels, policy=order, metrics=METRICS, points=POINTS,
        known=PolicyInput(aligned, head=s.head), device=device,
    )  # fmt: skip
    return 100 * curves["cmc@1"].mean, 100 * curves["map"].mean


def markdown(columns: dict[str, dict[str, Cell]]) -> str:
    """top-1 / mAP in per cent."""
    names = list(columns)
    lines = ["| | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for row in columns["A"]:
        cells = [_cell(columns[name].get(row)) for name in names]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    lines.append("\ntop-1 / mAP in per cent. “at 0 %”: every row aligned; with an order: AUC.")
    return "\n".join(lines)


def _cell(value: Cell) -> str:
    return "–" if value is None else f"{value[0]:.1f} / {value[1]:.1f}"


if __name__ == "__main__":
    main()
