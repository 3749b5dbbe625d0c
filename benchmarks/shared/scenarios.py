"""The model upgrades that the benchmarks study, from the folder named by FASTFILL_DATA."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Array, Features, Matrix, Pairs

MODELS = {  # old, new
    "A": ("resnet50_50classes", "resnet50_100classes"),
    "B": ("resnet18_100classes", "resnet50_100classes"),
    "C": ("resnet50_25classes", "resnet50_50classes"),
}


@dataclass(frozen=True)
class Scenario:
    """One upgrade: pairs to learn from, a gallery under both models, and queries."""

    name: str
    pairs: Pairs
    head: Matrix | None
    old: Matrix  # (n, d_old) gallery
    new: Matrix  # (n, d_new) gallery
    labels: Array
    queries: Matrix | None = None  # None: the gallery is the query set
    query_labels: Array | None = None
    old_queries: Matrix | None = None

    def among(self, classes: NDArray[np.bool_], name: str) -> Scenario:
        """The same upgrade on a gallery of some of the items."""
        rows = np.flatnonzero(classes)
        return Scenario(
            name, self.pairs, self.head, self.old[rows], self.new[rows], self.labels[rows]
        )


def data_folder() -> Path:
    """FASTFILL_DATA, or the end of the benchmark with a sentence that says so."""
    folder = os.environ.get("FASTFILL_DATA")
    if not folder:
        sys.exit("Set FASTFILL_DATA to the folder with the feature sets to run this benchmark.")
    return Path(folder)


def cifar100(name: str) -> Scenario:
    """Upgrade A, B or C on CIFAR-100 features; gallery and queries are the test set, L2."""
    folder = data_folder() / "features"
    old, new = (np.load(folder / f"cifar100_{model}.npz") for model in MODELS[name])
    labels = np.load(folder / "cifar100_labels.npz")
    rows = old["train_rows"] if "train_rows" in old else np.arange(len(labels["train"]))
    pairs = Pairs(
        Features(old["train"], name="old train"),
        Features(new["train"][rows], labels=labels["train"][rows], name="new train"),
    )
    gallery = [np.asarray(part["test"], dtype=np.float32) for part in (old, new)]
    head = np.asarray(new["head"], dtype=np.float32)
    return Scenario(name, pairs, head, gallery[0], gallery[1], labels["test"])


def clinc150(pairs: int, seed: int = 0) -> Scenario:
    """WordLlama → MiniLM on CLINC150: pairs are random rows of the gallery; cosine."""
    folder = data_folder() / "clinc150"
    train, test = np.load(folder / "train.npz"), np.load(folder / "test.npz")
    old, new = (np.asarray(train[key], dtype=np.float32) for key in ("old", "new"))
    rows = np.random.default_rng(seed).permutation(len(old))[:pairs]
    return Scenario(
        "CLINC150",
        Pairs(Features(old[rows]), Features(new[rows])),
        None,
        old,
        new,
        train["label"],
        np.asarray(test["new"], dtype=np.float32),
        test["label"],
        np.asarray(test["old"], dtype=np.float32),
    )
