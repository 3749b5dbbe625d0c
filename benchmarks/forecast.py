"""python -m benchmarks.forecast [--seeds 3] [--only CLINC]

The forecast of whole backfilling curves from pairs of the gallery, against the true curves. Also
draws docs/pictures/forecast.svg, from the first seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.paths import DATA, PICTURES
from benchmarks.shared.scenarios import Scenario, cifar100, clinc150
from benchmarks.shared.sections import write_section
from fastfill.align import FitOptions
from fastfill.evaluate import backfill_curves
from fastfill.features import Distance, Features, Pairs
from fastfill.forecast import Forecast, Rehearsal
from fastfill.order import Order, PolicyInput, arrange

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ("features", "clinc150")

SCENARIOS = {"A, 500 pairs": ("A", 500), "CLINC150, 750 pairs": ("CLINC150", 750),
             "CLINC150, 750 pairs, 1,500 queries": ("CLINC150", 750),
             "A, 2,000 pairs": ("A", 2000)}  # fmt: skip
QUERIES = 1_500  # of users, where some are known
METRICS = ("map", "agreement@10")
POLICIES = ("sigma", "random")
TRIALS = DATA / "forecast.json"  # kept, so that one scenario can be run again
PICTURE = PICTURES / "forecast.svg"


@dataclass(frozen=True)
class Trial:
    """One forecast beside the truth."""

    scenario: str
    metric: str
    policy: str
    seed: int
    forecast: Forecast
    truth: NDArray[np.float64]

    def to_json(self) -> dict[str, Any]:
        """Plain values, the likely curves left out."""
        plain: dict[str, Any] = {
            name: getattr(self, name) for name in ("scenario", "metric", "policy", "seed")
        }
        plain["forecast"] = self.forecast.to_json() | {"draws": None}
        return plain | {"truth": self.truth.tolist()}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Trial:
        """The inverse of `to_json`."""
        forecast, truth = Forecast.from_json(plain["forecast"]), np.array(plain["truth"])
        return cls(**(plain | {"forecast": forecast, "truth": truth}))

    def figures(self) -> tuple[float, float, float, float, float]:
        """Mean error, share inside the band, its width, error of the fraction, against a line."""
        f, truth = self.forecast, self.truth
        error = float(np.abs(f.values - truth).mean())
        inside = float(((truth >= f.lower - 1e-9) & (truth <= f.upper + 1e-9)).mean())
        line = truth[0] + (truth[-1] - truth[0]) * f.fractions
        real = Forecast(f.metric, f.fractions, truth, truth, truth, f.items, f.pairs)
        late = abs(f.reached(0.95).middle - real.reached(0.95).middle)
        straight = float(np.abs(line - truth).mean())
        width = float((f.upper - f.lower).mean())
        return 100 * error, 100 * inside, 100 * width, 100 * late, error / straight


def main() -> None:
    """All scenarios, metrics and policies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of a scenario's name")
    parser.add_argument("--dry", action="store_true", help="print only")
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    ran = [(name, seed) for name in SCENARIOS if args.only in name for seed in seeds]
    trials = [trial for name, seed in ran for trial in run(name, seed)]
    if args.dry:
        print(table(trials))
        return
    kept = json.loads(TRIALS.read_text()) if TRIALS.exists() else []
    trials += [Trial.from_json(old) for old in kept if (old["scenario"], old["seed"]) not in ran]
    trials.sort(key=lambda t: (list(SCENARIOS).index(t.scenario), METRICS.index(t.metric), t.seed))
    TRIALS.write_text(json.dumps([trial.to_json() for trial in trials]) + "\n")
    draw(trials)
    write_section(
        "Forecast of backfilling curves",
        "python -m benchmarks.forecast",
        f"{table(trials)}\n\nMean over samples of pairs (seeds); 21 points; points of the metric "
        "(0 to 100). Last columns: error of the fraction at which 95 % of the new model is reached "
        "(percentage points), and the mean error over that of a straight line between the true "
        "ends.",
    )


def run(name: str, seed: int) -> Iterator[Trial]:
    """Every metric and policy of one sample of pairs."""
    kind, count = SCENARIOS[name]
    scenario = cifar100("A") if kind == "A" else clinc150(20)
    distance: Distance = "l2" if kind == "A" else "cosine"
    rows = np.random.default_rng(seed).permutation(len(scenario.old))[:count]
    rest = np.setdiff1d(np.arange(len(scenario.old)), rows)
    pairs = Pairs(
        Features(scenario.old[rows]), Features(scenario.new[rows], labels=scenario.labels[rows])
    )
    asked = None
    if "queries" in name and scenario.queries is not None and scenario.query_labels is not None:
        some = np.random.default_rng([seed, 8]).permutation(len(scenario.queries))[:QUERIES]
        asked = Features(scenario.queries[some], labels=scenario.query_labels[some])
    rehearsal = Rehearsal(
        pairs, len(scenario.old), distance=distance, gallery=scenario.old[rest],
        gallery_labels=scenario.labels[rest], queries=asked,
        fit=FitOptions(seed=seed, device="cpu"),
    )  # fmt: skip
    for policy in POLICIES:
        truths = truth(scenario, rehearsal, rows, policy, distance, seed)
        for metric in METRICS:
            forecast = rehearsal.forecast(metric, policy)
            trial = Trial(name, metric, policy, seed, forecast, truths[metric])
            print(name, seed, policy, metric, [round(figure, 2) for figure in trial.figures()],
                  np.round(100 * (forecast.values - trial.truth)[::4], 1), flush=True)  # fmt: skip
            yield trial


def truth(
    scenario: Scenario,
    rehearsal: Rehearsal,
    rows: NDArray[np.int64],
    policy: str,
    distance: Distance,
    seed: int,
) -> dict[str, NDArray[np.float64]]:
    """The true curves: the pairs first, then by the policy, with the same alignment."""
    aligned = rehearsal.alignment(scenario.old)
    scores = np.array(arrange(policy, PolicyInput(aligned, seed=seed + 1)).scores)
    scores[rows] = scores.max() + 1
    curves = backfill_curves(
        aligned, scenario.new, scenario.labels, policy=Order.by_score(scores), metrics=METRICS,
        queries=scenario.queries, query_labels=scenario.query_labels, distance=distance,
    )  # fmt: skip
    return {name: curve.values for name, curve in curves.items()}


def table(trials: list[Trial]) -> str:
    """One line for each scenario, metric and policy: the mean over the seeds."""
    columns = ("scenario", "metric", "policy", "seeds", "mean error", "inside the band",
               "its width", "fraction for 95 %", "against a line")  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    keys = dict.fromkeys((t.scenario, t.metric, t.policy) for t in trials)
    for key in keys:
        mine = [t.figures() for t in trials if (t.scenario, t.metric, t.policy) == key]
        error, inside, width, late, line = np.mean(mine, axis=0)
        cells = (*key, len(mine), f"{error:.2f}", f"{inside:.0f} %", f"{width:.1f}",
                 f"{late:.1f}", f"{line:.2f}")  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def draw(trials: list[Trial]) -> None:
    """Forecast and truth of the default policy and first seed, a panel per scenario and metric."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    first = {t.scenario: min(o.seed for o in trials if o.scenario == t.scenario) for t in trials}
    shown = [t for t in trials if t.policy == "sigma" and t.seed == first[t.scenario]]
    names = list(dict.fromkeys(trial.scenario for trial in shown))
    figure, axes = plt.subplots(
        len(METRICS), len(names), figsize=(3.6 * len(names), 6.0), squeeze=False
    )
    for trial in shown:
        axis = axes[METRICS.index(trial.metric)][names.index(trial.scenario)]
        f = trial.forecast
        axis.fill_between(100 * f.fractions, 100 * f.lower, 100 * f.upper, color="#c6dbef",
                          label="90 % band")  # fmt: skip
        axis.plot(100 * f.fractions, 100 * f.values, color="#2171b5", label="forecast")
        axis.plot(100 * f.fractions, 100 * trial.truth, color="#d94801", ls="--", label="truth")
        axis.set_title(trial.scenario, fontsize=10)
        axis.set_ylabel(trial.metric)
        axis.set_xlabel("backfilled, %")
        axis.grid(alpha=0.3)
    for axis in axes.flat:
        axis.set_visible(axis.has_data())
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(PICTURE)


if __name__ == "__main__":
    main()
