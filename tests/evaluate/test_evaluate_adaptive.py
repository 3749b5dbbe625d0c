"""A backfill that learns its map again, against slow and obvious versions."""

import numpy as np
import pytest

from fastfill.align import Alignment, FitOptions, fit_alignment
from fastfill.errors import InputError, OrderError
from fastfill.evaluate import adaptive_curves, backfill_curves, plain_metrics, refits
from fastfill.features import Features, Pairs
from fastfill.order import Order, PolicyInput, arrange

PAIRS, SEED = 60, 3
RIDGE = FitOptions(method="ridge")


@pytest.fixture(scope="module")
def gallery():
    """Old and new vectors and labels; the new model separates the classes better."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 8, 400)
    centres = rng.normal(size=(8, 6))
    new = centres[labels] + 0.4 * rng.normal(size=(400, 6))
    old = np.tanh(new @ rng.normal(size=(6, 6))) + 0.3 * rng.normal(size=(400, 6))
    return old.astype(np.float32), new.astype(np.float32), labels


def first_pairs(new: np.ndarray) -> np.ndarray:
    return np.random.default_rng(SEED).permutation(len(new))[:PAIRS]


def learned(old: np.ndarray, new: np.ndarray, rows: np.ndarray):
    pairs = Pairs(Features(old[rows]), Features(new[rows]))
    return Alignment.fit(pairs, method="ridge", seed=SEED)(old)


def test_with_one_map_it_is_an_ordinary_curve(gallery) -> None:
    """Pairs first, then the others by σ²: the same values as one pass over that order."""
    old, new, labels = gallery
    aligned = learned(old, new, first_pairs(new))
    sample = first_pairs(new)
    by_sigma = arrange("sigma", PolicyInput(aligned)).positions
    order = Order(np.concatenate([sample, by_sigma[~np.isin(by_sigma, sample)]]))
    expected = backfill_curves(aligned, new, labels, policy=order, metrics="cmc@1,map", points=11)
    found = adaptive_curves(
        old, new, labels, pairs=PAIRS, policy="sigma", refit=False, metrics="cmc@1,map",
        points=11, fit=RIDGE, seed=SEED,
    )  # fmt: skip
    for name, curve in expected.items():
        assert np.allclose(found[name].values, curve.values, atol=1e-6)
        assert np.allclose(found[name].per_query, curve.per_query, atol=1e-6)


def test_refits_against_a_plain_loop(gallery) -> None:
    """The map of all pairs so far, learned when they have grown by a quarter."""
    old, new, labels = gallery
    points = 9
    done = first_pairs(new)
    aligned, taught = learned(old, new, done), PAIRS
    expected = []
    for point in range(points):
        count = point * len(new) // (points - 1)
        rows = done[: min(count, PAIRS)]
        if count > len(done):
            left = np.setdiff1d(np.arange(len(new)), done)
            inputs = PolicyInput(
                type(aligned)(aligned.vectors[left], aligned.variance[left]), seed=SEED + len(done)
            )
            done = np.concatenate(
                [done, left[arrange("mixed", inputs).positions][: count - len(done)]]
            )
        rows = done[:count]
        if point and count < len(new) and len(done) >= 1.25 * taught:
            aligned, taught = learned(old, new, done), len(done)
        mixed = aligned.vectors.copy()
        mixed[rows] = new[rows]
        curve = backfill_curves(
            type(aligned)(mixed, aligned.variance), new, labels, metrics="map", points=[0.0]
        )
        expected.append(curve["map"].values[0])
    found = adaptive_curves(
        old, new, labels, pairs=PAIRS, metrics="map", points=points, fit=RIDGE, seed=SEED
    )
    assert np.allclose(found["map"].values, expected, atol=1e-6)


def test_it_ends_with_the_new_gallery_and_leaves_one_map_behind(gallery) -> None:
    """The last point is new/new, and on the way refits are better than one map."""
    old, new, labels = gallery
    run = {
        refit: adaptive_curves(
            old, new, labels, pairs=30, policy="random", refit=refit, metrics="map", points=11,
            fit=FitOptions(method="kernel"),
        )["map"]
        for refit in (True, False)
    }  # fmt: skip
    whole = plain_metrics(None, new, labels, metrics="map")["map"]
    assert run[True].end == pytest.approx(whole)
    assert run[False].end == pytest.approx(whole)
    assert run[True].mean > run[False].mean


def test_auto_is_asked_again_when_the_pairs_have_doubled(
    gallery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In between the method of the last time is kept; the random rows are told to every fit."""
    asked = []

    def fit(pairs: Pairs, options: FitOptions, **more: object) -> Alignment:
        asked.append((options.method, len(pairs), int(pairs.drawn.sum())))
        return fit_alignment(pairs, options, **more)

    monkeypatch.setattr(refits, "fit_alignment", fit)
    old, new, labels = gallery
    adaptive_curves(old, new, labels, pairs=60, metrics="map", points=11)
    assert [size for method, size, _ in asked if method == "auto"] == [60, 120, 280]
    assert len(asked) > 3
    assert {drawn for _, _, drawn in asked} == {60}


def test_queries_of_their_own_and_metrics_without_labels(gallery) -> None:
    """Agreement needs no labels; other queries than the gallery may ask."""
    old, new, _ = gallery
    curves = adaptive_curves(
        old, new, pairs=PAIRS, metrics="agreement@5", points=3, queries=new[:50] + 0.01,
        fit=RIDGE,
    )  # fmt: skip
    assert curves["agreement@5"].end == pytest.approx(1)
    assert curves["agreement@5"].per_query.shape == (50, 3)


def test_what_cannot_be_is_refused(gallery) -> None:
    """No pairs at all, all of them, an unknown policy."""
    old, new, labels = gallery
    for pairs in (0, len(new)):
        with pytest.raises(InputError, match="pairs must be from 1 to 399"):
            adaptive_curves(old, new, labels, pairs=pairs)
    with pytest.raises(OrderError, match="Unknown policy 'best'"):
        adaptive_curves(old, new, labels, pairs=PAIRS, policy="best", fit=RIDGE, points=5)
