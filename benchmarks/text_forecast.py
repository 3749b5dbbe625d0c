"""python -m benchmarks.text_forecast [--vectors DIR] [--sample 1] [--only cranfield]

The forecast of what readers of documents see while both models answer, or the old one alone, from
5 % of the documents as pairs and 150 real queries, against the true curves of all queries. The
vectors are those of benchmarks/text_search.py. Sample 0 is the one that the method was chosen on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.shared.sections import write_section
from benchmarks.shared.text_encoders import text_folder
from benchmarks.shared.text_sets import SETS, Embedded, read_embedded
from fastfill.align import FitOptions, Fusion, Serving
from fastfill.evaluate import Curve
from fastfill.features import Features, Ints, Pairs
from fastfill.forecast import Forecast, Rehearsal
from fastfill.order import Order, PolicyInput, arrange

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ("text",)

COMMAND = "python -m benchmarks.text_forecast"
UPGRADES = (("glove", "wordllama"), ("wordllama", "minilm"), ("e5-small", "minilm"))
SERVED: tuple[Serving, ...] = ("both", "old")
SHARE, QUERIES, METRIC, POLICY = 0.05, 150, "agreement@10", "mixed"


class Trial(NamedTuple):
    """One forecast beside the truth."""

    name: str  # of the set
    upgrade: str
    serving: Serving
    forecast: Forecast
    truth: Curve

    def figures(self) -> tuple[float, float, float]:
        """Mean error, share of the points inside the band, and its width, in per cent."""
        forecast, true = self.forecast, self.truth.values
        inside = (true >= forecast.lower - 1e-9) & (true <= forecast.upper + 1e-9)
        error, width = np.abs(forecast.values - true), forecast.upper - forecast.lower
        return (
            100 * float(error.mean()),
            100 * float(inside.mean()),
            100 * float(width.mean()),
        )


def main() -> None:
    """All sets and upgrades."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--vectors", type=Path, default=text_folder() / "vectors", metavar="DIR")
    parser.add_argument("--sample", type=int, default=1, help="of pairs and queries")
    parser.add_argument("--only", default="", help="part of a set's name; prints only")
    given = parser.parse_args()
    sets = [name for name in SETS if given.only in name]
    trials = [
        trial
        for name in sets
        for models in UPGRADES
        for trial in run(name, models, given.vectors, given.sample)
    ]
    body = f"{table(trials)}\n\n{ABOUT}"
    if given.only:
        print(body)
    else:
        write_section("Forecast of document search by both models", COMMAND, body)


ABOUT = (
    f"{METRIC}: the share of the 10 nearest by the new model that are found, in per cent, at 21 "
    f"fractions; pairs are {100 * SHARE:.0f} % of the documents, the forecast has {QUERIES} of the "
    "queries at most, the truth all of them. Band: 90 %."
)


def run(name: str, models: tuple[str, str], vectors: Path, sample: int) -> Iterator[Trial]:
    """Every way to serve, from one sample of pairs and queries."""
    old, new = (read_embedded(vectors, name, model) for model in models)
    rng, items = np.random.default_rng(sample), len(old.documents)
    rows = rng.permutation(items)[: round(SHARE * items)]
    asked = np.sort(rng.permutation(len(old.queries))[:QUERIES])
    rest = np.setdiff1d(np.arange(items), rows)
    rehearsal = Rehearsal(
        Pairs(Features(old.documents[rows]), Features(new.documents[rows])), items,
        distance="cosine", fit=FitOptions(seed=sample, device="cpu"), gallery=old.documents[rest],
        queries=Features(new.queries[asked]), queries_old=Features(old.queries[asked]),
    )  # fmt: skip
    for serving in SERVED:
        made = rehearsal.forecast(METRIC, POLICY, serving=serving)
        true = truth(rehearsal, (old, new), rows, asked, serving, sample)
        trial = Trial(name, " → ".join(models), serving, made, true)
        print(*trial[:3], [round(figure, 1) for figure in trial.figures()], flush=True)
        yield trial


def truth(
    rehearsal: Rehearsal,
    models: tuple[Embedded, Embedded],
    rows: Ints,
    asked: Ints,
    serving: Serving,
    sample: int,
) -> Curve:
    """The true curve of all queries: the pairs first, then by the policy, with the same map."""
    old, new = models
    aligned, reference = rehearsal.alignment(old.documents), rehearsal.alignment.reference
    assert reference is not None
    queries = (old.queries[asked], new.queries[asked])
    fusion = Fusion.learn(reference, queries, distance="cosine", items=len(old.documents))
    order = arrange(POLICY, PolicyInput(aligned, seed=sample + 1)).positions
    first = np.concatenate([rows, order[~np.isin(order, rows)]])
    return Curve.simulate(
        aligned, new.documents, policy=Order(first), metric=METRIC, queries=new.queries,
        distance="cosine", serving=serving, old=old.documents, queries_old=old.queries,
        fusion=fusion,
    )  # fmt: skip


def table(trials: list[Trial]) -> str:
    """A line for each trial, and the mean of each way to serve."""
    columns = ("set", "upgrade", "pairs", "served by", "mean error", "inside the band",
               "its width", "truth at 0, 50, 100 %")  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for trial in trials:
        error, inside, width = trial.figures()
        ends = ", ".join(f"{100 * trial.truth.at(fraction):.0f}" for fraction in (0.0, 0.5, 1.0))
        cells = (trial.name, trial.upgrade, trial.forecast.pairs, trial.serving, f"{error:.1f}",
                 f"{inside:.0f} %", f"{width:.1f}", ends)  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for serving in SERVED:
        mine = [trial.figures() for trial in trials if trial.serving == serving]
        error, inside, width = np.mean(mine, axis=0)
        lines.append(f"| all | all | | {serving} | {error:.1f} | {inside:.0f} % | {width:.1f} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
