"""The error that a pilot of the gallery leads to expect."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from fastfill.align import Aligned
from fastfill.align.pilot import neighbour_distances, pilot_errors
from fastfill.errors import InputError, ShapeError
from fastfill.features import Features, Pairs


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


@pytest.mark.parametrize("unit", [1, 50])
def test_far_from_its_training_pairs_a_map_errs(unit: float) -> None:
    """Pairs say where a map has learned, in whatever unit; the gallery alone does not."""
    rng = np.random.default_rng(2)
    n, d = 3_000, 8
    old = unit * rng.normal(size=(n, d)).astype(np.float32)
    seen = unit * rng.normal(size=(1_000, d)).astype(np.float32)
    seen[:, 0] = -np.abs(seen[:, 0])  # the map has learned on one side
    pairs = Pairs(Features(seen), Features(seen))
    away = np.sqrt(np.square(old[:, None] - pairs.old.vectors).sum(2).min(1))
    new = old + away[:, None] * rng.normal(size=old.shape).astype(np.float32)
    aligned = Aligned(old, np.ones(n))
    rows, rest = np.arange(300), np.arange(300, n)
    error = np.square(old - new).sum(1)[rest]

    def tau(**known) -> float:
        found = pilot_errors(aligned, old, rows, new[rows], **known)
        return float(kendalltau(found.variance[rest], error).statistic)

    assert tau(pairs=pairs) > 0.4
    assert tau(pairs=pairs) > tau() + 0.1
    wide = pilot_errors(aligned, old.astype(float), rows, new[rows], pairs=pairs)
    assert np.isfinite(wide.variance).all()  # float64 is taken as float32


def test_distances_are_those_of_a_plain_sort() -> None:
    """To the 1st, 10th and 50th, in blocks; of few, to the last; not to the item itself."""
    rng = np.random.default_rng(3)
    vectors, among = rng.normal(size=(5_000, 3)), rng.normal(size=(200, 3))
    vectors, among = vectors.astype(np.float32), among.astype(np.float32)

    def slow(a, b, places):
        squares = np.square(a[:, None].astype(float) - b).sum(2)
        return np.log(np.sort(squares, axis=1)[:, places]).T

    np.testing.assert_allclose(
        neighbour_distances(vectors, among), slow(vectors, among, [0, 9, 49]), atol=1e-3
    )
    np.testing.assert_allclose(
        neighbour_distances(vectors, among[:5]), slow(vectors, among[:5], [0, 4, 4]), atol=1e-3
    )
    np.testing.assert_allclose(
        neighbour_distances(among, among, own=True), slow(among, among, [1, 10, 50]), atol=1e-3
    )


def test_a_pilot_that_is_too_small_or_does_not_fit_is_refused(gallery) -> None:
    """The error says how many items there are."""
    old, aligned, _, new = gallery
    with pytest.raises(ShapeError, match="A pilot of 20 items is too small"):
        pilot_errors(aligned, old, np.arange(20), new[:20])
    with pytest.raises(ShapeError, match="new vectors of the pilot"):
        pilot_errors(aligned, old, np.arange(100), new[:90])
    with pytest.raises(ShapeError, match="has row 3000, and the gallery rows 0 to 2999"):
        pilot_errors(aligned, old, np.arange(2_950, 3_050), new[:100])
    with pytest.raises(InputError, match="The pilot has rows 7 more than once"):
        pilot_errors(aligned, old, np.r_[7, np.arange(99)], new[:100])
    with pytest.raises(ShapeError, match="old vectors of the gallery: 400 rows"):
        pilot_errors(aligned, old[:400], np.arange(100), new[:100])
    with pytest.raises(ShapeError, match="new vectors of the pilot: 3 dimensions"):
        pilot_errors(aligned, old, np.arange(100), new[:100, :3])
    with pytest.raises(ShapeError, match=r"others\[0\] is \(300, 8\)"):
        pilot_errors(aligned, old, np.arange(100), new[:100], others=[aligned.take(np.arange(300))])
    strangers = Pairs(Features(old[:99, :3]), Features(new[:99]))
    with pytest.raises(ShapeError, match=r"pairs: 3 → 8 dimensions, but .* 8 → 8"):
        pilot_errors(aligned, old, np.arange(100), new[:100], pairs=strangers)
