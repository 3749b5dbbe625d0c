"""FASTFILL_DATA=… python docs/pictures/make.py

Draws the pictures of the docs from real features, in about three minutes on two cores: CIFAR-100,
a ResNet-50 trained on 50 classes replaced by one trained on 100 (the map is learned from the
training images, gallery and queries are the test images).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fastfill.align import Alignment
from fastfill.evaluate import Candidate, Setting, study
from fastfill.features import read_column, read_features, read_matrix, read_pairs
from fastfill.report import curves_figure, save

HERE = Path(__file__).parent
ORDERS = ("random", "sigma", "entropy", "oracle")


def main(data: Path) -> None:
    """Learn the map, play the backfill through, draw it."""
    old = data / "cifar100_resnet50_50classes.npz"
    new = data / "cifar100_resnet50_100classes.npz"
    labels = data / "cifar100_labels.npz"
    head = read_matrix(f"{new}:head")
    pairs = read_pairs(f"{old}:train", f"{new}:train", labels=f"{labels}:train")
    alignment = Alignment.fit(pairs, method="residual", head=head)
    gallery = read_features(f"{old}:test")
    setting = Setting(
        read_features(f"{new}:test"), read_column(f"{labels}:test"), old=gallery, seeds=3
    )
    aligned = alignment(gallery)
    orders = [Candidate(name, aligned, name, head=head) for name in ORDERS]
    found = study(setting, orders, progress=sys.stderr.isatty())
    save(curves_figure(found.curves, found.levels), HERE / "cifar100-a", kinds=("svg",))


if __name__ == "__main__":
    if "FASTFILL_DATA" not in os.environ:
        sys.exit("Set FASTFILL_DATA to the folder with the features.")
    main(Path(os.environ["FASTFILL_DATA"]) / "features")
