"""Maps without one pair or two, against maps that are fitted without them."""

import numpy as np
import pytest

from fastfill.align import Alignment
from fastfill.align.kernel import gaussian
from fastfill.align.leave_one_out import LeaveOut
from fastfill.features import Features, Pairs

KNOWN, ITEMS = 60, 90


@pytest.fixture(scope="module", params=["l2", "cosine"])
def scene(request):
    """Some pairs, other old vectors, and the map of the pairs."""
    rng = np.random.default_rng(0)
    old = rng.normal(size=(ITEMS, 5)).astype(np.float32)
    new = np.concatenate([np.sin(old), np.cos(old), np.zeros((ITEMS, 1))], axis=1)
    pairs = Pairs(Features(old[:KNOWN]), Features(new[:KNOWN]))
    alignment = Alignment.fit(pairs, method="kernel", distance=request.param)
    return old, pairs, alignment


def slowly(alignment: Alignment, pairs: Pairs, left_out, x, variance):
    """Kernel ridge regression on the other pairs, about the mean of all."""
    scaling, chosen = alignment.scaling, alignment.facts["training"]
    kept = np.setdiff1d(np.arange(len(pairs)), left_out)
    z = scaling.inputs(pairs.old.vectors, None).astype(float)
    y = scaling.targets(pairs.new.vectors).astype(float)
    mean = y.mean(0)
    k = gaussian(z[kept], z[kept], chosen["gamma"]) + chosen["lambda"] * np.eye(len(kept))
    weight = np.linalg.solve(k, (y - mean)[kept])
    h = mean + gaussian(scaling.inputs(x, None).astype(float), z[kept], chosen["gamma"]) @ weight
    return alignment.penalised(scaling.outputs(h.astype(np.float32)), variance).vectors


def test_a_pair_is_left_out_as_if_it_had_never_been_there(scene):
    """Every old vector is aligned as by a map of the other pairs."""
    old, pairs, alignment = scene
    [block] = LeaveOut.of(alignment, pairs).blocks(old)
    for pair in (0, 17, 59):
        slow = slowly(alignment, pairs, [pair], old, alignment(old).variance)
        np.testing.assert_allclose(block.without(pair), slow, atol=1e-3)
    slow = slowly(alignment, pairs, [2, 5], old, alignment(old).variance)
    np.testing.assert_allclose(block.without(2, 5), slow, atol=1e-3)
    np.testing.assert_allclose(block.without(), alignment(old).vectors, atol=1e-3)


def test_two_pairs_are_left_out_together(scene):
    """Each pair is aligned as by a map that knew neither it nor the one that asks."""
    _, pairs, alignment = scene
    leave = LeaveOut.of(alignment, pairs)
    x = pairs.old.vectors
    found = leave.together(7)
    for other in (0, 8, 59):
        one = slice(other, other + 1)
        slow = slowly(alignment, pairs, [7, other], x[one], leave.pairs.variance[one])
        np.testing.assert_allclose(found[one], slow, atol=1e-3)


@pytest.mark.parametrize("left", [[], [7]])
def test_two_pairs_are_compared_by_a_map_that_knew_neither(scene, left):
    """Nor the pair that asks, where one does."""
    _, pairs, alignment = scene
    leave = LeaveOut.of(alignment, pairs)
    x, variance = pairs.old.vectors, leave.pairs.variance
    mine, theirs = leave.apart(np.array(left, dtype=np.int64), 3, np.array([11, 59]))
    for row, other in enumerate((11, 59)):
        for pair, found in ((3, mine[row]), (other, theirs[row])):
            one = slice(pair, pair + 1)
            slow = slowly(alignment, pairs, [*left, 3, other], x[one], variance[one])
            np.testing.assert_allclose(found, slow[0], atol=1e-3)


def test_a_pair_alone_is_aligned_by_the_others(scene):
    """So are the pairs themselves, with the error that is predicted without them."""
    _, pairs, alignment = scene
    leave = LeaveOut.of(alignment, pairs)
    for pair in (3, 40):
        one = slice(pair, pair + 1)
        slow = slowly(alignment, pairs, [pair], pairs.old.vectors[one], leave.pairs.variance[one])
        np.testing.assert_allclose(leave.pairs.vectors[one], slow, atol=1e-3)
    assert leave.pairs.variance.mean() > 1.2 * alignment(pairs.old).variance.mean()


def test_other_maps_cannot_leave_out(scene):
    """Only a kernel map has a landmark for every pair."""
    _, pairs, _ = scene
    assert LeaveOut.of(Alignment.fit(pairs, method="ridge"), pairs) is None
