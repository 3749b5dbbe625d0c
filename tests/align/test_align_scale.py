"""The map never collapses, and the units of the two spaces mean nothing to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fastfill.align import LOSSES, Alignment
from fastfill.features import Features, Pairs, pairwise, read_features, read_matrix

if TYPE_CHECKING:
    from tests.align.conftest import Upgrade

FACTORS = [(0.01, 1.0), (100.0, 1.0), (1.0, 0.01), (1.0, 100.0)]


@pytest.mark.usefixtures("narrow", "one_fold")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("method", "epochs"), [("paper", 12), ("residual", 6)])
def test_scaled_features_retrieve_the_same(
    digits: Upgrade, method: str, epochs: int, loss: str
) -> None:
    """Either space times 0.01 or 100, the head divided, gives the same retrieval to one point."""

    def fit(a: float, b: float) -> tuple[float, float]:
        alignment = Alignment.fit(
            digits.pairs(a, b), method=method, loss=loss, head=digits.head / b, epochs=epochs,
            batch=128,
        )  # fmt: skip
        aligned = alignment(digits.old[digits.test] * np.float32(a))
        assert np.isfinite(aligned.variance).all()
        return digits.retrieval(aligned.vectors / b)

    top1, mean_ap = fit(1.0, 1.0)
    chance = 10.0
    assert top1 > 6 * chance  # a constant map would find one class of ten
    assert mean_ap > 3 * chance
    for a, b in FACTORS:
        scaled = fit(a, b)
        assert scaled == pytest.approx((top1, mean_ap), abs=1.0), (a, b)


@pytest.mark.parametrize("method", ["ridge", "procrustes", "kernel"])
def test_scaled_features_have_the_same_map_in_closed_form(digits: Upgrade, method: str) -> None:
    """The aligned vectors just follow the units of the new space."""
    test = digits.old[digits.test]
    plain = Alignment.fit(digits.pairs(), method=method)(test)
    for a, b in FACTORS:
        scaled = Alignment.fit(digits.pairs(a, b), method=method)(test * np.float32(a))
        np.testing.assert_allclose(scaled.vectors / b, plain.vectors, rtol=1e-3, atol=5e-3)
        np.testing.assert_allclose(scaled.variance / b**2, plain.variance, rtol=0.02)


@pytest.fixture(scope="module")
def cifar() -> tuple[Pairs, Features, Features, np.ndarray]:
    """2,000 pairs and 1,500 test items of the model update A, and the head."""
    if not os.environ.get("FASTFILL_DATA"):
        pytest.skip("FASTFILL_DATA is not set")
    folder = Path(os.environ["FASTFILL_DATA"]) / "features"
    models = [folder / f"cifar100_resnet50_{n}classes.npz" for n in (50, 100)]
    rng = np.random.default_rng(0)
    train, test = rng.choice(50_000, 2000, False), rng.choice(10_000, 1500, False)
    labels = folder / "cifar100_labels.npz"
    old, new = (read_features(f"{m}:train", f"{labels}:train").take(train) for m in models)
    rest = [read_features(f"{m}:test", f"{labels}:test").take(test) for m in models]
    return Pairs(old, new), rest[0], rest[1], read_matrix(f"{models[1]}:head")


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("loss", ["l2+uncertainty", "l2+disc+uncertainty"])
@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_real_features_do_not_collapse(cifar: tuple, loss: str, factor: float) -> None:
    """On CIFAR-100 features, where prototypes collapsed to a constant, the map explains much."""
    pairs, old, new, head = cifar
    scaled = Pairs(
        Features(pairs.old.vectors * factor),
        Features(pairs.new.vectors * factor, labels=pairs.labels),
    )
    alignment = Alignment.fit(
        scaled, method="paper", loss=loss, head=head / factor, epochs=8, batch=128
    )
    aligned = alignment(old.vectors * factor).vectors / factor
    d = pairwise(new.vectors, aligned, "l2")
    np.fill_diagonal(d, np.inf)
    assert new.labels is not None
    top1 = (new.labels[d.argmin(1)] == new.labels).mean()
    assert top1 > 0.1  # chance is 0.01
    assert aligned.std(0).mean() > 0.2 * new.vectors.std(0).mean()
