"""Aligned vectors of one length: where that retrieves better, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fastfill.align import Alignment
from fastfill.align.held_out import surely_positive
from fastfill.align.scaling import Scaling
from fastfill.errors import ArtefactError, InputError
from fastfill.features import Features, Pairs


def doubtful(rows: int = 600) -> Pairs:
    """New vectors of one length; half of the items' old vectors hardly tell where they are.

    The best guess for these is short, near the origin, and nearer to every item than most others.
    """
    rng = np.random.default_rng(0)
    new = rng.normal(size=(rows, 32))
    new *= 5 / np.linalg.norm(new, axis=1, keepdims=True)
    doubt = np.where(np.arange(rows) % 2, 0.05, 1.0)[:, None]  # how much of the item is seen
    old = doubt * new + 0.1 * rng.normal(size=(rows, 32))
    return Pairs(Features(old), Features(new * rng.uniform(0.97, 1.03, size=(rows, 1))))


def long_and_short(rows: int = 600) -> Pairs:
    """New vectors of two lengths that an exact linear map tells apart."""
    rng = np.random.default_rng(0)
    new = rng.normal(size=(rows, 8)) * np.where(np.arange(rows) % 2, 0.2, 3.0)[:, None]
    old = new @ rng.normal(size=(8, 8)) + 0.01 * rng.normal(size=(rows, 8))
    return Pairs(Features(old), Features(new))


def lengths(alignment: Alignment, pairs: Pairs) -> Any:
    """Of the aligned vectors of the pairs."""
    return np.linalg.norm(alignment(pairs.old).vectors, axis=1)


@pytest.mark.parametrize("method", ["ridge", "kernel"])
def test_lengths_are_matched_where_doubt_makes_vectors_short(method: str) -> None:
    """Vectors that crowd around the origin are brought to the mean length of the new ones."""
    pairs = doubtful()
    alignment = Alignment.fit(pairs, method=method)
    assert alignment.facts["held_out"]["matched"] is True
    mean = np.linalg.norm(pairs.new.vectors, axis=1).mean()
    assert alignment.scaling.length == pytest.approx(mean)
    np.testing.assert_allclose(lengths(alignment, pairs), mean, rtol=1e-5)


@pytest.mark.parametrize("method", ["ridge", "kernel"])
def test_lengths_that_mean_something_are_kept(method: str) -> None:
    """Where the map knows how long a vector is, it stays so."""
    pairs = long_and_short()
    alignment = Alignment.fit(pairs, method=method)
    assert alignment.facts["held_out"]["matched"] is False
    assert alignment.scaling.length is None
    true = np.linalg.norm(pairs.new.vectors, axis=1)
    assert np.corrcoef(lengths(alignment, pairs), true)[0, 1] > 0.9


def test_auto_decides_for_each_method_by_itself() -> None:
    """The comparison says of each method whether its vectors were matched."""
    compared = Alignment.fit(doubtful()).facts["compared"]
    assert all(isinstance(row["matched"], bool) for row in compared.values())
    assert compared["ridge"]["matched"]


@pytest.mark.usefixtures("narrow")
def test_the_papers_map_stays_as_published() -> None:
    """`paper` is never matched."""
    alignment = Alignment.fit(doubtful(), method="paper", epochs=1)
    assert alignment.scaling.length is None
    assert not alignment.facts["held_out"]["matched"]


def test_where_lengths_do_not_matter_they_are_left_alone() -> None:
    """Under cosine no length changes a ranking: vectors come as the map gives them."""
    alignment = Alignment.fit(doubtful(), method="ridge", distance="cosine")
    assert alignment.scaling.length is None


@pytest.mark.parametrize("method", ["auto", "ridge"])
def test_under_an_inner_product_lengths_stay_as_predicted(method: str) -> None:
    """A short vector is far from every query there: what is doubtful crowds into no ranking."""
    alignment = Alignment.fit(doubtful(), method=method, distance="ip")
    assert alignment.scaling.length is None
    assert not alignment.facts["held_out"]["matched"]


def test_the_error_is_that_of_the_matched_vectors() -> None:
    """The calibrated error, and the variance explained, are measured on what is served."""
    pairs = doubtful(2000)
    alignment = Alignment.fit(pairs, method="ridge")
    assert alignment.scaling.length is not None
    aligned = alignment(pairs.old)
    error = np.square(aligned.vectors - pairs.new.vectors).sum(1)
    assert (error / aligned.variance).mean() == pytest.approx(1, abs=0.1)
    spread = np.square(pairs.new.vectors - pairs.new.vectors.mean(0)).sum(1).mean()
    explained = alignment.facts["held_out"]["explained"]
    assert explained == pytest.approx(1 - error.mean() / spread, abs=0.05)


@pytest.mark.parametrize("method", ["ridge", "kernel"])
def test_the_length_is_kept_in_the_artefact(method: str) -> None:
    """A matched map is matched after loading; one without a length reads as it always did."""
    before = Alignment.fit(doubtful(), method=method)
    after = Alignment.from_bytes(before.to_bytes())
    assert after.scaling == before.scaling
    assert after.fingerprint == before.fingerprint
    np.testing.assert_array_equal(lengths(after, doubtful()), lengths(before, doubtful()))
    plain = replace(before.scaling, length=None)
    assert "length" not in plain.to_json()
    assert Scaling(**plain.to_json()) == plain  # type: ignore[arg-type]
    before.scaling = plain
    assert before.fingerprint != after.fingerprint


@pytest.mark.parametrize("length", [0.0, -1.0, float("inf"), float("nan")])
def test_a_length_must_be_positive(length: float) -> None:
    """A length that no vector can have is refused, also in an artefact."""
    alignment = Alignment.fit(doubtful(60), method="procrustes")
    with pytest.raises(InputError, match="must be positive"):
        replace(alignment.scaling, length=length)
    object.__setattr__(alignment.scaling, "length", length)
    with pytest.raises(ArtefactError, match="must be positive"):
        Alignment.from_bytes(alignment.to_bytes())


def test_a_zero_vector_has_no_direction_and_stays_zero() -> None:
    """Nothing is divided by zero."""
    scaling = Scaling(1.0, 1.0, 1.0, "l2", False, 2.0)
    found = scaling.outputs(np.float32([[0, 0], [3, 4]]))
    np.testing.assert_allclose(found, [[0, 0], [1.2, 1.6]], rtol=1e-6)


def test_a_decision_that_is_taken_again_at_every_refit_is_not_left_to_chance() -> None:
    """Of thousand samples without a difference none shows one; a small true one is seen."""
    rng = np.random.default_rng(0)
    noise = rng.choice([-0.2, 0.0, 0.2], size=(1_000, 400), p=[0.1, 0.8, 0.1])
    assert not any(surely_positive(gain) for gain in noise)
    assert all(surely_positive(gain + 0.04) for gain in noise)
