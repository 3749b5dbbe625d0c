"""python -m benchmarks.arcface_balance

How an ArcFace term should be weighed against l2 when a map is learned, with classes that neither
model was trained on. Upgrade C of the CIFAR-100 features on the unit sphere, 4,000 pairs, residual
maps of 8 epochs: retrieval at 0 % on the classes that the new model knows and on the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from torch import Tensor

from benchmarks.shared.scenarios import Scenario, cifar100
from benchmarks.shared.sections import write_section
from fastfill.align import Alignment, losses
from fastfill.evaluate import backfill_curves
from fastfill.features import Features, Matrix, Pairs, normalised

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ("features",)

PAIRS, EPOCHS, KNOWN = 4_000, 8, 50
TERMS = {  # scale, margin and weight of the ArcFace term; None: l2 alone
    "l2": None,
    "l2 + disc, scale 64, margin 0.5 (as published)": (64.0, 0.5, 1.0),
    "l2 + disc / 64": (64.0, 0.5, 1 / 64),
    "l2 + disc, scale 64, no margin": (64.0, 0.0, 1.0),
    "l2 + disc / 64, scale 64, no margin (`cosine`)": (64.0, 0.0, 1 / 64),
    "l2 + disc, scale 16, no margin": (16.0, 0.0, 1.0),
    "l2 + disc / 16, scale 16, no margin": (16.0, 0.0, 1 / 16),
}


@contextmanager
def weighed(scale: float, margin: float, weight: float) -> Iterator[None]:
    """The ArcFace term of maps with other constants."""
    published = losses.arcface

    def arcface(h: Tensor, head: Tensor, labels: Tensor) -> Tensor:
        return weight * published(h, head, labels, margin, scale)

    losses.arcface = arcface  # type: ignore[assignment]
    try:
        yield
    finally:
        losses.arcface = published


def learn(scenario: Scenario, term: tuple[float, float, float] | None) -> Alignment:
    """The map of some pairs on the unit sphere."""
    rows = np.random.default_rng(0).permutation(len(scenario.pairs))[:PAIRS]
    chosen = scenario.pairs.take(rows)
    pairs = Pairs(
        Features(_unit(chosen.old.vectors)),
        Features(_unit(chosen.new.vectors), labels=chosen.labels),
    )
    scale, margin, weight = term or (64.0, 0.5, 1.0)
    with weighed(scale, margin, weight):
        return Alignment.fit(
            pairs, method="residual", loss="l2" if term is None else "l2+disc", epochs=EPOCHS,
            head=scenario.head, discriminative="arcface", device="cpu",
        )  # fmt: skip


def _unit(vectors: Matrix) -> Matrix:
    return normalised(vectors + np.float32(1e-6), "features")


def quality(scenario: Scenario, alignment: Alignment) -> list[str]:
    """Squared error, top-1 and mAP at 0 % on known and on other classes."""
    cells = []
    for of in (scenario.labels < KNOWN, scenario.labels >= KNOWN):
        part = scenario.among(of, "C")
        aligned, new = alignment(_unit(part.old)), _unit(part.new)
        curves = backfill_curves(
            aligned, new, part.labels, policy="random", metrics=("cmc@1", "map"), points=[0.0]
        )
        error = float(np.square(aligned.h - new).sum(1).mean())
        top1, mean_ap = (100 * curves[name].start for name in ("cmc@1", "map"))
        cells += [f"{top1:.1f} / {mean_ap:.1f}", f"{error:.2f}"]
    return cells


def main() -> None:
    scenario = cifar100("C")
    lines = ["| loss | known classes | error | other classes | error |", "|:--|--:|--:|--:|--:|"]
    for name, term in TERMS.items():
        row = [name, *quality(scenario, learn(scenario, term))]
        lines.append(f"| {' | '.join(row)} |")
        print(lines[-1], flush=True)
    write_section(
        "An ArcFace term beside l2",
        "python -m benchmarks.arcface_balance",
        "Top-1 / mAP at 0 % and mean squared error on the unit sphere, upgrade C.\n\n"
        + "\n".join(lines),
    )


if __name__ == "__main__":
    main()
