"""python -m benchmarks.lab_augmentation

How the augmentation of the backbones decides what σ² can know: the same update (CIFAR-100, 50 → 100
classes, ResNet-50 of 60 epochs, maps learned on 20 views of the same augmentation, seed 0) trained
with gentler and stronger augmentation. Reads the results of three runs of `fastfill lab run sigma
ablation`, between which the recipe `small` had another `augment`; a GPU makes each in four minutes.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.shared.paths import DATA
from benchmarks.shared.sections import write_section
from fastfill.lab.tables import table

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

RESULTS = DATA / "lab_augmentation"
NAMES = {
    "shifted": "crops of the padded image, mirrored",
    "rescaled": "parts of 35 to 100 % of the area, mirrored",
    "distorted": "parts of 20 to 100 %, mirrored, colours jittered (the recipe)",
}
FCT, RANDOM = "l2, random", "l2+disc+uncertainty, random"
SIGMA, ORACLE = "l2+disc+uncertainty, sigma", "FastFill-oracle"
METRICS = ("cmc@1", "map")


def read(augment: str, experiment: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts of the models and the only test set of a result."""
    result = json.loads((RESULTS / augment / f"{experiment}-seed0.json").read_text())
    (test,) = result["tests"].values()
    return result["models"], test


def row(augment: str) -> list[str]:
    """One augmentation: memorisation, retrieval, and how much of both gaps is closed."""
    models, test = read(augment, "ablation")
    tau = read(augment, "sigma")[1]["kendall"]
    new, areas = test["plain"]["new/new"], {
        name: {metric: system["curves"][metric]["area"] for metric in METRICS}
        for name, system in test["systems"].items()
    }  # fmt: skip
    closed, share = [], []
    for metric in METRICS:
        fct, random, sigma, oracle = (areas[n][metric] for n in (FCT, RANDOM, SIGMA, ORACLE))
        closed.append(f"{100 * (sigma - fct) / (new[metric] - fct):.0f}")
        share.append(f"{100 * (sigma - random) / (oracle - random):.0f}")
    accuracy = (models["new"][f"{part}_accuracy"] for part in ("train", "test"))
    return [
        NAMES[augment],
        " / ".join(f"{100 * value:.1f}" for value in accuracy),
        _both(new),
        _both(areas[FCT]),
        _both(areas[SIGMA]),
        " / ".join(closed),
        " / ".join(share),
        f"{tau['l2, sigma']['l2']:.2f} / {tau['l2+disc, sigma']['l2+disc']:.2f}",
    ]


def _both(values: dict[str, float]) -> str:
    return " / ".join(f"{100 * values[metric]:.1f}" for metric in METRICS)


HEADS = [
    "augmentation of backbones and views",
    "new model's accuracy, train / test",
    "new/new, top-1 / mAP",
    "FCT",
    "FastFill",
    "gap closed, %",
    "share of the oracle's gain, %",
    "τ of σ², l2 / l2+disc",
]


def main() -> None:
    models = read("distorted", "ablation")[0]
    command = "EFFORT=1 benchmarks/lab_gpu.sh 0 sigma ablation  # with each `augment` in the recipe"
    text = (
        "Areas under the curves, one seed. The less the backbones have memorised their training "
        "images, the more a map learned on those images knows about its own errors."
    )
    rows = [row(augment) for augment in NAMES]
    write_section(
        "Laboratory: augmentation and memorisation", command,
        f"{text}\n\n{table(HEADS, rows)}", models["new"]["device"],
    )  # fmt: skip


if __name__ == "__main__":
    main()
