"""`auto` is never worse than ridge, under any distance, however different the vectors' lengths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fastfill.align import Alignment
from fastfill.features import DISTANCES, Distance, Features, Matrix, Pairs
from fastfill.metrics import as_metrics, gallery_scores, neighbours

PAIRS, GALLERY, DIM = 100, 1_500, 24
NEIGHBOURS = 10
SMALL = 0.03  # of the neighbours found

World = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def parts(rng: np.random.Generator, items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Old vectors, the same rotated and noisy, and a heavy-tailed length for each item."""
    old = rng.normal(size=(items, DIM))
    rotation = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
    turned = old @ rotation + 0.3 * rng.normal(size=old.shape)
    return old, turned, np.exp(rng.normal(size=(items, 1)))


def unseen(rng: np.random.Generator, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths that the old model knows nothing of."""
    old, turned, length = parts(rng, items)
    return old, turned * length


def seen(rng: np.random.Generator, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths that both models agree on."""
    old, turned, length = parts(rng, items)
    return old * length, turned * length


def noisy(rng: np.random.Generator, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths that the two models partly agree on."""
    old, turned, length = parts(rng, items)
    return old * length * np.exp(0.5 * rng.normal(size=length.shape)), turned * length


def offset(rng: np.random.Generator, items: int) -> tuple[np.ndarray, np.ndarray]:
    """A direction that all new vectors share: the longest are neighbours of every query."""
    old, turned, length = parts(rng, items)
    return old * length, (turned + 2 * rng.normal(size=DIM)) * length


def directed(rng: np.random.Generator, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths that follow from the direction, as no linear map can tell."""
    old, turned, _ = parts(rng, items)
    return old, turned * np.exp(old[:, :1])


def agreement(alignment: Alignment, old: Matrix, new: Matrix) -> float:
    """Share of the new neighbours of 300 items that are found in an aligned gallery."""
    distance, queries = alignment.distance, new[:300]
    relevant = neighbours(queries, new, NEIGHBOURS, distance=distance)
    name = f"agreement@{NEIGHBOURS}"
    scores = gallery_scores(
        queries, alignment(old).vectors, relevant, as_metrics(name), distance=distance
    )
    return float(np.mean(scores.values[name]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("world", [unseen, seen, noisy, offset, directed])
@pytest.mark.parametrize("distance", DISTANCES)
def test_auto_is_not_below_ridge(distance: Distance, world: World, seed: int) -> None:
    """Not by more than a little, on a gallery of other items than the pairs."""
    old, new = (
        side.astype(np.float32) for side in world(np.random.default_rng(seed), PAIRS + GALLERY)
    )
    pairs = Pairs(Features(old[:PAIRS]), Features(new[:PAIRS]))
    auto, ridge = (
        Alignment.fit(pairs, method=method, distance=distance) for method in ("auto", "ridge")
    )
    fresh = old[PAIRS:], new[PAIRS:]
    assert agreement(auto, *fresh) >= agreement(ridge, *fresh) - SMALL


def test_without_labels_the_smaller_error_decides() -> None:
    """Where neighbours in the sample speak for one map and errors for another, errors are right."""
    old, new = (
        side.astype(np.float32) for side in noisy(np.random.default_rng(1), PAIRS + GALLERY)
    )
    pairs = Pairs(Features(old[:PAIRS]), Features(new[:PAIRS]))
    tried = Alignment.fit(pairs, distance="l2").facts["compared"]
    assert tried["ridge"]["score"] > tried["procrustes"]["score"]  # of neighbours in the sample
    assert tried["ridge"]["explained"] < tried["procrustes"]["explained"]
    ridge, procrustes = (Alignment.fit(pairs, method=method) for method in ("ridge", "procrustes"))
    fresh = old[PAIRS:], new[PAIRS:]
    assert agreement(procrustes, *fresh) > agreement(ridge, *fresh)
    assert Alignment.fit(pairs, distance="l2").method == "procrustes"
