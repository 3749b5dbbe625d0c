"""python -m benchmarks.auto

`auto` against the paper's preset (loss l2, no labels) on upgrade A: quality at 0 % and CPU time,
both timed in one run. The preset's time is that of a few epochs, scaled to 80; its quality comes
from benchmarks/results/paper_features.json, which benchmarks.paper_features writes on a GPU.
"""

from __future__ import annotations

import json
import time

from benchmarks.shared.paths import DATA
from benchmarks.shared.scenarios import Scenario, cifar100
from benchmarks.shared.sections import write_section
from fastfill.align import Alignment
from fastfill.evaluate import backfill_curves
from fastfill.features import Features, Pairs

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ("features",)

EPOCHS = 2


def main() -> None:
    """Time both in CPU seconds, which other work on the machine does not change much."""
    scenario = cifar100("A")
    bare = Pairs(scenario.pairs.old, Features(scenario.pairs.new.vectors))  # no labels
    began = time.process_time()
    auto = Alignment.fit(bare, device="cpu")
    auto_seconds = time.process_time() - began
    seconds = []  # the difference of the two is free of what is done once
    for epochs in (EPOCHS, 2 * EPOCHS):
        began = time.process_time()
        Alignment.fit(bare, method="paper", loss="l2", epochs=epochs, device="cpu")
        seconds.append(time.process_time() - began)
    paper_seconds = seconds[0] + (80 - EPOCHS) * (seconds[1] - seconds[0]) / EPOCHS
    top1, mean_ap = at_zero(scenario, auto)
    reference = json.loads((DATA / "paper_features.json").read_text())["A"]["FCT (l2) at 0 %"]
    write_section(
        "`auto` against the paper's preset, without labels",
        "python -m benchmarks.auto",
        f"""| upgrade A, 50,000 pairs | top-1 / mAP at 0 % | CPU seconds |
| --- | --- | --- |
| auto ({auto.method}) | {top1:.1f} / {mean_ap:.1f} | {auto_seconds:.0f} |
| paper, loss l2 | {reference[0]:.1f} / {reference[1]:.1f} | {paper_seconds:.0f} |

`auto` takes {auto_seconds / paper_seconds:.1%} of the preset's CPU time.""",
    )


def at_zero(scenario: Scenario, alignment: Alignment) -> tuple[float, float]:
    """top-1 and mAP of the whole gallery aligned, in per cent."""
    curves = backfill_curves(
        alignment(scenario.old), scenario.new, scenario.labels,
        policy="random", metrics=("cmc@1", "map"), points=[0.0],
    )  # fmt: skip
    return 100 * float(curves["cmc@1"].values[0]), 100 * float(curves["map"].values[0])


if __name__ == "__main__":
    main()
