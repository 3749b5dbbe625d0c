"""The error that a pilot of the gallery leads to expect."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from fastfill.align import Aligned
from fastfill.align.pilot import pilot_errors
from fastfill.errors import ShapeError


@pytest.fixture(scope="module")
def gallery():
    """A map that errs where another map differs from it, and says nothing of it."""
    rng = np.random.default_rng(0)
    n, d = 3_000, 8
    old = rng.normal(size=(n, d)).astype(np.float32)
    wrong = np.exp(rng.normal(size=n)).astype(np.float32)
    h = old.copy()
    new = h + wrong[:, None] * rng.normal(size=(n, d)).astype(np.float32)
    other = h + 0.3 * wrong[:, None] * rng.normal(size=(n, d)).astype(np.float32)
    return old, Aligned(h, np.ones(n)), Aligned(other, np.ones(n)), new


def test_a_pilot_finds_what_tells_of_the_error(gallery) -> None:
    """σ² of no use becomes one that ranks items outside the pilot, and has the right size."""
    old, aligned, other, new = gallery
    rows, rest = np.arange(300), np.arange(300, 3_000)
    better = pilot_errors(aligned, old, rows, new[rows], others=[other])
    error = np.square(aligned.vectors - new).sum(1)[rest]
    assert kendalltau(better.variance[rest], error).statistic > 0.5
    assert 0.7 < better.variance[rest].mean() / error.mean() < 1.4
    assert np.array_equal(better.vectors, aligned.vectors)


def test_the_head_is_used_where_there_is_one(gallery) -> None:
    """Items between two classes err more here: the classifier's doubt tells which they are."""
    rng = np.random.default_rng(1)
    old, aligned, _, _ = gallery
    head = np.eye(2, 8, dtype=np.float32) * 3
    gap = np.abs(aligned.vectors[:, 0] - aligned.vectors[:, 1])
    new = aligned.vectors + np.exp(-2 * gap)[:, None] * rng.normal(size=aligned.vectors.shape)
    rows, rest = np.arange(300), np.arange(300, 3_000)
    error = np.square(aligned.vectors - new).sum(1)[rest]

    def tau(**known) -> float:
        found = pilot_errors(aligned, old, rows, new[rows].astype(np.float32), **known)
        return float(kendalltau(found.variance[rest], error).statistic)

    assert tau(head=head) > 0.4
    assert tau(head=head) > tau() + 0.2


def test_a_pilot_that_is_too_small_or_does_not_fit_is_refused(gallery) -> None:
    """The error says how many items there are."""
    old, aligned, _, new = gallery
    with pytest.raises(ShapeError, match="A pilot of 20 items is too small"):
        pilot_errors(aligned, old, np.arange(20), new[:20])
    with pytest.raises(ShapeError, match="new vectors of the pilot"):
        pilot_errors(aligned, old, np.arange(100), new[:90])
