"""python -m benchmarks.auto_text [--seeds 3]

`auto` on a text model upgrade, CLINC150, from a few random pairs of the gallery and no labels.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.shared.scenarios import Scenario, clinc150
from benchmarks.shared.sections import write_section
from fastfill.align import Alignment
from fastfill.evaluate import plain_metrics

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ("clinc150",)

PAIRS = (750, 3000)
METRICS = ("cmc@1", "map")


def main() -> None:
    """The whole gallery aligned, the pairs' rows too; mean over seeds of the sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    lines = ["| pairs | chosen | top-1 / mAP at 0 % |", "| --- | --- | --- |"]
    for pairs in PAIRS:
        values, chosen = [], set()
        for seed in range(args.seeds):
            scenario = clinc150(pairs, seed)
            alignment = Alignment.fit(scenario.pairs, distance="cosine", seed=seed, device="cpu")
            values.append(quality(scenario, alignment))
            chosen.add(alignment.method)
        mean, spread = np.mean(values, axis=0), np.std(values, axis=0)
        lines.append(
            f"| {pairs:,} | {', '.join(sorted(chosen))} | {mean[0]:.1f} ± {spread[0]:.1f} / "
            f"{mean[1]:.1f} ± {spread[1]:.1f} |"
        )
    scenario = clinc150(20)
    for name, queries, gallery in (
        ("old/old", scenario.old_queries, scenario.old),
        ("new/new", scenario.queries, scenario.new),
    ):
        top1, mean_ap = measure(scenario, queries, gallery)
        lines.append(f"| {name} | | {top1:.1f} / {mean_ap:.1f} |")
    lines.append(f"\nMean ± standard deviation over {args.seeds} samples of pairs.")
    write_section(
        "`auto` on text, without labels", "python -m benchmarks.auto_text", "\n".join(lines)
    )


def quality(scenario: Scenario, alignment: Alignment) -> tuple[float, float]:
    """top-1 and mAP of the aligned gallery."""
    return measure(scenario, scenario.queries, alignment(scenario.old).vectors)


def measure(scenario: Scenario, queries: object, gallery: object) -> tuple[float, float]:
    """top-1 and mAP, in per cent."""
    values = plain_metrics(
        queries, gallery, scenario.labels, query_labels=scenario.query_labels,  # type: ignore[arg-type]
        metrics=METRICS, distance="cosine",
    )  # fmt: skip
    return 100 * values["cmc@1"], 100 * values["map"]


if __name__ == "__main__":
    main()
