"""Agreement by comparisons of two pairs, against ranks that are counted one by one."""

import numpy as np
import pytest

from fastfill.align import Alignment
from fastfill.align.leave_one_out import LeaveOut
from fastfill.features import Features, Pairs
from fastfill.forecast import agreement_leave_one_out
from fastfill.forecast.agreement import pair_steps, some_first
from fastfill.forecast.agreement_leave_one_out import LeaveOneOutAgreement, OrderSample


@pytest.fixture(scope="module")
def scene():
    """Sixty pairs of a curved map with some noise."""
    rng = np.random.default_rng(0)
    old = rng.normal(size=(60, 4)).astype(np.float32)
    new = np.sin(old) + 0.4 * rng.normal(size=old.shape)
    pairs = Pairs(Features(old), Features(new))
    return pairs, LeaveOut.of(Alignment.fit(pairs, method="kernel"), pairs)


def test_ranks_are_counted_as_one_by_one(scene, monkeypatch):
    """Each of the first neighbours against each other pair, by a map that knew neither."""
    monkeypatch.setattr(agreement_leave_one_out, "RIVALS", 60)
    pairs, leave = scene
    ask = LeaveOneOutAgreement(leave, pairs, "l2", 0)
    rng = np.random.default_rng(1)
    done, seen = rng.random((60, 3)) < 0.5, rng.random(60) < 0.2
    new, stands = pairs.new.vectors, rng.random(60)
    query, left = 8, np.array([8])
    true = np.square(new - new[query]).sum(1)
    places = np.argsort(np.where(np.arange(60) == query, np.inf, true))[:2]
    ranks = ask._ranks(new[query], left, stands, [OrderSample(done, seen)], 2)
    for place, one in enumerate(places):
        for stage in range(3):
            nearer = 0
            for other in np.setdiff1d(np.arange(60), [query, one]):
                apart = leave.apart(left, int(one), np.array([other]))
                near = [np.square(side[0] - new[query]).sum() for side in apart]
                x, y = (
                    true[pair] if done[pair, stage] else stands[pair] if seen[pair] else distance
                    for pair, distance in zip((one, other), near, strict=True)
                )
                nearer += y < x
            assert ranks[0, place, stage] == 1 + nearer


def test_only_rivals_that_are_near_are_compared(scene, monkeypatch):
    """Pairs that are far away, new and aligned, are never nearer than the first neighbours."""
    pairs, leave = scene
    fractions = np.linspace(0, 1, 5)
    found = []
    for rivals in (15, 60):
        monkeypatch.setattr(agreement_leave_one_out, "RIVALS", rivals)
        ask = LeaveOneOutAgreement(leave, pairs, "l2", 0)
        found.append(ask.curves(600, 10, fractions, "sigma").scores.mean(axis=0))
    assert found[0] == pytest.approx(found[1], abs=0.03)
    assert found[1][-1] == pytest.approx(1.0)
    assert (np.diff(found[1]) > 0).all()


def test_pairs_that_the_map_has_seen_come_first():
    """A share of the pairs stands for the pairs of the real gallery, then the order decides."""
    first = some_first(100, 0.2, [0])
    assert len(np.unique(first)) == 20
    scores = np.random.default_rng(0).random(100)
    steps = pair_steps(scores, first, np.linspace(0, 1, 6))
    assert steps[first].max() == 1
    rest = np.setdiff1d(np.arange(100), first)
    assert (np.diff(steps[rest[np.argsort(-scores[rest])]]) >= 0).all()
