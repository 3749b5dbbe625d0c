"""Curves of ways to serve, against a slow and obvious version: a score matrix, then its ranking."""

import numpy as np
import pytest

from fastfill.align import KEEPS, Alignment, FitOptions, Fusion
from fastfill.errors import InputError, ShapeError
from fastfill.evaluate import (
    Curve,
    Evidence,
    LearnedMap,
    Way,
    adaptive_curves,
    backfill_curves,
    choose_serving,
    read_curves,
    serving_curves,
    write_curves,
)
from fastfill.evaluate.curve_builder import Choices
from fastfill.features import Features, Pairs
from fastfill.metrics import Relevance
from fastfill.order import Order

PAIRS, SEED, POINTS = 60, 3, 5
RIDGE = FitOptions(method="ridge")
WAYS = ("old", "aligned", "both")


class Scene:
    """A gallery and queries under two models of which each errs in its own way."""

    def __init__(self, distance="cosine", items=240, queries=41, seed=0):
        rng = np.random.default_rng(seed)
        self.labels, self.query_labels = rng.integers(0, 12, items), rng.integers(0, 12, queries)
        centres = rng.normal(size=(12, 10))
        meant = np.concatenate([centres[self.labels], centres[self.query_labels]])
        meant = meant + 0.8 * rng.normal(size=meant.shape)
        new = meant @ rng.normal(size=(10, 8)) + 0.5 * rng.normal(size=(len(meant), 8))
        old = np.tanh(meant @ rng.normal(size=(10, 6))) + 0.3 * rng.normal(size=(len(meant), 6))
        self.new, self.queries = np.split(new.astype(np.float32), [items])
        self.old, self.queries_old = np.split(old.astype(np.float32), [items])
        self.distance = distance

    def alignment(self, rows):
        drawn = np.arange(len(rows)) < PAIRS  # those of a backfill that were there first
        pairs = Pairs(Features(self.old[rows]), Features(self.new[rows]), drawn=drawn)
        return Alignment.fit(pairs, method="ridge", seed=SEED, distance=self.distance)

    def fusion(self, alignment):
        asked = (self.queries_old, self.queries)
        return Fusion.learn(alignment.reference, asked, distance=self.distance, items=len(self.new))

    @property
    def asked(self):
        return {
            "queries": self.queries,
            "query_labels": self.query_labels,
            "queries_old": self.queries_old,
            "distance": self.distance,
        }


def distances(queries, items, distance):
    """(q, n), smallest first."""
    if distance == "cosine":
        unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (queries, items)]
        return -unit[0] @ unit[1].T
    if distance == "ip":
        return -queries @ items.T
    return ((queries[:, None] - items[None]) ** 2).sum(axis=2)


def ranking(scene, way, fusion, added, is_new):
    """(q, n) the items of each query, best first."""
    if way == "old":
        scores = -distances(scene.queries_old, scene.old, scene.distance)
    elif way == "aligned":
        scores = -distances(scene.queries, added, scene.distance)
    else:
        asked = zip(scene.queries_old, scene.queries, strict=True)
        scores = np.stack([fusion.scores(*each, scene.old, added, is_new) for each in asked])
    return np.argsort(-scores, axis=1, kind="stable")


def average_precision(relevant):
    """Of one ranking: which of its places hold a relevant item."""
    places = np.flatnonzero(relevant)
    return np.mean((np.arange(len(places)) + 1) / (places + 1))


def measured(scene, way, fusion, added, is_new, metric):
    """(q,) the metric of each query."""
    ranked = ranking(scene, way, fusion, added, is_new)
    if metric == "map":
        relevant = scene.labels[ranked] == scene.query_labels[:, None]
        return np.array([average_precision(row) for row in relevant])
    near = np.argsort(distances(scene.queries, scene.new, scene.distance), axis=1)[:, :5]
    pairs = zip(near, ranked[:, :5], strict=True)
    return np.array([len(np.intersect1d(a, b)) / 5 for a, b in pairs])


def chosen_by(evidence, queries):
    """The way, of which `both` has several shares of the old score, that some queries choose."""
    asked = {way: each[queries] for way, each in evidence.items()}
    gains = {way: asked[way] - asked[0.5] for way in asked if isinstance(way, float)}
    surest = {way: gain.mean() - gain.std(ddof=1) / len(gain) ** 0.5 for way, gain in gains.items()}
    share = max(surest, key=surest.get) if max(surest.values()) > 0 else 0.5
    ways = {"old": asked["old"], "aligned": asked["aligned"], "both": asked[share]}
    chosen = choose_serving(Evidence.of("map", ways))
    return share if chosen == "both" else chosen


def cross_fitted(evidence, values):
    """Even-numbered queries are served by what odd-numbered ones chose, and the other way round."""
    served = np.empty_like(values["old"])
    odd = np.arange(len(served)) % 2 == 1
    for choosing, asking in ((odd, ~odd), (~odd, odd)):
        served[asking] = values[chosen_by(evidence, choosing)][asking]
    return served


@pytest.mark.parametrize("distance", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("metric", ["map", "agreement@5"])
@pytest.mark.parametrize("way", WAYS)
def test_a_curve_is_that_of_the_ranking_by_the_scores(distance, metric, way):
    """Every query at every point of a backfill with one map, under each distance."""
    scene = Scene(distance)
    alignment = scene.alignment(np.arange(PAIRS))
    fusion, aligned = scene.fusion(alignment), alignment(scene.old)
    order = Order(np.random.default_rng(1).permutation(len(scene.new)))
    curve = backfill_curves(
        aligned, scene.new, scene.labels, policy=order, metrics=metric, points=POINTS,
        serving=way, old=scene.old, fusion=fusion, **scene.asked,
    )[metric]  # fmt: skip
    for point, fraction in enumerate(curve.fractions):
        is_new = np.zeros(len(scene.new), dtype=bool)
        is_new[order.positions[: int(fraction * len(scene.new))]] = True
        added = np.where(is_new[:, None], scene.new, aligned.vectors)
        expected = measured(scene, way, fusion, added, is_new, metric)
        assert np.allclose(curve.per_query[:, point], expected, atol=2e-3)
    assert curve.serving == (way,) * POINTS


def played_through(scene, points):
    """A backfill in random order that learns map and fusion again: what serves at each point."""
    items = len(scene.new)
    done = np.random.default_rng(SEED).permutation(items)[:PAIRS]
    rest = np.setdiff1d(np.arange(items), done)
    order = np.concatenate([done, rest])
    taught = 0
    for point in range(points):
        count = point * items // (points - 1)
        known = order[: max(count, PAIRS)]
        if len(known) >= 1.25 * taught and count < items:
            alignment, taught = scene.alignment(known), len(known)
        is_new = np.isin(np.arange(items), order[:count])
        aligned = alignment(scene.old).vectors
        yield scene.fusion(alignment), np.where(is_new[:, None], scene.new, aligned), is_new


def by_row(inputs):
    """A policy that takes the rows as they come."""
    return -np.arange(len(inputs))


def test_one_backfill_measures_every_way_to_serve():
    """Maps and fusions learned again on the way; `auto` is cross-fitted on the first metric."""
    scene = Scene()
    curves = serving_curves(
        scene.old, scene.new, scene.labels, pairs=PAIRS, servings=(*WAYS, "auto"), policy=by_row,
        metrics="map,agreement@5", points=POINTS, fit=RIDGE, seed=SEED, **scene.asked,
    )  # fmt: skip
    assert [*curves] == [*WAYS, "auto"]
    for point, (fusion, *state) in enumerate(played_through(scene, POINTS)):
        values = {
            metric: {way: measured(scene, way, fusion, *state, metric) for way in WAYS}
            | {
                share: measured(scene, "both", fusion.keeping(share), *state, metric)
                for share in KEEPS
            }
            for metric in ("map", "agreement@5")
        }
        chosen = chosen_by(values["map"], np.full(len(scene.queries), True))
        assert curves["auto"]["map"].serving[point] == (chosen if chosen in WAYS else "both")
        for metric, each in values.items():
            each["auto"] = cross_fitted(values["map"], each)
            for way in (*WAYS, "auto"):
                found = curves[way][metric]
                assert np.allclose(found.per_query[:, point], each[way], atol=2e-3)
                assert found.values[point] == pytest.approx(each[way].mean(), abs=2e-3)


def test_no_query_is_served_by_what_it_chose_itself():
    """Even queries are best by old, odd ones by aligned: each half gets what is best for the other.

    All together choose the way of the larger mean.
    """
    even = np.arange(9) % 2 == 0
    values = {
        Way("old"): np.where(even, 0.9, 0.1)[:, None],
        Way("aligned"): np.where(even, 0.2, 0.8)[:, None],
        Way("both"): np.full((9, 1), 0.0),
    }
    choices = Choices.choose("map", values, np.arange(9))
    assert choices.halves == ((Way("aligned"),), (Way("old"),))
    assert choices.whole == (Way("old"),)
    assert choices.values(values, np.arange(9))[:, 0].tolist() == [0.2, 0.1] * 4 + [0.2]


@pytest.mark.parametrize("serving", [*WAYS, "auto"])
def test_one_way_alone_is_the_same_as_among_several(serving):
    """What else is measured on the way changes nothing."""
    scene = Scene()
    given = (scene.old, scene.new, scene.labels)
    asked = {"pairs": PAIRS, "metrics": "map", "points": 3, "fit": RIDGE, **scene.asked}
    alone = adaptive_curves(*given, serving=serving, **asked)["map"]
    among = serving_curves(*given, **asked)[serving]["map"]
    assert np.array_equal(alone.per_query, among.per_query)
    assert alone.serving == among.serving


def test_the_map_is_learned_once_for_all_ways():
    """Refits are what costs: several ways to serve need no more of them than one."""
    scene, learned = Scene(), []

    def learn(rows):
        learned.append(len(rows))
        alignment = scene.alignment(rows)
        return LearnedMap(alignment(scene.old), alignment.reference)

    given = (scene.old, scene.new, scene.labels)
    asked = {"pairs": PAIRS, "metrics": "map", "points": 5, "learn": learn, **scene.asked}
    serving_curves(*given, servings=("aligned",), **asked)
    once, learned = learned, []
    serving_curves(*given, **asked)
    assert learned == once


def test_points_may_be_given_as_fractions():
    """Also where the map is learned again."""
    scene = Scene()
    points = [0.0, 0.3, 1.0]
    curves = adaptive_curves(
        scene.old, scene.new, scene.labels, pairs=PAIRS, metrics="map", points=points, fit=RIDGE
    )
    assert curves["map"].fractions.tolist() == points


def test_items_that_ask_themselves_are_never_their_own_answer():
    """Without queries of their own all ways leave an item out of its ranking."""
    scene = Scene(items=120)
    curves = serving_curves(
        scene.old, scene.new, scene.labels, pairs=PAIRS, metrics="cmc@1", points=2, fit=RIDGE
    )
    near = distances(scene.old, scene.old, "l2") + np.diag(np.full(120, np.inf))
    right = scene.labels[near.argmin(axis=1)] == scene.labels
    assert curves["old"]["cmc@1"].end == pytest.approx(right.mean())
    assert all(each["cmc@1"].per_query.shape == (120, 2) for each in curves.values())


def test_without_judgements_the_evidence_is_agreement_among_a_sample():
    """A gallery that is asked by itself has cross-fitted halves by the number of its item."""
    scene = Scene(items=700)
    curves = serving_curves(
        scene.old, scene.new, pairs=PAIRS, metrics="agreement@5", points=3, fit=RIDGE
    )
    auto = {serving: each["agreement@5"] for serving, each in curves.items()}
    assert auto["auto"].end == pytest.approx(auto["aligned"].end) == 1
    assert auto["auto"].serving[-1] == "aligned"
    for point in range(3):
        options = [auto[way].per_query[:, point] for way in WAYS]
        for half in (0, 1):
            served = auto["auto"].per_query[half::2, point]
            assert any(np.array_equal(served, each[half::2]) for each in options)


def test_what_a_way_needs_is_asked_for_by_name():
    """Old vectors of gallery and queries, a fusion, and reference pairs of a map."""
    scene = Scene()
    alignment = scene.alignment(np.arange(PAIRS))
    aligned = alignment(scene.old)
    given = {"policy": "sigma", "metrics": "map", "points": 2}
    with pytest.raises(InputError, match="Serving 'old' needs the old model: give the old vectors"):
        backfill_curves(aligned, scene.new, scene.labels, serving="old", **given)
    with pytest.raises(InputError, match="Serving 'both' needs a fusion"):
        backfill_curves(aligned, scene.new, scene.labels, serving="both", old=scene.old, **given)
    with pytest.raises(InputError, match="Unknown way to serve 'new'"):
        backfill_curves(aligned, scene.new, scene.labels, serving="new", **given)
    with pytest.raises(InputError, match="needs reference pairs"):
        adaptive_curves(
            scene.old, scene.new, scene.labels, pairs=PAIRS, metrics="map", points=2,
            serving="both", learn=lambda rows: aligned,
        )  # fmt: skip


def test_a_curve_keeps_what_served(tmp_path):
    """In JSON too; a curve needs a way to serve for each point, or none."""
    curve = Curve("map", [0, 1], [0.5, 0.75], serving=("both", "aligned"))
    write_curves([curve], tmp_path / "curves.json")
    assert read_curves(tmp_path / "curves.json")[0].serving == ("both", "aligned")
    assert Curve("map", [0, 1], [0.5, 0.75]).serving is None
    with pytest.raises(ShapeError, match="one way to serve for each fraction, got 1 for 2"):
        Curve("map", [0, 1], [0.5, 0.75], serving=("both",))
    with pytest.raises(InputError, match="Unknown way to serve 'auto'"):
        Curve("map", [0, 1], [0.5, 0.75], serving=("auto", "auto"))


def test_evidence_is_kept_as_plain_numbers():
    """Values of each way and how many queries; those of each query are not kept."""
    evidence = Evidence.of("ndcg@10", {"old": [0.5, 1.0], "aligned": [0.0, 0.5]})
    again = Evidence.from_json(evidence.to_json())
    assert (again.metric, again.queries, again.values) == (
        "ndcg@10", 2, {"old": 0.75, "aligned": 0.25},
    )  # fmt: skip
    assert again.per_query is None
    with pytest.raises(ShapeError, match="the same queries for each way"):
        Evidence.of("map", {"old": [0.5], "aligned": [0.5, 1.0]})
    with pytest.raises(InputError, match="This is not evidence"):
        Evidence.from_json({"metric": "map"})


@pytest.mark.parametrize(
    ("old", "aligned", "both", "chosen"),
    [
        (0.5, 0.4, 0.49, "old"),
        (0.5, 0.4, 0.51, "both"),
        (0.5, 0.6, 0.49, "aligned"),
        (0.5, 0.6, 0.604, "aligned"),
        (0.5, 0.6, 0.606, "both"),
        (0.602, 0.6, 0.604, "both"),
        (0.5, 0.5, 0.5, "aligned"),
    ],
)
def test_nothing_that_measured_worse_than_the_old_search_serves(old, aligned, both, chosen):
    """One model goes before two where it is at most half a point worse."""
    values = {"old": old, "aligned": aligned, "both": both}
    assert choose_serving(Evidence("ndcg@10", 100, values)) == chosen


def test_few_queries_are_not_enough_to_do_without_the_old_model():
    """The same means: twelve queries that differ widely speak for both, three thousand for one."""
    few = {"old": np.zeros(12), "aligned": np.tile([1.0, 0.04], 6), "both": np.full(12, 0.5)}
    assert choose_serving(Evidence.of("map", few)) == "both"
    many = {way: np.tile(each, 250) for way, each in few.items()}
    assert choose_serving(Evidence.of("map", many)) == "aligned"


def test_agreement_alone_lets_the_new_model_serve_alone_only_near_the_end():
    """It says how much is as it will be, not how good that is."""
    for alone, chosen in ((0.89, "both"), (0.9, "aligned")):
        values = {"old": 0.3, "aligned": alone, "both": 0.7}
        assert choose_serving(Evidence("agreement@10", 100, values)) == chosen
    worse = {"old": 0.75, "aligned": 0.8, "both": 0.7}
    assert choose_serving(Evidence("agreement@10", 100, worse)) == "aligned"


def test_without_queries_or_ways_the_old_search_stays():
    """No evidence, no change; ways that were not measured are not chosen."""
    assert choose_serving(Evidence("map", 0, {"old": 0.0, "aligned": 0.0})) == "old"
    assert choose_serving(Evidence("map", 9, {"old": 0.5, "aligned": 0.4})) == "old"
    assert choose_serving(Evidence("map", 9, {"aligned": 0.4})) == "aligned"
    assert choose_serving(Evidence("map", 9, {"old": 0.5, "both": 0.6})) == "both"


def test_judgements_are_evidence_too():
    """Relevance in place of labels."""
    scene = Scene()
    judged = Relevance.from_labels(scene.labels, scene.query_labels)
    asked = {key: value for key, value in scene.asked.items() if key != "query_labels"}
    given = {"pairs": PAIRS, "metrics": "map", "points": 3, "fit": RIDGE}
    by_labels = serving_curves(scene.old, scene.new, scene.labels, **given, **scene.asked)
    by_judgements = serving_curves(scene.old, scene.new, judged, **given, **asked)
    for serving, each in by_labels.items():
        assert np.array_equal(each["map"].values, by_judgements[serving]["map"].values)
