"""Fitting through the public door: choices, refusals, repeatability, what a map is used for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fastfill.align import METHODS, Alignment, held_out_scores, methods, training_tasks
from fastfill.align.training import Schedule
from fastfill.errors import (
    InputError,
    LabelError,
    NonFiniteError,
    ShapeError,
    TrainingError,
    ZeroVectorError,
)
from fastfill.features import Features, Pairs

if TYPE_CHECKING:
    from tests.align.conftest import Upgrade


def linear_pairs(rows: int = 120, noise: float = 0.3, **extra: Any) -> Pairs:
    """New = a linear map of old, plus noise."""
    rng = np.random.default_rng(0)
    old = rng.normal(size=(rows, 10))
    new = old @ rng.normal(size=(10, 6)) + noise * rng.normal(size=(rows, 6))
    return Pairs(Features(old, name="old.npy"), Features(new, name="new.npy", **extra))


# --- refusals -------------------------------------------------------------------------------


def test_too_few_pairs_are_refused() -> None:
    """Fewer than 20 pairs teach nothing; the message says how many are needed."""
    with pytest.raises(ShapeError, match=r"19 pairs are too few .* at least 20"):
        Alignment.fit(linear_pairs(19))
    assert Alignment.fit(linear_pairs(20), method="ridge").method == "ridge"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "magic"}, "Unknown method 'magic': use one of auto, ridge, procrustes"),
        ({"method": "ridge", "loss": "l3"}, "Unknown loss 'l3': use one of l2"),
        ({"distance": "manhattan"}, "Unknown distance 'manhattan': use one of l2, cosine, ip"),
        ({"method": "residual", "device": "abacus"}, "Unknown device 'abacus': use cpu or cuda"),
        ({"method": "residual", "device": "mps:x"}, "Unknown device 'mps:x': use cpu or cuda"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch": 1}, "batch must be at least 2, got 1"),
        ({"rate": -1.0}, "rate must be a positive number, got -1.0"),
        ({"lam": 0.0}, "lam must be a positive number, got 0.0"),
        ({"smoothing": 1.0}, "smoothing must be from 0 to below 1, got 1.0"),
        ({"reduction": "max"}, "Unknown reduction 'max': use one of mean, sum"),
        ({"discriminative": "hinge"}, "Unknown discriminative 'hinge': use one of cross-entropy"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_unknown_choices_are_named(options: dict[str, Any], said: str) -> None:
    """A method, loss, distance, device or option that does not exist names those that do."""
    with pytest.raises(InputError) as caught:
        Alignment.fit(linear_pairs(), **options)
    assert said in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_is_refused_where_there_is_none() -> None:
    """Asking for CUDA on a machine without it says so, and what to use."""
    with pytest.raises(InputError, match=r"No CUDA device is available here: use --device cpu"):
        Alignment.fit(linear_pairs(), method="residual", device="cuda")


@pytest.mark.parametrize("loss", ["disc", "l2+disc", "l2+disc+uncertainty"])
def test_a_discriminative_loss_needs_head_and_labels(loss: str) -> None:
    """The message says which of the two is missing, and which losses do without."""
    labels = np.zeros(120, dtype=int)
    with pytest.raises(LabelError, match=r"needs labels of the pairs.*use the loss l2"):
        Alignment.fit(linear_pairs(), method="paper", loss=loss, head=np.ones((3, 6)))
    with pytest.raises(LabelError, match=r"needs the new model's classifier head"):
        Alignment.fit(linear_pairs(labels=labels), method="paper", loss=loss)


def test_labels_must_be_rows_of_the_head() -> None:
    """Labels outside the head's classes are named, whatever the method."""
    pairs = linear_pairs(labels=np.arange(120) % 5)
    with pytest.raises(LabelError, match=r"labels 3, 4 are outside the head's classes 0 to 2"):
        Alignment.fit(pairs, method="ridge", head=np.ones((3, 6)))


def test_the_head_must_fit_the_new_vectors() -> None:
    """A head of other dimensions, or with bad numbers, is refused."""
    with pytest.raises(ShapeError, match=r"head: shape \(3, 5\), .* 6 dimensions\. Give"):
        Alignment.fit(linear_pairs(), head=np.ones((3, 5)))
    with pytest.raises(NonFiniteError, match=r"head: .* rows 2"):
        Alignment.fit(linear_pairs(), head=np.vstack([np.ones((2, 6)), np.full((1, 6), np.nan)]))


def test_spaces_without_anything_to_learn_are_refused() -> None:
    """All vectors zero, or all the same, on either side, name the side."""
    good = np.random.default_rng(0).normal(size=(30, 4))
    for bad in (np.zeros((30, 4)), np.ones((30, 4))):
        for old, new in ((bad, good), (good, bad)):
            pairs = Pairs(Features(old, name="old.npy"), Features(new, name="new.npy"))
            name = "old" if old is bad else "new"
            with pytest.raises(InputError, match=rf"{name}\.npy: all vectors are .* be learned"):
                Alignment.fit(pairs)


def test_zero_vectors_are_refused_under_cosine() -> None:
    """A vector without direction, in the pairs or in the gallery, is named by its row."""
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(50, 4)), rng.normal(size=(50, 3))
    for side in (old, new):
        spoiled = side.copy()
        spoiled[7] = 0
        a, b = (spoiled, new) if side is old else (old, spoiled)
        with pytest.raises(ZeroVectorError, match=r"zero vectors .* rows 7\."):
            Alignment.fit(Pairs(Features(a), Features(b)), method="ridge", distance="cosine")
    alignment = Alignment.fit(
        Pairs(Features(old), Features(new)), method="ridge", distance="cosine"
    )
    gallery = rng.normal(size=(5000, 4))
    gallery[4321] = 0
    with pytest.raises(ZeroVectorError, match=r"photos: zero vectors .* rows 4321\."):
        alignment(Features(gallery, name="photos"))


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("method", ["paper", "residual"])
def test_a_loss_that_is_not_finite_stops_with_a_reason(method: str) -> None:
    """When training blows up there is a TrainingError with the epoch and what to do."""
    with pytest.raises(TrainingError, match=r"loss became (nan|inf).* in epoch \d+ of 3\. Lower"):
        Alignment.fit(linear_pairs(), method=method, rate=1e25, epochs=3)


def test_the_gallery_must_fit_the_alignment() -> None:
    """Vectors of other dimensions, and missing or unwanted side-information, are refused."""
    alignment = Alignment.fit(linear_pairs(), method="ridge")
    with pytest.raises(
        ShapeError, match=r"photos: vectors of 9 dimensions, .* old vectors of 10\."
    ):
        alignment(Features(np.ones((3, 9)), name="photos"))
    with pytest.raises(ShapeError, match=r"was learned without side-information"):
        alignment(np.ones((3, 10)), np.ones((3, 2)))
    pairs = linear_pairs()
    side = np.random.default_rng(1).normal(size=(120, 2)).astype(np.float32)
    with_side = Alignment.fit(Pairs(pairs.old, pairs.new, side), method="ridge")
    with pytest.raises(ShapeError, match=r"needs side-information of 2 dimensions"):
        with_side(np.ones((3, 10)))
    with pytest.raises(ShapeError, match=r"side-information: shape \(3, 5\) where \(3, 2\) is exp"):
        with_side(np.ones((3, 10)), np.ones((3, 5)))


# --- what comes out -------------------------------------------------------------------------


@pytest.mark.usefixtures("narrow", "one_fold")
@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_the_same_seed_gives_the_same_map(digits: Upgrade, method: str) -> None:
    """Two fits with one seed are equal to the last bit; networks differ with another seed."""
    options: dict[str, Any] = {"method": method, "epochs": 2, "head": digits.head}
    first, second = (Alignment.fit(digits.pairs(), seed=3, **options) for _ in range(2))
    assert first.fingerprint == second.fingerprint
    np.testing.assert_array_equal(first(digits.old).vectors, second(digits.old).vectors)
    np.testing.assert_array_equal(first(digits.old).variance, second(digits.old).variance)
    if method != "auto" and METHODS[method].network:
        assert Alignment.fit(digits.pairs(), seed=4, **options).fingerprint != first.fingerprint


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.usefixtures("narrow", "one_fold")
def test_aligned_vectors_of_unit_length_models_have_unit_length(
    digits: Upgrade, method: str
) -> None:
    """In a cosine gallery whose new vectors have unit length, so have the aligned ones."""
    new = digits.new / np.linalg.norm(digits.new, axis=1, keepdims=True)
    pairs = Pairs(Features(digits.old[digits.train]), Features(new[digits.train]))
    alignment = Alignment.fit(pairs, method=method, distance="cosine", epochs=2)
    lengths = np.linalg.norm(alignment(digits.old).vectors, axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)
    plain = Alignment.fit(digits.pairs(), method=method, distance="cosine", epochs=2)
    assert np.linalg.norm(plain(digits.old).vectors, axis=1).std() > 0.01


def test_under_cosine_the_length_of_old_vectors_means_nothing(digits: Upgrade) -> None:
    """Each old vector times a number of its own is aligned to the same place."""
    alignment = Alignment.fit(digits.pairs(), method="ridge", distance="cosine")
    factors = np.random.default_rng(0).uniform(0.1, 10, size=(len(digits.old), 1))
    np.testing.assert_allclose(
        alignment(digits.old * factors).vectors, alignment(digits.old).vectors, rtol=1e-3, atol=1e-3
    )


def test_blocks_make_no_difference(digits: Upgrade) -> None:
    """Rows mapped together or one by one come out the same, in the order given."""
    alignment = Alignment.fit(digits.pairs(), method="ridge")
    many = np.tile(digits.old, (3, 1))  # more than one block
    whole = alignment(many)
    assert len(whole) == len(many)
    for row in (0, 2047, 2048, len(many) - 1):
        one = alignment(many[row : row + 1])
        np.testing.assert_allclose(whole.vectors[row], one.vectors[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(whole.variance[row], one.variance[0], rtol=1e-3)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("method", METHODS)
def test_variance_predicts_the_error_of_unseen_items(digits: Upgrade, method: str) -> None:
    """On test items σ² is about the squared error on average, and larger where that is larger."""
    known, rest = digits.test[:400], digits.test[400:]
    pairs = Pairs(Features(digits.old[known]), Features(digits.new[known]))
    alignment = Alignment.fit(pairs, method=method, epochs=10, batch=64)
    aligned = alignment(digits.old[rest])
    error = np.square(aligned.vectors - digits.new[rest]).sum(1)
    assert aligned.variance.mean() == pytest.approx(error.mean(), rel=0.35)
    order = np.argsort(aligned.variance)
    half = len(order) // 2
    assert error[order[half:]].mean() > 1.2 * error[order[:half]].mean()
    held = alignment.facts["held_out"]
    assert held["kendall_tau"] > 0.1
    assert held["coverage_90"] == pytest.approx(0.9, abs=0.08)


@pytest.mark.usefixtures("narrow", "one_fold")
def test_a_loss_without_uncertainty_has_one_variance(digits: Upgrade) -> None:
    """The paper's network without uncertainty predicts the mean error for every item."""
    alignment = Alignment.fit(digits.pairs(), method="paper", loss="l2", epochs=1)
    assert np.ptp(alignment(digits.old).variance) == 0


@pytest.mark.usefixtures("narrow", "one_fold")
@pytest.mark.parametrize(
    "options",
    [
        {"diagonal": True},
        {"reduction": "sum"},
        {"lam": 0.5},
        {"discriminative": "arcface"},
        {"discriminative": "cosine"},
    ],
    ids=["diagonal", "reduction", "lam", "arcface", "cosine"],
)
@pytest.mark.parametrize("method", ["paper", "residual"])
def test_options_of_the_paper_train(digits: Upgrade, method: str, options: dict[str, Any]) -> None:
    """Diagonal covariance, summed l2, λ, ArcFace and cosines give maps that retrieve."""
    alignment = Alignment.fit(
        digits.pairs(), method=method, head=digits.head, epochs=8, batch=64, **options
    )
    assert digits.retrieval(alignment(digits.old[digits.test]).vectors)[0] > 50
    assert np.isfinite(alignment(digits.old).variance).all()


@pytest.mark.usefixtures("one_fold")
def test_the_papers_network_in_full_width(digits: Upgrade) -> None:
    """The network as published learns the small problem in a few epochs."""
    alignment = Alignment.fit(digits.pairs(), method="paper", head=digits.head, epochs=4, batch=64)
    assert digits.retrieval(alignment(digits.old[digits.test]).vectors)[0] > 60
    assert alignment.arrays["trunk.1.weight"].shape == (2048, 2048)
    assert alignment.facts["loss"] == "l2+disc+uncertainty"


@pytest.mark.usefixtures("narrow", "one_fold")
@pytest.mark.parametrize("method", ["ridge", "kernel", "residual", "paper"])
def test_side_information_is_used(method: str) -> None:
    """Where only the side-information tells, the map with it explains and without it does not."""
    rng = np.random.default_rng(0)
    old, side = rng.normal(size=(1500, 5)), rng.normal(size=(1500, 4))
    new = np.concatenate([side @ rng.normal(size=(4, 3)), 0.1 * old[:, :1]], axis=1)
    sides = side.astype(np.float32)
    options: dict[str, Any] = {"method": method, "epochs": 12, "batch": 64}
    blind = Alignment.fit(Pairs(Features(old), Features(new)), **options)
    seeing = Alignment.fit(Pairs(Features(old), Features(new), sides), **options)
    assert blind.facts["held_out"]["explained"] < 0.1
    assert seeing.facts["held_out"]["explained"] > 0.8
    assert seeing.side_dim == 4
    shuffled = seeing(old, sides[::-1])
    assert np.abs(shuffled.vectors - seeing(old, sides).vectors).mean() > 0.5


# --- auto -----------------------------------------------------------------------------------


def test_auto_takes_ridge_for_a_linear_problem_with_few_pairs() -> None:
    """Few pairs of a linear upgrade: a line is best, and what was tried is reported."""
    alignment = Alignment.fit(linear_pairs(100))
    assert alignment.method == "ridge"
    compared = alignment.facts["compared"]
    assert set(compared) == {"ridge", "procrustes", "kernel"}
    assert max(compared, key=lambda name: compared[name]["score"]) == "ridge"
    assert alignment.facts["held_out"]["pairs"] == 100  # every pair was held out once


def test_auto_takes_procrustes_for_a_rotation_with_very_few_pairs() -> None:
    """Fewer noisy pairs than dimensions of a pure rotation: only a rotation can be learned."""
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    old = rng.normal(size=(60, 40))
    new = old @ rotation + 0.3 * rng.normal(size=(60, 40))
    assert Alignment.fit(Pairs(Features(old), Features(new)), epochs=3).method == "procrustes"


def test_auto_takes_the_kernel_for_a_curved_problem() -> None:
    """Some hundred pairs of a curved upgrade: the kernel retrieves best."""
    rng = np.random.default_rng(0)
    old = rng.normal(size=(600, 6))
    new = np.tanh(2 * old @ rng.normal(size=(6, 12))) @ rng.normal(size=(12, 8)) ** 2
    alignment = Alignment.fit(Pairs(Features(old), Features(new)))
    assert alignment.method == "kernel"
    assert alignment.facts["loss"] == "l2"
    compared = alignment.facts["compared"]
    assert compared["kernel"]["explained"] > compared["ridge"]["explained"] + 0.05


@pytest.mark.usefixtures("narrow", "one_fold")
def test_auto_tries_a_network_with_many_pairs_or_a_classifier(
    digits: Upgrade, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network is left out only where pairs are few and no classifier teaches it."""
    few = Alignment.fit(digits.pairs(), epochs=1)
    taught = Alignment.fit(digits.pairs(), epochs=1, head=digits.head)
    monkeypatch.setattr(methods, "NETWORK_PAIRS", len(digits.pairs()))
    many = Alignment.fit(digits.pairs(), epochs=1)
    simple = {"ridge", "procrustes", "kernel"}
    assert set(few.facts["compared"]) == simple
    assert set(taught.facts["compared"]) == set(many.facts["compared"]) == simple | {"residual"}


def test_quality_is_the_share_of_neighbours_found() -> None:
    """agreement@5: how many of the five nearest in the new space the aligned gallery gives."""
    rng = np.random.default_rng(0)
    new, aligned = rng.normal(size=(40, 4)), rng.normal(size=(40, 4))
    name, found = held_out_scores(new.astype("f4"), aligned.astype("f4"), None, "l2", None)
    shares = []
    for i in range(40):
        others = [j for j in range(40) if j != i]
        near = [
            set(sorted(others, key=lambda j: float(((new[i] - space[j]) ** 2).sum()))[:5])
            for space in (new, aligned)
        ]
        shares.append(len(near[0] & near[1]) / 5)
    assert name == "agreement@5"
    np.testing.assert_allclose(found, shares)
    assert held_out_scores(new.astype("f4"), new.astype("f4"), None, "l2", None)[1].min() == 1.0


def test_quality_is_the_mean_average_precision_where_there_are_labels(digits: Upgrade) -> None:
    """With labels candidates are compared by mAP; classes of one item each cannot be."""
    aligned = Alignment.fit(digits.pairs(), method="ridge")(digits.old[digits.test]).vectors
    new, labels = digits.new[digits.test], digits.labels[digits.test]
    name, found = held_out_scores(new, aligned, labels, "l2", None)
    assert name == "map"
    assert 100 * found.mean() == pytest.approx(digits.retrieval(aligned)[1], abs=0.05)
    assert held_out_scores(new, aligned, np.arange(len(new)), "l2", None)[0] == "agreement@5"


# --- the schedule ---------------------------------------------------------------------------


def test_the_papers_schedule() -> None:
    """Adam 5e-4, weight decay 2⁻¹⁵, batches of 1,024, 80 epochs, 5 of warm-up, frozen norms."""
    from fastfill.align.training import PAPER

    assert (PAPER.epochs, PAPER.batch, PAPER.rate) == (80, 1024, 5e-4)
    assert (PAPER.weight_decay, PAPER.warmup_epochs) == (2**-15, 5)
    assert PAPER.freeze_norm
    assert not PAPER.decoupled


def test_the_rate_warms_up_and_falls_as_a_cosine() -> None:
    """The rate rises by equal steps to its top, then falls along half a cosine towards zero."""
    rates = Schedule(80, 1024, 5e-4, 0.0, 5).rates(800)
    np.testing.assert_allclose(rates[:50], 5e-4 * np.arange(1, 51) / 50)
    expected = 5e-4 * 0.5 * (1 + np.cos(np.pi * np.arange(750) / 750))
    np.testing.assert_allclose(rates[50:], expected)


def test_batch_norm_keeps_still_in_the_second_half(
    digits: Upgrade, monkeypatch: pytest.MonkeyPatch, narrow: None, one_fold: None
) -> None:
    """The statistics of batch norm no longer change after half of the epochs."""
    seen: list[np.ndarray] = []
    nets: list[Any] = []
    train = training_tasks.train

    def spy(net: Any, *args: Any, **kwargs: Any) -> Any:
        nets.append(net)
        return train(net, *args, **kwargs)

    def report(epoch: int, epochs: int, loss: float) -> None:
        seen.append(nets[-1].trunk[0].norm.running_mean.numpy().copy())

    monkeypatch.setattr(training_tasks, "train", spy)
    Alignment.fit(digits.pairs(), method="paper", epochs=4, batch=128, report=report)
    assert not np.array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[1], seen[2])
    np.testing.assert_array_equal(seen[2], seen[3])
