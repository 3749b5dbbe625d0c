"""The distance penalty: aligned vectors are farther from every query, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastfill.align import Alignment, correct
from fastfill.align.penalty import SHARE, SHARE_BY_HEAD, Penalty, unused_direction
from fastfill.errors import InputError
from fastfill.features import Features, Pairs, pairwise

RNG = np.random.default_rng(0)
USED = 12  # of 16 dimensions


def pairs(rows: int = 400, noise: float = 0.5) -> Pairs:
    """New vectors that leave four dimensions unused, and old ones that tell part of them."""
    rng = np.random.default_rng(rows)
    old = rng.normal(size=(rows, USED))
    new = np.zeros((rows, 16))
    new[:, :USED] = np.tanh(old) * 2 + noise * rng.normal(size=old.shape)
    return Pairs(Features(old), Features(new))


def test_every_squared_distance_grows_by_a_share_of_the_error() -> None:
    """For queries of the new model: by the same for all of them."""
    made = Alignment.fit(pairs(), method="ridge")
    aligned = made(pairs(100).old)
    queries = pairs(50).new.vectors
    grown = pairwise(queries, aligned.vectors, "l2") - pairwise(queries, aligned.h, "l2")
    assert np.allclose(grown, SHARE * aligned.variance, atol=2e-3)


def test_the_error_is_that_of_the_estimate() -> None:
    """Penalised or not, h and its predicted error are the same."""
    both = [Alignment.fit(pairs(), method="ridge", penalty=share) for share in (0.0, 0.9)]
    plain, back = (one(pairs(100).old) for one in both)
    assert plain.h is plain.vectors
    assert np.array_equal(plain.h, back.h)
    assert np.array_equal(plain.variance, back.variance)
    assert not np.allclose(plain.vectors, back.vectors)


def test_with_a_classifier_only_doubtful_items_are_penalised() -> None:
    """By its margin: the mean error for an item between two classes, nothing for a sure one."""
    head = np.float32([[9, 0, 0], [0, 9, 0]])
    penalty = Penalty(np.float32([0, 0, 1]), SHARE_BY_HEAD, error=4.0)
    h = np.float32([[9, 0, 0], [1, 1, 0]])
    served = penalty(h, penalty.errors(h, np.float32([1, 1]), head))
    assert np.allclose(served[0], h[0], atol=1e-6)
    assert np.allclose(served[1], [1, 1, np.sqrt(SHARE_BY_HEAD * 4)])


def test_the_direction_is_one_that_neither_vectors_nor_classifier_use() -> None:
    """A dimension with a constant counts as used: distances would depend on it."""
    new = np.zeros((50, 4), dtype=np.float32)
    new[:, 0], new[:, 1] = RNG.normal(size=50), 3
    head = np.float32([[0, 0, 5, 0], [1, 0, 2, 0]])
    assert np.allclose(np.abs(unused_direction(new, head)), [0, 0, 0, 1], atol=1e-6)


def test_no_penalty_where_every_direction_is_used() -> None:
    """In a small space there is nowhere to go."""
    old = RNG.normal(size=(300, 6))
    made = Alignment.fit(Pairs(Features(old), Features(old + 0.3)), method="ridge", penalty=0.5)
    assert made.penalty is None


def test_few_pairs_do_not_feign_an_unused_direction() -> None:
    """With fewer pairs than dimensions some direction is empty by chance alone."""
    new = np.random.default_rng(1).normal(size=(60, 100)).astype(np.float32)
    assert Penalty.of(new) is None


@pytest.mark.parametrize("distance", ["ip", "cosine"])
def test_only_l2_is_penalised_by_default(distance: str) -> None:
    """An inner product has no error to add; under cosine it did not pay."""
    made = Alignment.fit(pairs(), method="ridge", distance=distance)  # type: ignore[arg-type]
    assert made.penalty is None


def test_vectors_of_unit_length_stay_so_when_they_are_penalised() -> None:
    """The store and its users may count on it."""
    given = pairs()
    new = given.new.vectors / np.linalg.norm(given.new.vectors, axis=1, keepdims=True)
    made = Alignment.fit(Pairs(given.old, Features(new)), method="ridge", penalty=0.5)
    assert made.penalty is not None
    assert np.allclose(np.linalg.norm(made(given.old).vectors, axis=1), 1, atol=1e-5)


def test_the_paper_stays_as_published() -> None:
    """No penalty in its preset."""
    assert Alignment.fit(pairs(60), method="paper", epochs=1, device="cpu").penalty is None


def test_the_former_name_is_accepted() -> None:
    """What version 0.1.0 called setback is the penalty."""
    made = Alignment.fit(pairs(), method="ridge", setback=0.5)
    assert made.penalty is not None
    assert made.penalty.share == 0.5


def test_a_penalty_that_surely_harms_is_left_out() -> None:
    """Held-out pairs decide: a few items that err much are no reason to move many that do not."""
    rng = np.random.default_rng(0)
    old = rng.normal(size=(400, 8))
    old[:, 0] = np.where(np.arange(400) % 3, 0.0, 3.0)
    new = np.concatenate([old, np.zeros((400, 2))], axis=1)
    new[::10, 1:8] = 20 * rng.normal(size=(40, 7))  # what the old model knows nothing of
    head = np.zeros((2, 10))
    head[:, 0] = 9, -9  # of no opinion about two thirds of the items
    given = Pairs(Features(old), Features(new))
    assert Alignment.fit(given, method="kernel", head=head).penalty is None
    assert Alignment.fit(given, method="kernel", head=head, penalty=0.5).penalty is not None


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_is_a_share(share: float) -> None:
    """Anything else is refused in one sentence."""
    with pytest.raises(InputError, match="penalty is a share between 0 and 1"):
        Alignment.fit(pairs(), method="ridge", penalty=share)


def test_saved_and_read_again(tmp_path: Path) -> None:
    """Also by a corrected alignment; and the fingerprint tells two shares apart."""
    one = Alignment.fit(pairs(), method="ridge")
    other = Alignment.fit(pairs(), method="ridge", penalty=0.5)
    for made in (one, correct(one, pairs(200))):
        made.save(tmp_path / "map.safetensors")
        read = Alignment.load(tmp_path / "map.safetensors")
        assert np.array_equal(read(pairs(50).old).vectors, made(pairs(50).old).vectors)
        assert read.fingerprint == made.fingerprint
    assert one.fingerprint != other.fingerprint


def test_a_correction_starts_from_the_estimates() -> None:
    """Not from what is served of them."""
    given = [Alignment.fit(pairs(), method="ridge", penalty=share) for share in (0.0, 1.0)]
    first, second = (correct(one, pairs(200))(pairs(50).old) for one in given)
    assert np.allclose(first.h, second.h, atol=1e-4)
