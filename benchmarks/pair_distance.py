"""python -m benchmarks.pair_distance [--paper] [--device cuda]

What it brings that σ² knows the training pairs: Kendall's τ of σ² with the true error, and the area
under the curve in the order `sigma`, with and without; and what it costs when a map is applied. On
upgrades A, B and C from 5,000 training pairs (ridge) and 500 (kernel), on A and C by networks too
(5,000 pairs, the paper's for 10 epochs), and on CLINC150 from 750; 4,000 items of each gallery are
backfilled, all of them count for τ. With --paper also the paper's network in full on all training
pairs, for which a GPU is needed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.shared.scenarios import Scenario, cifar100, clinc150
from benchmarks.shared.sections import write_section
from benchmarks.shared.timing import fastest
from fastfill.align import Alignment
from fastfill.align.pair_distance import PairDistance
from fastfill.evaluate import backfill_curves, kendall_tau
from fastfill.features import Distance, Features, Pairs

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ("features", "clinc150")

GALLERY = 4_000  # items of each gallery that are backfilled
ROWS, OLD, NEW = 40_000, 256, 384  # for the speed
METRICS = ("cmc@1", "map")
NETWORKS = ("residual", "paper")  # which learn from the classifier too


@dataclass(frozen=True)
class Case:
    """One map on one upgrade."""

    upgrade: str
    method: str
    pairs: int
    distance: Distance = "l2"
    epochs: int | None = None


CASES = (
    *(Case(name, "ridge", 5_000) for name in "ABC"),
    *(Case(name, "kernel", 500) for name in "ABC"),
    *(Case(name, "residual", 5_000) for name in "AC"),
    *(Case(name, "paper", 5_000, epochs=10) for name in "AC"),
    Case("CLINC150", "ridge", 750, "cosine"),
    Case("CLINC150", "kernel", 750, "cosine"),
)
PAPER = tuple(Case(name, "paper", 50_000) for name in "ABC")


def main() -> None:
    """Measure every case, then the speed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paper", action="store_true", help="also the paper's network")
    parser.add_argument("--device")
    given = parser.parse_args()
    lines = ["| map | τ without | with | top-1 / mAP in σ order without | with |",
             "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for case in (*CASES, *(PAPER if given.paper else ())):
        lines.append(row(case, given.device))
        print(lines[-1], flush=True)
    lines += ["\nτ with the true squared error; areas of 11 points in per cent. Rows per second of "
              f"maps {OLD}→{NEW}:\n", *speed()]  # fmt: skip
    command = "python -m benchmarks.pair_distance" + " --paper" * given.paper
    write_section("σ² that knows the training pairs", command, "\n".join(lines))


def row(case: Case, device: str | None) -> str:
    """One line of the table."""
    text = case.upgrade == "CLINC150"
    scenario = clinc150(case.pairs) if text else cifar100(case.upgrade)
    most = np.random.default_rng(0).permutation(len(scenario.pairs))[: case.pairs]
    pairs = scenario.pairs if text else scenario.pairs.take(most)
    taus, areas = [], []
    for use in (False, True):
        alignment = Alignment.fit(
            pairs, method=case.method, distance=case.distance, pair_distance=use, device=device,
            epochs=case.epochs, head=scenario.head if case.method in NETWORKS else None,
        )  # fmt: skip
        tau, area = measure(scenario, alignment)
        taus.append(f"{tau:.2f}")
        areas.append(f"{area[0]:.1f} / {area[1]:.1f}")
    name = f"{case.upgrade}, {case.method}, {len(pairs):,} pairs"
    name += f", {case.epochs} epochs" if case.epochs else ""
    return f"| {name} | {' | '.join([*taus, *areas])} |"


def measure(scenario: Scenario, alignment: Alignment) -> tuple[float, list[float]]:
    """τ on the whole gallery, and the areas in the order sigma on a part of it."""
    aligned = alignment(scenario.old)
    error = np.square(aligned.h - scenario.new, dtype=np.float64).sum(1)
    part = np.random.default_rng(1).permutation(len(error))[:GALLERY]
    curves: dict[str, Any] = backfill_curves(
        aligned.take(part), scenario.new[part], scenario.labels[part], policy="sigma",
        metrics=METRICS, points=11, distance=alignment.distance,
    )  # fmt: skip
    tau = kendall_tau(aligned.variance.astype(np.float64), error)
    return tau, [100 * curves[metric].mean for metric in METRICS]


def speed() -> list[str]:
    """Rows per second of each method with and without."""
    rng = np.random.default_rng(0)
    new = rng.normal(size=(ROWS, NEW)).astype(np.float32)
    old = np.tanh(new @ rng.normal(size=(NEW, OLD)) / NEW**0.5).astype(np.float32)
    pairs = Pairs(Features(old[:3000]), Features(new[:3000]))
    near = PairDistance.of(pairs.new.vectors, seed=0)
    lines = ["| method | without | with | share |", "| --- | --- | --- | --- |"]
    for method, part in (("ridge", 1), ("residual", 1), ("paper", 10)):
        plain = Alignment.fit(pairs, method=method, epochs=1, device="cpu", pair_distance=False)
        knowing = Alignment(
            method, plain.arrays, plain.scaling, plain.calibration, penalty=plain.penalty,
            pair_distance=near, facts=plain.facts,
        )  # fmt: skip
        x = old[: ROWS // part]
        seconds = fastest(lambda: plain(x), lambda: knowing(x), times=7, warm_up=1)  # noqa: B023
        without, with_it = (len(x) / each for each in seconds)
        lines.append(f"| {method} | {without:,.0f} | {with_it:,.0f} | {with_it / without:.0%} |")
    return lines


if __name__ == "__main__":
    main()
