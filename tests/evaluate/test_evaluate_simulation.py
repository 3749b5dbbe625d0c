"""Backfilling played through on features."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfill.align import Aligned
from fastfill.errors import InputError, LabelError, NonFiniteError, OrderError, ShapeError
from fastfill.evaluate import Curve, backfill_curves, backfilled_counts, plain_metrics
from fastfill.features import Features
from fastfill.metrics import Relevance
from fastfill.order import POLICIES, Order, PolicyInput


def scene(seed=0, n=90, classes=6, noise=1.5):
    """A gallery of classes, aligned with errors of very different sizes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    head = rng.normal(size=(classes, 8)).astype(np.float32)
    new = 2 * head[labels] + rng.normal(size=(n, 8)).astype(np.float32)
    error = rng.gamma(0.5, noise, (n, 1)) * rng.normal(size=(n, 8))
    aligned = Aligned((new + error).astype(np.float32), (error**2).sum(axis=1))
    known = PolicyInput(aligned, old=new[:, :5] + 1, pairs_old=new[:9, :5], head=head, shown=labels)
    return aligned, new.astype(np.float32), labels, known


@pytest.mark.parametrize("policy", [*POLICIES, "traffic:sigma"])
@pytest.mark.parametrize("metric", ["map", "cmc@1", "agreement@5"])
def test_the_ends_of_a_curve_do_not_depend_on_the_order(policy, metric):
    """At 0 % it is the aligned gallery, at 100 % the new one, exactly as evaluated alone."""
    aligned, new, labels, known = scene()
    curve = Curve.simulate(
        aligned, new, labels, policy=policy, metric=metric, points=4, known=known
    )
    assert curve.name == policy
    if metric != "agreement@5":
        first = plain_metrics(new, aligned.vectors, Relevance.from_labels(labels), metrics=metric)
        assert curve.start == pytest.approx(first[metric], abs=1e-12)
    last = plain_metrics(None, new, labels, metrics=metric)
    assert curve.end == pytest.approx(last[metric], abs=1e-12)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(2, 12))
def test_each_point_is_the_gallery_with_its_first_items_replaced(seed, points):
    """n_α = ⌊α·n⌋ items of the order are new, the others aligned."""
    aligned, new, labels, _ = scene(seed, n=25, classes=4)
    order = Order(np.random.default_rng(seed).permutation(25))
    curve = Curve.simulate(aligned, new, labels, policy=order, metric="map", points=points)
    for fraction, value in zip(curve.fractions, curve.values, strict=True):
        gallery = aligned.vectors.copy()
        done = order.positions[: int(np.floor(fraction * 25 + 1e-9))]
        gallery[done] = new[done]
        plain = plain_metrics(new, gallery, Relevance.from_labels(labels), metrics="map")
        assert value == pytest.approx(plain["map"], abs=1e-12)


def test_a_good_order_beats_a_bad_one():
    """The true error first lies above random, and that above the true error last."""
    aligned, new, labels, _ = scene(n=300)
    error = ((aligned.vectors - new) ** 2).sum(axis=1)
    areas = [
        Curve.simulate(aligned, new, labels, policy=policy).area
        for policy in (Order.by_score(error), "random", Order.by_score(-error))
    ]
    assert areas[0] > areas[1] > areas[2]


def test_several_metrics_in_one_pass_are_those_of_one_each():
    """Labels and neighbours, asked for together or alone."""
    aligned, new, labels, _ = scene()
    names = ["cmc@1", "cmc@5", "map", "recall@3", "ndcg@5", "mrr", "agreement@3", "agreement@9"]
    together = backfill_curves(aligned, new, labels, metrics=names, points=5)
    assert list(together) == names
    for name in names:
        alone = Curve.simulate(aligned, new, labels, metric=name, points=5)
        np.testing.assert_array_equal(together[name].values, alone.values)


def test_queries_of_their_own_are_ranked_on_the_whole_gallery():
    """Separate queries leave nothing out; labels come with the features or beside them."""
    aligned, new, labels, _ = scene()
    queries, asked = new[:10] + np.float32(0.1), labels[:10]
    curve = Curve.simulate(aligned, new, labels, queries=queries, query_labels=asked)
    with_labels = Curve.simulate(
        aligned, Features(new, labels=labels), queries=Features(queries, labels=asked)
    )
    np.testing.assert_array_equal(curve.values, with_labels.values)
    end = plain_metrics(queries, new, labels, query_labels=asked, metrics="map")
    assert curve.end == pytest.approx(end["map"])
    assert curve.per_query.shape == (10, 21)


def test_files_that_are_mapped_into_memory_can_be_used(tmp_path):
    """Vectors read from disk when they are needed give the same curve."""
    aligned, new, labels, _ = scene()
    for name, values in (("new", new), ("aligned", aligned.vectors)):
        np.save(tmp_path / f"{name}.npy", values)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("aligned", "new")]
    curve = Curve.simulate(Aligned(mapped[0], aligned.variance), mapped[1], labels)
    np.testing.assert_array_equal(curve.values, Curve.simulate(aligned, new, labels).values)


def test_several_labels_per_item_and_judgements_can_be_used():
    """What is relevant may come in any of its forms."""
    aligned, new, labels, _ = scene()
    plain = Curve.simulate(aligned, new, labels)
    for other in ([{label} for label in labels.tolist()], np.eye(6, dtype=bool)[labels]):
        np.testing.assert_array_equal(Curve.simulate(aligned, new, other).values, plain.values)
    graded = Relevance.from_qrels({"q": {"3": 2, "5": 1}}, ["q"], [str(i) for i in range(90)])
    curve = Curve.simulate(aligned, new, graded, queries=new[3:4], metric="ndcg@5")
    assert 0 < curve.end <= 1


def test_labels_of_one_item_are_excluded_and_counted():
    """A class of one item has no relevant item, and the curve says how many were left out."""
    aligned, new, labels, _ = scene()
    labels = labels.copy()
    labels[:2] = [77, 78]
    curve = Curve.simulate(aligned, new, labels, points=3)
    assert curve.excluded == 2
    assert curve.queries.tolist() == list(range(2, 90))


def test_the_seed_decides_the_random_order():
    """The same seed gives the same curve, another one another curve."""
    aligned, new, labels, _ = scene()
    a, b, c = (
        Curve.simulate(aligned, new, labels, policy="random", seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(a.values, b.values)
    assert (a.values != c.values).any()
    d, e = (
        Curve.simulate(
            aligned, new, labels, policy="random", seed=seed, known=PolicyInput(aligned, seed=1)
        )
        for seed in (None, 0)
    )
    np.testing.assert_array_equal(d.values, c.values)
    np.testing.assert_array_equal(e.values, a.values)


def test_fractions_can_be_given():
    """Any rising fractions will do, and one alone is a budget."""
    aligned, new, labels, _ = scene()
    whole = Curve.simulate(aligned, new, labels, points=11)
    budget = Curve.simulate(aligned, new, labels, points=[0.1, 0.3])
    np.testing.assert_array_equal(budget.values, whole.values[[1, 3]])
    for points in (1, [], [[0.1]], [0.3, 0.1], [0, 2]):
        with pytest.raises(InputError):
            Curve.simulate(aligned, new, labels, points=points)


def test_floors_are_not_fooled_by_binary_fractions():
    """⌊0.29 · 100⌋ is 29, and a hundredth of anything is exact."""
    counts = backfilled_counts(np.linspace(0, 1, 101), 100)
    assert counts.tolist() == list(range(101))
    assert backfilled_counts(np.array([0.5]), 3).tolist() == [1]


def test_a_bar_is_drawn_only_where_wanted(capsys):
    """Progress goes to stderr; without it nothing is printed."""
    aligned, new, labels, _ = scene()
    Curve.simulate(aligned, new, labels, points=2)
    assert capsys.readouterr() == ("", "")
    with_bar = Curve.simulate(aligned, new, labels, points=2, progress=True)
    assert capsys.readouterr().out == ""
    np.testing.assert_array_equal(
        with_bar.values, Curve.simulate(aligned, new, labels, points=2).values
    )


def test_what_does_not_fit_is_named():
    """Shapes, labels and orders at fault are said before anything is computed."""
    aligned, new, labels, _ = scene()
    with pytest.raises(ShapeError, match="must be the same items in the same space"):
        Curve.simulate(aligned, new[:5], labels)
    with pytest.raises(ShapeError, match="labels: 5 rows where 90"):
        Curve.simulate(aligned, new, labels[:5])
    with pytest.raises(ShapeError, match="order mine: 3 rows where 90"):
        Curve.simulate(aligned, new, labels, policy=Order([0, 1, 2], name="mine"))
    with pytest.raises(LabelError, match="map needs labels or judgements"):
        Curve.simulate(aligned, new)
    with pytest.raises(LabelError, match="need labels too"):
        Curve.simulate(aligned, new, labels, queries=new[:3])
    with pytest.raises(OrderError, match="needs the new model's classifier"):
        Curve.simulate(aligned, new, labels, policy="entropy")
    broken = new.copy()
    broken[4, 2] = np.nan
    with pytest.raises(NonFiniteError, match="rows 4"):
        Curve.simulate(aligned, broken, labels)
