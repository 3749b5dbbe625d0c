"""python -m benchmarks.beyond_maps [DIR] [--seeds 3] [--upgrades ABC]

The galleries of upgrades A, B and C as aligned by the paper's network and by the residual map, both
learned from all training pairs with l2+disc+uncertainty: DIR/A-0.npz and so on (in `data/maps`
where no DIR is given), for `benchmarks.beyond`. Takes about 6 s for each on a GPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.paths import ROOT
from benchmarks.shared.scenarios import cifar100
from fastfill.align import Alignment
from fastfill.features import replacing

NEEDS_GPU = True
NEEDS_DATA: tuple[str, ...] = ("features",)


def main() -> None:
    """Fit what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "data" / "maps")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--upgrades", default="ABC")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.upgrades:
        scenario = cifar100(name)
        for seed in range(given.seeds):
            path = given.folder / f"{name}-{seed}.npz"
            if path.exists():
                continue
            arrays: dict[str, Any] = {}
            for method in ("paper", "residual"):
                alignment = Alignment.fit(
                    scenario.pairs, method=method, loss="l2+disc+uncertainty",
                    head=scenario.head, seed=seed,
                )  # fmt: skip
                aligned = alignment(scenario.old)
                arrays[f"{method}.vectors"] = aligned.vectors.astype(np.float16)
                arrays[f"{method}.variance"] = aligned.variance
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.savez(file, **arrays)
            print(path)


if __name__ == "__main__":
    main()
