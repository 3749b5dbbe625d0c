"""Known figures on real features, where the data are at hand."""

import os
from pathlib import Path

import numpy as np
import pytest

from fastfill.align import Aligned, Alignment
from fastfill.evaluate import backfill_curves, plain_metrics
from fastfill.features import Features, Pairs
from fastfill.metrics import Relevance, as_metrics, gallery_scores

pytestmark = pytest.mark.skipif(
    not os.environ.get("FASTFILL_DATA"),
    reason="FASTFILL_DATA names no folder with the real features",
)


def data(*names):
    """A file of the data folder."""
    return np.load(Path(os.environ["FASTFILL_DATA"]).joinpath(*names))


def test_cifar_100_has_the_figures_of_the_prototype():
    """A new query in the raw old gallery: 10.5 / 7.4; all new: 68.0 / 51.2; both ends at once."""
    old = data("features", "cifar100_resnet50_50classes.npz")["test"].astype(np.float32)
    new = data("features", "cifar100_resnet50_100classes.npz")["test"].astype(np.float32)
    labels = data("features", "cifar100_labels.npz")["test"]
    raw = Aligned(old, np.zeros(len(old)))
    curves = backfill_curves(raw, new, labels, policy="random", metrics="cmc@1,map", points=2)
    assert (100 * curves["cmc@1"].values).round(1).tolist() == [10.5, 68.0]
    assert (100 * curves["map"].values).round(1).tolist() == [7.4, 51.2]


def test_clinc150_has_the_figures_of_the_prototype():
    """Text under cosine, queries apart from the gallery: 88.1 / 65.2 with the new model."""
    train, test = data("clinc150", "train.npz"), data("clinc150", "test.npz")
    found = plain_metrics(
        test["new"].astype(np.float32),
        train["new"].astype(np.float32),
        train["label"],
        query_labels=test["label"],
        metrics="cmc@1,map",
        distance="cosine",
    )
    assert round(100 * found["cmc@1"], 1) == 88.1
    assert round(100 * found["map"], 1) == 65.2


def test_a_half_new_gallery_retrieves_better_when_doubtful_items_are_penalised():
    """On images: items that the map knows little about do not stand in front of new ones."""
    rows = np.random.default_rng(0).permutation(10_000)[:4_000]  # they are sorted by class
    old = data("features", "cifar100_resnet50_50classes.npz")["test"][rows].astype(np.float32)
    new = data("features", "cifar100_resnet50_100classes.npz")["test"][rows].astype(np.float32)
    labels = data("features", "cifar100_labels.npz")["test"][rows]
    found = []
    for share in (0.0, None):
        made = Alignment.fit(
            Pairs(Features(old[:400]), Features(new[:400])), method="kernel", penalty=share
        )
        gallery = np.where((np.arange(4_000) % 2 == 0)[:, None], new, made(old).vectors)
        measured = gallery_scores(
            new, gallery, Relevance.from_labels(labels), as_metrics(["cmc@1", "map"])
        )
        found.append([float(values.mean()) for values in measured.values.values()])
    assert found[1][0] > found[0][0] + 0.005
    assert found[1][1] > found[0][1] + 0.005
