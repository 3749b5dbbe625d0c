"""python -m benchmarks.paper_features [--device cuda] [--seed 0] [--epochs 80]

The paper's map, losses and orders on CIFAR-100 features, upgrades A, B and C: one table. Curves of
22 evenly spaced points, gallery = queries = test, new queries, L2; AUC is the mean of the points.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks._results import write_section
from benchmarks._scenarios import Scenario, cifar100
from fastfill.align import Aligned, Alignment
from fastfill.evaluate import backfill_curves, plain_metrics
from fastfill.order import Order, PolicyInput, l2_loss

METRICS = ("cmc@1", "map")
POINTS = 22
QUALITY = Path(__file__).with_name("paper_features.json")  # read by benchmarks.auto
Cell = tuple[float, float] | None  # top-1 and mAP

# What a prototype reached on the same features (0 % for the map, else the AUC), in per cent.
PROTOTYPE: dict[str, dict[str, tuple[float, float]]] = {
    "A": {
        "old/old": (43.8, 28.5), "new/new": (68.0, 51.2), "raw old gallery": (10.5, 7.4),
        "ridge, random": (65.4, 41.9), "FCT (l2) at 0 %": (60.8, 41.8),
        "FCT (l2), random": (63.8, 44.9), "l2+disc, random": (66.1, 45.8),
        "FastFill, random": (66.2, 45.8), "FastFill, sigma": (65.8, 46.3),
        "FastFill, entropy": (66.5, 48.4), "FastFill, oracle l2": (66.8, 48.3),
        "FastFill, oracle l2+disc": (67.3, 50.2),
    },
    "B": {
        "old/old": (66.7, 48.6), "new/new": (68.0, 51.2), "raw old gallery": (1.2, 1.6),
        "ridge, random": (68.0, 51.2), "FCT (l2) at 0 %": (66.4, 54.2),
        "FCT (l2), random": (67.0, 51.9), "l2+disc, random": (66.7, 52.8),
        "FastFill, random": (66.9, 53.1), "FastFill, sigma": (67.0, 53.5),
        "FastFill, entropy": (67.7, 54.2), "FastFill, oracle l2": (67.3, 52.8),
        "FastFill, oracle l2+disc": (68.5, 54.9),
    },
    "C, all classes": {
        "old/old": (26.1, 13.9), "new/new": (43.8, 28.5), "raw old gallery": (3.9, 3.2),
        "ridge, random": (41.1, 22.4), "FCT (l2) at 0 %": (27.5, 17.1),
        "FCT (l2), random": (40.5, 21.5), "l2+disc, random": (40.7, 23.2),
        "FastFill, random": (40.9, 23.3), "FastFill, sigma": (40.2, 23.6),
        "FastFill, entropy": (40.2, 24.1), "FastFill, oracle l2": (40.6, 24.8),
    },
}  # fmt: skip


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
    """top-1 / mAP in per cent; in brackets what the prototype reached."""
    names = list(columns)
    lines = ["| | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for row in columns["A"]:
        cells = [_cell(columns[n].get(row), PROTOTYPE.get(n, {}).get(row)) for n in names]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    lines.append(
        "\ntop-1 / mAP in per cent; in brackets a prototype's figures on the same features. "
        "“at 0 %”: every row aligned; with an order: AUC."
    )
    return "\n".join(lines)


def _cell(value: Cell, reference: tuple[float, float] | None) -> str:
    text = "–" if value is None else f"{value[0]:.1f} / {value[1]:.1f}"
    return text if reference is None else f"{text} ({reference[0]} / {reference[1]})"


if __name__ == "__main__":
    main()
