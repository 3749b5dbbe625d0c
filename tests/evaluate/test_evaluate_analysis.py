"""Flips, groups, correlation, seeds and significance, time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from fastfill.errors import InputError, ShapeError
from fastfill.evaluate import (
    Curve,
    compare_curves,
    count_flips,
    group_curves,
    group_gap,
    kendall_table,
    kendall_tau,
    over_seeds,
    served_first,
    timeline,
    true_losses,
)
from fastfill.order import Order, disc_loss, l2_loss


def curve(hits, name="", metric="cmc@1", **more):
    """A curve of evenly spaced points from the values of each query."""
    hits = np.asarray(hits, dtype=np.float32)
    fractions = np.linspace(0, 1, hits.shape[1])
    return Curve(metric, fractions, hits.mean(axis=0), name, hits, **more)


hits = st.integers(0, 2**32).map(lambda seed: np.random.default_rng(seed).integers(0, 2, (30, 6)))


@given(hits)
def test_the_metric_is_the_start_plus_positive_less_negative_flips(values):
    """Appendix D: what is gained and what is lost explain the whole curve."""
    flips = count_flips(curve(values))
    change = flips.positive - flips.negative
    np.testing.assert_allclose(values.mean(axis=0), values[:, 0].mean() + change, atol=1e-6)
    assert flips.positive[0] == flips.negative[0] == 0


@given(hits)
def test_flips_are_counted_query_by_query(values):
    """A query that was wrong at 0 % and is right now is positive, the other way negative."""
    flips = count_flips(curve(values))
    for f in range(6):
        gained = sum(1 for row in values if row[f] and not row[0])
        lost = sum(1 for row in values if not row[f] and row[0])
        assert (flips.positive[f], flips.negative[f]) == (gained / 30, lost / 30)


def test_flips_need_successes_of_each_query():
    """A mean average precision does not flip, and a curve from a file has no queries."""
    with pytest.raises(InputError, match="use cmc@k, not map"):
        count_flips(curve([[0, 1]], metric="map"))
    with pytest.raises(InputError, match="simulate it again"):
        count_flips(Curve("cmc@1", [0, 1], [0.5, 0.5]))


@given(hits, st.integers(0, 2**32))
def test_groups_add_up_to_the_whole(values, seed):
    """The curve is the mean of the groups' curves, weighed by their sizes."""
    groups = np.random.default_rng(seed).choice(["f", "m", "x"], 30)
    parts = group_curves(curve(values), groups)
    weighed = sum(part.values * (groups == name).mean() for name, part in parts.items())
    np.testing.assert_allclose(weighed, values.mean(axis=0), atol=1e-6)
    if len(parts) > 1:
        table = np.stack([part.values for part in parts.values()])
        np.testing.assert_allclose(group_gap(parts), table.max(axis=0) - table.min(axis=0))


def test_groups_belong_to_all_queries_also_the_excluded_ones():
    """A group whose only query was excluded has no curve; the others keep their queries."""
    part = curve([[0, 1], [1, 1]], queries=[0, 2], excluded=1, name="sigma")
    curves = group_curves(part, ["a", "empty", "b"])
    assert {key: value.start for key, value in curves.items()} == {"a": 0.0, "b": 1.0}
    assert curves["a"].name == "sigma: a"
    assert curves["b"].queries.tolist() == [2]


def test_groups_that_do_not_fit_are_refused():
    """One group for each query, and a gap is between at least two."""
    with pytest.raises(ShapeError, match="one for each of the 2 queries"):
        group_curves(curve([[0, 1], [1, 1]]), ["a"])
    with pytest.raises(InputError, match="at least 2 groups"):
        group_gap(group_curves(curve([[0, 1]]), ["a"]))


@given(st.permutations(list(range(20))), st.integers(2, 9))
def test_what_is_served_of_each_group_is_counted(rows, points):
    """At each fraction the share of a group's items among the first ⌊α·n⌋ of the order."""
    groups = np.array(["f", "m", "m", "m"] * 5)
    served = served_first(Order(rows, name="sigma"), groups, points)
    for fraction, *shares in zip(served.fractions, *served.shares.values(), strict=True):
        done = groups[rows[: int(fraction * 20 + 1e-9)]]
        for group, share in zip(served.shares, shares, strict=True):
            assert share == pytest.approx((done == group).sum() / (groups == group).sum())


def test_kendall_is_that_of_scipy_and_has_all_nine():
    """Three σ² with three losses: the table of Appendix E."""
    rng = np.random.default_rng(0)
    names = ("l2", "disc", "l2+disc")
    variances = {name: rng.random(40) for name in names}
    losses = {name: rng.random(40) for name in names}
    table = kendall_table(variances, losses)
    assert table.values.shape == (3, 3)
    for row in names:
        for column in names:
            expected = kendalltau(variances[row], losses[column]).statistic
            assert table[row, column] == pytest.approx(expected)
    with pytest.raises(ShapeError, match="same items"):
        kendall_tau([1, 2], [1, 2, 3])


def test_true_losses_are_all_that_can_be_known():
    """l2 alone without a head or labels; disc and their sum with both."""
    rng = np.random.default_rng(1)
    aligned, new = rng.normal(size=(2, 9, 4)).astype(np.float32)
    head, labels = rng.normal(size=(3, 4)).astype(np.float32), rng.integers(0, 3, 9)
    assert list(true_losses(aligned, new)) == ["l2"]
    losses = true_losses(aligned, new, labels, head)
    both = l2_loss(aligned, new) / (new.astype(float) ** 2).sum(axis=1).mean()
    both += disc_loss(aligned, labels, head)
    np.testing.assert_allclose(losses["l2+disc"], both)


def test_seeds_give_a_mean_and_a_deviation():
    """Point by point, and of the area; one seed has no deviation."""
    rng = np.random.default_rng(2)
    runs = [curve(rng.random((5, 4)), metric="map") for _ in range(3)]
    spread = over_seeds(runs)
    table = np.stack([run.values for run in runs])
    np.testing.assert_allclose(spread.curve.values, table.mean(axis=0))
    np.testing.assert_allclose(spread.std, table.std(axis=0, ddof=1))
    assert spread.area == pytest.approx(np.mean([run.area for run in runs]))
    assert spread.area_std == pytest.approx(np.std([run.area for run in runs], ddof=1))
    assert over_seeds(runs[:1]).area_std == 0
    with pytest.raises(InputError, match="at least one seed"):
        over_seeds([])


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_a_comparison_is_paired_and_antisymmetric(seed):
    """a against b is b against a with the sign turned; a curve does not differ from itself."""
    rng = np.random.default_rng(seed)
    base = rng.random((60, 3))
    a, b = curve(base, "a", "map"), curve(base + rng.normal(0, 0.1, base.shape), "b", "map")
    there, back = compare_curves(a, b, resamples=200), compare_curves(b, a, resamples=200)
    assert there.difference == pytest.approx(a.area - b.area, abs=1e-6)
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))
    assert there.low <= there.difference <= there.high
    itself = compare_curves(a, a, resamples=50)
    assert (itself.difference, itself.low, itself.high, itself.p_value) == (0, 0, 0, 1)
    assert not itself.significant


def test_pairing_finds_what_two_separate_intervals_would_not():
    """A small gain on every query is significant although queries differ a lot."""
    base = np.random.default_rng(3).random((400, 3))
    gain = compare_curves(curve(base + 0.01, "a", "map"), curve(base, "b", "map"))
    assert gain.significant
    assert gain.difference == pytest.approx(0.01, abs=1e-6)
    assert gain.p_value < 0.01


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    """Of many pairs without a true difference about 5 % are called significant."""
    rng = np.random.default_rng(4)
    called = 0
    for seed in range(200):
        a, b = rng.random((2, 80, 2))
        called += compare_curves(
            curve(a, "a", "map"), curve(b, "b", "map"), resamples=300, seed=seed
        ).significant
    assert 1 <= called <= 25


def test_seeds_are_averaged_before_the_queries_are_drawn():
    """Several seeds of a method are one method."""
    rng = np.random.default_rng(5)
    runs = [curve(rng.random((50, 3)), "a", "map") for _ in range(4)]
    other = curve(rng.random((50, 3)), "b", "map")
    mean = np.mean([run.area for run in runs])
    assert compare_curves(runs, other).difference == pytest.approx(mean - other.area, abs=1e-6)


def test_only_like_is_compared_with_like():
    """Another metric, other points, other queries: refused."""
    a = curve([[0, 1], [1, 1]])
    with pytest.raises(InputError, match="cannot be compared"):
        compare_curves(a, curve([[0, 1], [1, 1]], metric="map"))
    with pytest.raises(ShapeError, match="same points"):
        compare_curves(a, curve([[0, 1, 1], [1, 1, 1]]))
    with pytest.raises(InputError, match="different queries"):
        compare_curves(
            curve([[0, 1]], queries=[0], excluded=1), curve([[0, 1]], queries=[1], excluded=1)
        )
    with pytest.raises(InputError, match="each side needs at least one"):
        compare_curves(a, [])


def test_a_timeline_is_figure_1():
    """Online starts with a jump at 0, offline jumps at the end, no update never does."""
    fill = Curve("map", [0, 0.5, 1], [0.5, 0.6, 0.7], "sigma")
    figure = timeline(fill, old=0.3, items=100, per_item=2.0, unit="s", before=0.1, after=0.2)
    online, offline, never = figure.lines
    assert (figure.metric, figure.unit) == ("map", "s")
    assert online.name == "sigma"
    assert online.x.tolist() == [-20, 0, 0, 100, 200, 240]
    assert online.y.tolist() == [0.3, 0.3, 0.5, 0.6, 0.7, 0.7]
    assert offline.x.tolist() == [-20, 200, 200, 240]
    assert offline.y.tolist() == [0.3, 0.3, 0.7, 0.7]
    assert never.y.tolist() == [0.3, 0.3]


def test_an_offline_backfill_ends_with_the_new_model_alone():
    """However the first curve is served, the old search or both, `new` is where offline ends."""
    flat = Curve("map", [0, 1], [0.3, 0.3], "old", serving=("old", "old"))
    _, offline, _ = timeline(flat, old=0.3, new=0.7, items=100).lines
    assert offline.y.tolist() == [0.3, 0.3, 0.7, 0.7]


def test_a_timeline_needs_curves_of_one_metric_and_work_to_do():
    """Nothing, two metrics, no items or free ones cannot be drawn."""
    fill = Curve("map", [0, 1], [0.5, 0.7])
    with pytest.raises(InputError, match="same metric"):
        timeline([fill, Curve("mrr", [0, 1], [0.5, 0.7])], old=0.3, items=10)
    with pytest.raises(InputError, match="same metric"):
        timeline([], old=0.3, items=10)
    with pytest.raises(InputError, match="items must be at least 1"):
        timeline(fill, old=0.3, items=0)
    with pytest.raises(InputError, match="per_item must be above 0"):
        timeline(fill, old=0.3, items=10, per_item=0)
