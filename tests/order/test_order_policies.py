"""Policies against slow, obvious versions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy as scipy_entropy

from fastfill.align import Aligned
from fastfill.align.losses import cross_entropy
from fastfill.errors import LabelError, OrderError, ShapeError, ZeroVectorError
from fastfill.order import (
    POLICIES,
    Known,
    PolicyInput,
    arrange,
    disc_loss,
    l2_disc_loss,
    l2_loss,
)
from fastfill.order import policies as room


@pytest.fixture(scope="module")
def known():
    """A gallery about which everything is known."""
    rng = np.random.default_rng(0)
    n, d_old, d_new, classes = 50, 6, 8, 5
    new = rng.normal(size=(n, d_new)).astype(np.float32)
    aligned = new + rng.normal(size=new.shape).astype(np.float32)
    return PolicyInput(
        aligned=Aligned(aligned, rng.random(n).astype(np.float32)),
        old=rng.normal(size=(n, d_old)).astype(np.float32),
        pairs_old=rng.normal(size=(9, d_old)).astype(np.float32),
        head=rng.normal(size=(classes, d_new)).astype(np.float32),
        shown=rng.integers(0, 4, n),
        new=new,
        labels=rng.integers(0, classes, n),
        seed=3,
    )


def probabilities(known):
    """What the head makes of the aligned vectors."""
    return softmax(known.aligned.vectors.astype(float) @ known.head.T.astype(float), axis=1)


def test_a_function_of_your_own_is_a_policy(known):
    """It is called with what is known, its scores sort the items, its name is the order's."""

    def backwards(known):
        return np.arange(len(known))

    order = arrange(backwards, known)
    assert order.positions.tolist() == list(range(len(known)))[::-1]
    assert order.name == "backwards"
    with pytest.raises(ShapeError, match="scores of <lambda>"):
        arrange(lambda known: np.zeros(3), known)
    for wrong in (None, "first", np.zeros((len(known), 2))):
        with pytest.raises(OrderError, match="expected one number for each"):
            arrange(lambda known, wrong=wrong: wrong, known)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_orders_every_item_once_by_falling_score(known, policy):
    """An order is a permutation, its scores do not rise, and are never negative."""
    order = arrange(policy, known, evaluating=True)
    assert sorted(order.positions.tolist()) == list(range(50))
    assert (np.diff(order.scores[order.positions]) <= 0).all()
    assert order.scores.min() >= 0
    assert order.name == policy


def test_sigma_is_the_predicted_variance(known):
    """The paper's order: the largest σ² first."""
    assert arrange("sigma", known).positions[0] == known.aligned.variance.argmax()


def test_mixed_takes_two_by_sigma_for_one_at_random():
    """Of the first items about two thirds are the worst by σ², the others are any."""
    n = 20_000
    known = PolicyInput(Aligned(np.zeros((n, 1)), np.random.default_rng(1).random(n)), seed=2)
    first = arrange("mixed", known).positions[: n // 5]
    by_sigma = arrange("sigma", known).ranks[first]
    reached = np.count_nonzero(by_sigma < 2 / 3 * n / 5)  # how far σ² alone would have come
    assert abs(reached / len(first) - 2 / 3) < 0.02
    others = by_sigma[by_sigma >= np.sort(by_sigma)[reached - 1] + n // 50]
    assert abs(others.mean() / n - 0.6) < 0.05  # spread evenly over what σ² has not reached


def test_random_is_a_matter_of_the_seed(known):
    """The same seed gives the same order, another seed another one."""
    again, other = arrange("random", known), arrange("random", replace(known, seed=4))
    assert arrange("random", known).positions.tolist() == again.positions.tolist()
    assert again.positions.tolist() != other.positions.tolist()


@pytest.mark.parametrize("distance", ["l2", "cosine"])
@pytest.mark.parametrize("block", [1, 1 << 24])
def test_novelty_is_the_distance_to_the_nearest_pair(monkeypatch, known, distance, block):
    """Whatever the size of the blocks; under cosine between directions."""
    monkeypatch.setattr(room, "_BLOCK", block)
    old, pairs = known.old.astype(float), known.pairs_old.astype(float)
    if distance == "cosine":
        old /= np.linalg.norm(old, axis=1, keepdims=True)
        pairs /= np.linalg.norm(pairs, axis=1, keepdims=True)
    expected = ((old[:, None] - pairs[None]) ** 2).sum(axis=2).min(axis=1)
    scores = POLICIES["novelty"](replace(known, distance=distance))
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_a_known_pair_is_nothing_new(known):
    """An item that the map has learned from is at distance 0, and comes last."""
    learned = replace(known, pairs_old=known.old[[7]])
    order = arrange("novelty", learned)
    assert order.positions[-1] == 7
    assert order.scores[7] == pytest.approx(0, abs=1e-9)


def test_the_head_policies_are_entropy_margin_and_confidence(known):
    """Against SciPy's softmax and entropy, and a sorted list of probabilities."""
    p = probabilities(known)
    top = np.sort(p, axis=1)
    np.testing.assert_allclose(POLICIES["entropy"](known), scipy_entropy(p, axis=1), atol=1e-9)
    np.testing.assert_allclose(POLICIES["margin"](known), 1 - top[:, -1] + top[:, -2], atol=1e-9)
    np.testing.assert_allclose(POLICIES["least-confidence"](known), 1 - top[:, -1], atol=1e-9)


def test_a_head_of_one_class_is_sure_of_everything(known):
    """There is no second class to be confused with: all scores are 0."""
    one = replace(known, head=known.head[:1])
    for policy in ("entropy", "margin", "least-confidence"):
        assert POLICIES[policy](one).max() == pytest.approx(0, abs=1e-12)


def test_the_oracle_sorts_by_the_true_loss(known):
    """l2+disc with labels and head, l2 without them."""
    both = l2_disc_loss(known.aligned.vectors, known.new, known.labels, known.head)
    np.testing.assert_array_equal(POLICIES["oracle"](known), both)
    plain = POLICIES["oracle"](replace(known, labels=None))
    np.testing.assert_array_equal(plain, l2_loss(known.aligned.vectors, known.new))


def test_the_oracle_is_for_evaluation_alone(known):
    """Nothing that changes a gallery may use it, and the message says why."""
    for policy in ("oracle", "traffic:oracle"):
        with pytest.raises(OrderError, match="for evaluation alone"):
            arrange(policy, known)


def test_traffic_weighs_any_policy_by_what_is_shown(known):
    """An item shown often comes before one of the same score that is not."""
    order = arrange("traffic:sigma", known)
    np.testing.assert_allclose(order.scores, known.aligned.variance * (1.0 + known.shown))
    assert order.name == "traffic:sigma"


@pytest.mark.parametrize("name", ["entropie", "", "traffic", "traffic:", "traffic:traffic:sigma"])
def test_an_unknown_policy_is_refused_with_the_known_ones(known, name):
    """The name is repeated, with those that there are."""
    with pytest.raises(OrderError, match=r"Unknown policy .*random, sigma, mixed, novelty"):
        arrange(name, known)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("novelty", "'novelty' needs the old vectors of the gallery"),
        ("entropy", "'entropy' needs the new model's classifier"),
        ("margin", "'margin' needs the new model's classifier"),
        ("least-confidence", "'least-confidence' needs"),
        ("oracle", "'oracle' needs the new vectors"),
        ("traffic:random", "how often each item was shown"),
    ],
)
def test_a_policy_says_what_it_is_missing(known, policy, words):
    """Each missing ingredient is named by the policy that needs it."""
    with pytest.raises(OrderError, match=words):
        arrange(policy, PolicyInput(known.aligned), evaluating=True)


def test_bad_ingredients_are_named(known):
    """Wrong shapes, negative counts, infinite variances and zero vectors are refused."""
    with pytest.raises(OrderError, match="must be 0 or more"):
        arrange("traffic:sigma", replace(known, shown=-known.shown - 1))
    with pytest.raises(ShapeError, match="shown: 3 rows where 50"):
        arrange("traffic:sigma", replace(known, shown=known.shown[:3]))
    with pytest.raises(ShapeError, match="The head is for vectors of 3 dimensions"):
        arrange("entropy", replace(known, head=known.head[:, :3]))
    with pytest.raises(ZeroVectorError):
        arrange("novelty", replace(known, old=known.old * 0, distance="cosine"))
    broken = Aligned(known.aligned.vectors, np.full(50, np.inf))
    with pytest.raises(OrderError, match="NaN or infinite"):
        arrange("sigma", replace(known, aligned=broken))


def test_losses_are_those_of_the_training(known):
    """Per item the same cross-entropy, labels smoothed, as the torch loss."""
    vectors = known.aligned.vectors
    for smoothing in (0.0, 0.1):
        expected = cross_entropy(
            torch.tensor(vectors), torch.tensor(known.head), torch.tensor(known.labels), smoothing
        )
        found = disc_loss(vectors, known.labels, known.head, smoothing)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_the_sum_of_the_losses_has_the_balance_of_training(known):
    """Features in other units, with the head that fits them, give the same sum."""
    vectors, new = known.aligned.vectors, known.new
    expected = l2_disc_loss(vectors, new, known.labels, known.head)
    scaled = l2_disc_loss(4 * vectors, 4 * new, known.labels, known.head / 4)
    np.testing.assert_allclose(scaled, expected, rtol=1e-6)
    whole = l2_loss(0 * new, new).mean()
    l2_part = expected - disc_loss(vectors, known.labels, known.head)
    np.testing.assert_allclose(l2_part, l2_loss(vectors, new) / whole, rtol=1e-6)


def test_losses_refuse_what_does_not_fit(known):
    """Other items, another space, labels that the head does not know."""
    vectors = known.aligned.vectors
    with pytest.raises(ShapeError, match="same items in the same space"):
        l2_loss(vectors, known.new[:3])
    with pytest.raises(LabelError, match="outside the head's classes"):
        disc_loss(vectors, known.labels + 5, known.head)
    with pytest.raises(ShapeError, match="labels: 2 rows"):
        disc_loss(vectors, known.labels[:2], known.head)


def test_the_input_of_a_policy_has_a_former_name() -> None:
    """Policies that were written for `Known` go on working."""
    assert Known is PolicyInput
