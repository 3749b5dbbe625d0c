"""python -m benchmarks.paper_speed [--device cuda] [--pairs 1281167] [--epochs 80]

The paper's preset on as many pairs as ImageNet-1k has images: seconds of training.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.shared.sections import write_section
from fastfill.align import Alignment
from fastfill.features import Features, Pairs

NEEDS_GPU = True
NEEDS_DATA: tuple[str, ...] = ()


def main() -> None:
    """Train once on synthetic pairs of the right shape, everything else as in the preset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--pairs", type=int, default=1_281_167)
    parser.add_argument("--epochs", type=int, default=80)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(args.pairs, 128)).astype(np.float32)
    y = np.tanh(x @ (rng.normal(size=(128, 128)).astype(np.float32) / 11))
    began = time.perf_counter()
    alignment = Alignment.fit(
        Pairs(Features(x), Features(y)),
        method="paper",
        loss="l2+uncertainty",
        device=args.device,
        epochs=args.epochs,
    )
    whole = time.perf_counter() - began
    facts = alignment.facts["training"]
    write_section(
        "The paper's preset at ImageNet's size",
        "python -m benchmarks.paper_speed",
        f"{args.pairs:,} pairs × 128, {facts['epochs']} epochs, {facts['steps']:,} steps of 1,024: "
        f"**{facts['seconds']:.0f} s** of training, {whole:.0f} s with calibration. "
        f"Variance explained on held-out pairs: "
        f"{100 * alignment.facts['held_out']['explained']:.1f} %.",
    )


if __name__ == "__main__":
    main()
