"""python -m benchmarks.ablations [--seeds 2] [--first-seed 10] [--jobs 4] [--device cuda]

What else could order the items, or teach the map, without labels: each idea in place of one part of
a backfill with refits of the kernel map that takes three of four items by sigma and one at random,
on upgrade A from 500 pairs of the gallery and on CLINC150 from 750. What has been run is kept in
benchmarks/results/ablations.json, so that the work can be done in pieces. Choices are made on the
even-numbered queries.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.shared.ablation_maps import plain, reweighted, weighted
from benchmarks.shared.ablation_orders import determinantal, random_first, softened, strata
from benchmarks.shared.curve_figures import ELSEWHERE, METRICS, PAIRS, figures
from benchmarks.shared.paths import DATA
from benchmarks.shared.saved_runs import run_missing
from benchmarks.shared.scenarios import Scenario, cifar100, clinc150
from benchmarks.shared.sections import write_section
from fastfill.align import Aligned, Alignment
from fastfill.evaluate import adaptive_curves
from fastfill.features import Features, Pairs
from fastfill.order.policies import mixed

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ("features", "clinc150")

BASE = "mixed"
RUNS = DATA / "ablations.json"
Rows = np.ndarray
Change = Callable[..., Aligned]  # (alignment, scenario, rows) -> the gallery aligned

quarter = partial(mixed, at_random=1 / 4)
ORDERS: dict[str, Any] = {
    "random": "random",
    "sigma": "sigma",
    "novelty": "novelty",
    "softened sigma": softened,
    "strata": strata,
    "determinantal": determinantal,
    "mixed": quarter,
    "mixed, a third at random": partial(mixed, at_random=1 / 3),
    "mixed, half at random": partial(mixed, at_random=1 / 2),
    "random to 10 %, then mixed": partial(random_first, share=0.10, then=quarter),
    "random to 15 %, then mixed": partial(random_first, share=0.15, then=quarter),
    "random to 25 %, then mixed": partial(random_first, share=0.25, then=quarter),
    "random to 35 %, then mixed": partial(random_first, share=0.35, then=quarter),
    "random to 25 %, then softened": partial(random_first, share=0.25, then=softened),
}
MAPS: dict[str, Change] = {
    "weighted refits": weighted,
    "a scale per direction, l2": partial(reweighted, loss="l2"),
    "a scale per direction, neighbours": partial(reweighted, loss="neighbours"),
    "a scale per direction, contrastive": partial(reweighted, loss="contrastive"),
    "a scale per direction, ranking": partial(reweighted, loss="ranking"),
    "a network on top, l2": partial(reweighted, loss="l2", network=True),
    "a network on top, neighbours": partial(reweighted, loss="neighbours", network=True),
    "a network on top, ranking": partial(reweighted, loss="ranking", network=True),
}


def main() -> None:
    """Run what is missing, then write the table of all that was run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=10)
    parser.add_argument("--only", action="append", help="run only what has this in its name")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--device", help="cuda: where curves are measured and maps changed")
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    names = [f"{one} | {what} | {seed}" for seed in seeds for what in systems() for one in PAIRS]
    wanted = [name for name in names if any(part in name for part in given.only or [""])]
    runs = run_missing(RUNS, wanted, partial(run, device=given.device), given.jobs)
    write_table(runs)


def systems() -> list[str]:
    """Orders with the plain map, then other maps in the default order and by sigma."""
    return [*ORDERS, *(f"mixed, {name}" for name in MAPS), "sigma, weighted refits"]


def run(name: str, device: str | None) -> dict[str, Any]:
    """The figures of one run."""
    one, system, seed = name.split(" | ")
    order, change = system, ""
    if order not in ORDERS:
        order, _, change = system.partition(", ")
    text = one.startswith("CLINC150")
    scenario = clinc150(PAIRS[one]) if text else cifar100("A")
    learn = learner(scenario, text, int(seed), MAPS.get(change, plain), device)
    curves = adaptive_curves(
        scenario.old, scenario.new, scenario.labels, pairs=PAIRS[one], policy=ORDERS[order],
        metrics=METRICS, queries=scenario.queries, query_labels=scenario.query_labels, learn=learn,
        distance="cosine" if text else "l2", seed=int(seed), device=device,
    )  # fmt: skip
    return figures(curves)


def learner(
    scenario: Scenario, text: bool, seed: int, change: Change, device: str | None
) -> Callable[[Rows], Aligned]:
    """The kernel map, changed or as it is."""

    def learn(rows: Rows) -> Aligned:
        pairs = Pairs(Features(scenario.old[rows]), Features(scenario.new[rows]))
        alignment = Alignment.fit(
            pairs, method="kernel", distance="cosine" if text else "l2", seed=seed
        )
        return change(alignment, scenario.old, scenario.new, rows, device=device)

    return learn


def write_table(runs: dict[str, Any]) -> None:
    """One section: a row for each system, what it adds to the first on the same samples."""
    lines = [f"| top-1 / mAP, even-numbered queries | {' | '.join(PAIRS)} | seeds |",
             "| --- | --- | --- | --- |"]  # fmt: skip
    means = [np.mean(list(scores(runs, one, BASE).values()), axis=0) for one in PAIRS]
    cells = [f"{top1:.1f} / {mean_ap:.1f}" for top1, mean_ap in means]
    count = len(scores(runs, next(iter(PAIRS)), BASE))
    lines.append(f"| {BASE}, a quarter at random | {' | '.join(cells)} | {count} |")
    for system in systems():
        parts = [added(runs, one, system) for one in PAIRS]
        if system != BASE and any(parts):
            cells = [(part and part[0]) or "–" for part in parts]
            seeds = max(part[1] for part in parts if part)
            lines.append(f"| {system} | {' | '.join(cells)} | {seeds} |")
    write_section(
        "Orders and maps that were tried, without labels",
        "python -m benchmarks.ablations",
        "\n".join(lines) + "\n\nMean of 21 points, with refits whenever the pairs have grown by a "
        "quarter. The other rows give the difference from the first on the same samples of pairs, "
        f"which are others than those of the tables above. {ELSEWHERE} Two of the four "
        "samples, those of all rows but `a third` and `to 10 %`, are older than two repairs (a map "
        "of 3,000 to 7,000 pairs got too large a penalty; on images a refit could leave lengths "
        "unmatched by accident); each difference is between runs of the same code.",
    )


def scores(runs: dict[str, Any], one: str, system: str) -> dict[str, Any]:
    """top-1 and mAP of the even-numbered queries, by seed."""
    prefix = f"{one} | {system} | "
    return {key[len(prefix) :]: run["even"] for key, run in runs.items() if key.startswith(prefix)}


def added(runs: dict[str, Any], one: str, system: str) -> tuple[str, int] | None:
    """The mean difference from the first row where both were run, and the number of samples."""
    mine, base = scores(runs, one, system), scores(runs, one, BASE)
    gains = [np.subtract(mine[seed], base[seed]) for seed in mine if seed in base]
    if not gains:
        return None
    top1, mean_ap = np.mean(gains, axis=0)
    return f"{top1:+.2f} / {mean_ap:+.2f}", len(gains)


if __name__ == "__main__":
    main()
