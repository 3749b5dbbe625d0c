"""Forecasts of backfilling curves: the value, its parts against slow versions, a known truth."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfill.align import Alignment, FitOptions
from fastfill.errors import FastFillError, InputError, LabelError, ShapeError
from fastfill.evaluate import backfill_curves
from fastfill.features import Features, Pairs
from fastfill.forecast import Forecast, Rehearsal, sampled_distances
from fastfill.forecast.agreement import carry_over, effective
from fastfill.forecast.agreement_by_folds import FoldedPairs
from fastfill.forecast.labelled import score_ranks
from fastfill.forecast.query_weights import balanced, label_weights, sampled_precision
from fastfill.forecast.sampled_distances import DistanceSampler, DistanceSamplers
from fastfill.forecast.staged_ranks import staged_ranks
from fastfill.metrics import Relevance, as_metric, as_metrics, curve_scores, gallery_scores
from fastfill.order import Order, PolicyInput, arrange

ITEMS, KNOWN = 1_500, 300
RIDGE = FitOptions(method="ridge")


def scene(seed=0, items=ITEMS, classes=12, dim=10):
    """A gallery of classes under two models; the old one sees half of what the new one sees."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, items)
    new = 1.6 * rng.normal(size=(classes, dim))[labels] + rng.normal(size=(items, dim))
    old = new[:, : dim - 3] @ rng.normal(size=(dim - 3, dim - 2)) + 0.3 * rng.normal(
        size=(items, dim - 2)
    )
    return old.astype(np.float32), new.astype(np.float32), labels


def known_pairs(old, new, labels, known=KNOWN):
    """The first items as pairs."""
    return Pairs(Features(old[:known]), Features(new[:known], labels=labels[:known]))


@pytest.fixture(scope="module", params=["ridge", "kernel"])
def rehearsal(request):
    """One rehearsal of the scene, for forecasts of several metrics: by folds, and each alone."""
    old, new, labels = scene()
    return Rehearsal(
        known_pairs(old, new, labels), ITEMS, fit=FitOptions(method=request.param),
        gallery=old[KNOWN:], gallery_labels=labels[KNOWN:],
    )  # fmt: skip


def truth(rehearsal, metric, policy):
    """The true curve of the scene: the pairs first, then by the policy."""
    old, new, labels = scene()
    aligned = rehearsal.alignment(old)
    scores = np.array(arrange(policy, PolicyInput(aligned, seed=3)).scores)
    scores[:KNOWN] = scores.max() + 1
    order = Order.by_score(scores)
    return backfill_curves(aligned, new, labels, policy=order, metrics=metric)[metric].values


@pytest.mark.parametrize("policy", ["sigma", "random"])
@pytest.mark.parametrize(("metric", "error"), [("map", 0.035), ("cmc@1", 0.05), ("ndcg@10", 0.06)])
def test_a_labelled_curve_is_forecast(rehearsal, metric, error, policy):
    """The forecast lies near the true curve, and that within twice its band."""
    found, true = rehearsal.forecast(metric, policy), truth(rehearsal, metric, policy)
    assert np.abs(found.values - true).mean() < error
    assert (np.abs(found.values - true) <= found.upper - found.lower).all()


@pytest.mark.parametrize("policy", ["sigma", "random"])
def test_agreement_is_forecast_without_labels(rehearsal, policy):
    """The pairs as a small gallery show the agreement of neighbours; at the end all agree."""
    found, true = (
        rehearsal.forecast("agreement@10", policy),
        truth(rehearsal, "agreement@10", policy),
    )
    assert np.abs(found.values - true).mean() < 0.06
    assert found.values[-1] == pytest.approx(1.0)


def test_the_same_seed_gives_the_same_forecast():
    """Nothing but the seed is random."""
    old, new, labels = scene(items=300)
    pairs = known_pairs(old, new, labels, 100)
    given = {"fit": RIDGE, "gallery": old[100:], "gallery_labels": labels[100:]}
    one, two, other = (
        Forecast.from_pairs(pairs, 300, metric="map", seed=seed, **given) for seed in (1, 1, 2)
    )
    assert np.array_equal(one.values, two.values)
    assert np.array_equal(one.lower, two.lower)
    assert not np.array_equal(one.values, other.values)


def test_a_sample_of_the_gallery_or_none_widens_the_band():
    """The less of the gallery is known, the less is promised."""
    old, new, labels = scene()
    pairs = known_pairs(old, new, labels)
    wide = []
    for last in (ITEMS, KNOWN + 300, KNOWN):
        part = old[KNOWN:last] if last > KNOWN else None
        named = labels[KNOWN:last] if last > KNOWN else None
        found = Forecast.from_pairs(
            pairs, ITEMS, metric="map", fit=RIDGE, gallery=part, gallery_labels=named
        )
        wide.append(float((found.upper - found.lower).mean()))
    assert wide[0] < wide[1] < wide[2]


def test_refits_leave_the_upper_end_open(rehearsal):
    """From the first refit on, the band reaches up to what all new items give."""
    fixed = rehearsal.forecast("map", "sigma")
    refitted = rehearsal.forecast("map", "sigma", refits=[0.3, 0.6])
    later = fixed.fractions >= 0.3
    assert np.array_equal(fixed.lower, refitted.lower)
    assert np.array_equal(fixed.upper[~later], refitted.upper[~later])
    assert (refitted.upper[later] >= fixed.upper[-1]).all()


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 6))
def test_staged_ranks_are_those_of_each_stage_alone(seed, n, stages):
    """Every stage counted by itself gives the same ranks, ties included."""
    rng = np.random.default_rng(seed)
    before, after = rng.integers(0, 8, (2, n)).astype(float)
    steps = rng.integers(0, stages + 1, n)
    relevant = rng.permutation(n)[: rng.integers(1, n + 1)]
    ranks = staged_ranks(before, after, steps, relevant, stages)
    for stage in range(stages):
        now = np.where(steps <= stage, after, before)
        slow = sorted(int((now <= now[g]).sum()) for g in relevant)
        assert ranks[stage].tolist() == slow


@pytest.mark.parametrize("metric", ["map", "cmc@1", "cmc@5", "mrr", "mrr@2", "recall@7", "ndcg@5"])
def test_scores_of_ranks_are_those_of_the_metrics(metric):
    """The metrics from ranks are the ones that are computed from vectors."""
    rng = np.random.default_rng(4)
    query, gallery = rng.normal(size=(1, 3)).astype("f"), rng.normal(size=(40, 3)).astype("f")
    labels = rng.integers(0, 3, 40)
    relevance = Relevance.from_labels(labels, [1])
    expected = curve_scores(
        query, gallery, gallery, np.arange(40), np.array([0]), relevance, as_metrics(metric)
    ).values[metric]
    far = np.square(gallery - query).sum(axis=1).astype(float)
    ranks = staged_ranks(far, far, np.zeros(40, dtype=np.int64), np.flatnonzero(labels == 1), 1)
    assert score_ranks(as_metric(metric), ranks)[0] == pytest.approx(float(expected[0, 0]))


def test_sampled_distances_follow_the_examples():
    """Samples at a distance have the mean of the examples around it."""
    rng = np.random.default_rng(0)
    near = rng.uniform(1, 3, 4_000)
    sampler = DistanceSampler(near, 0.5 * near + rng.normal(0, 0.1, 4_000))
    sampled = sampler.sample(np.full(5_000, 2.0), rng)
    assert sampled.mean() == pytest.approx(1.0, abs=0.05)
    assert sampled.std() == pytest.approx(0.1, abs=0.03)


def test_average_precision_of_a_sample_is_right_in_the_mean():
    """Few known items estimate the average precision of the whole gallery without much bias."""
    rng = np.random.default_rng(1)
    exact, sampled = [], []
    for _ in range(400):
        near, far = rng.normal(1.0, 0.5, 60), rng.normal(2.5, 0.6, 1_500)
        order = np.argsort(np.concatenate([near, far]))
        places = np.flatnonzero(order < 60) + 1
        exact.append((np.arange(1, 61) / places).mean())
        sampled.append(sampled_precision(near[:4], far[:100], (60, 1_500), rng))
    assert np.mean(sampled) == pytest.approx(np.mean(exact), abs=0.02)


def test_an_easy_sample_is_balanced():
    """Scores of a sample that is easier than usual are brought down to the usual ones."""
    rng = np.random.default_rng(2)
    ease = rng.random(5_000)
    scores = np.stack([0.5 * ease, 0.2 + 0.3 * ease], axis=1) + rng.normal(0, 0.1, (5_000, 2))
    easy = np.argsort(-ease)[:2_500]
    found = balanced(scores[easy], ease[easy], float(ease.mean()), np.ones(2_500)).mean(axis=0)
    assert found == pytest.approx([0.25, 0.35], abs=0.02)


def test_a_label_of_too_many_queries_counts_less():
    """Weighted, labels have nearly the shares of the gallery, the nearer the more queries."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 4, 10_000)
    asked = np.concatenate(
        [np.flatnonzero(labels == kind)[:count] for kind, count in enumerate((100, 200, 300, 0))]
    )
    weights = label_weights(labels, asked)
    shares = np.array([weights[labels[asked] == kind].sum() for kind in range(3)]) / weights.sum()
    assert shares == pytest.approx([1 / 3] * 3, abs=0.01)
    few = label_weights(labels, np.flatnonzero(labels < 2)[:3])
    assert np.abs(np.log(few)).max() < 0.5


def test_doubtful_items_are_sampled_from_doubtful_ones(rehearsal, monkeypatch):
    """Where enough pairs have one label, items are sampled from pairs of like predicted errors."""
    monkeypatch.setattr(sampled_distances, "LEAST_COUPLES", 100)
    samplers = DistanceSamplers(rehearsal.gallery, rehearsal.views)
    assert len(samplers.edges) == sampled_distances.GROUPS - 1
    counts = np.bincount(samplers.group(rehearsal.views[0].aligned.variance))
    assert (counts > 0.1 * counts.sum()).all()
    couples = sum(len(view.held) * (len(view.held) - 1) for view in rehearsal.views)
    assert sum(len(sampler.near) for sampler in samplers.of.values()) == couples
    monkeypatch.setattr(sampled_distances, "LEAST_COUPLES", 10**9)
    assert not len(DistanceSamplers(rehearsal.gallery, rehearsal.views).edges)


def test_errors_are_shrunk_to_those_of_a_map_of_all_pairs():
    """More pairs make a better map: the small gallery makes errors as small as it would."""
    old, new, labels = scene(items=200)
    pairs = known_pairs(old, new, labels, 200)
    like = Alignment.fit(pairs, method="ridge")
    folded = FoldedPairs(pairs, like, "l2", RIDGE)
    assert 0.7 < folded.shrinkage <= 1
    held = np.concatenate([folded.folds[0], folded.folds[1]])
    seen, moved = (
        folded.aligned[0, 1].h,
        folded.as_if_of_all(folded.aligned[0, 1].h, folded.aligned[0, 1].variance),
    )
    errors = [np.linalg.norm((side - new)[held]) for side in (moved, seen)]
    assert errors[0] <= errors[1]
    lengths = [np.linalg.norm(side, axis=1) for side in (moved, seen)]
    if like.scaling.length is not None:
        assert lengths[0] == pytest.approx(lengths[1], rel=1e-4)


def test_a_line_over_the_logarithm_of_k_is_carried_over():
    """Agreements that lie on such a line are read off it exactly, at every fraction."""
    fractions = np.linspace(0, 1, 5)
    sizes = [1, 2, 3, 4]
    logs = np.log(effective(np.array(sizes, dtype=float), fractions))
    values = 0.3 + 0.1 * logs
    weights = carry_over(sizes, 0.5, fractions)
    assert (values * weights).sum(axis=1) == pytest.approx(0.3 + 0.1 * np.log(0.5))


def test_a_forecast_survives_json(rehearsal):
    """What is written as JSON is read as the same forecast."""
    one = rehearsal.forecast("map")
    two = Forecast.from_json(json.loads(json.dumps(one.to_json())))
    assert np.array_equal(one.values, two.values)
    assert one.reached(0.9).middle == two.reached(0.9).middle
    assert np.array_equal(np.round(one.draws[:100], 4), two.draws)


@pytest.mark.parametrize("method", ["ridge", "kernel"])
def test_agreement_through_a_map_that_explains_little_is_not_to_be_trusted(method):
    """The forecast says why; with a map that explains much, and with labels, it is trusted."""
    rng = np.random.default_rng(0)
    old, new, labels = scene()
    noisy = (new + 2.5 * rng.normal(size=new.shape)).astype(np.float32)
    fit = FitOptions(method=method)
    for vectors, trusted in ((new, True), (noisy, False)):
        pairs = known_pairs(old, vectors, labels, 150)
        rest = {"gallery": old[KNOWN:], "gallery_labels": labels[KNOWN:]}
        forecast = Forecast.from_pairs(pairs, ITEMS, fit=fit, **rest)
        assert forecast.trusted == trusted
        assert ("The map explains" in forecast.doubt) is not trusted
        assert Forecast.from_json(forecast.to_json()).doubt == forecast.doubt
    assert Forecast.from_pairs(pairs, ITEMS, metric="map", fit=fit, **rest).trusted


def test_a_forecast_says_whose_searches_it_is_about():
    """Those of the items, or of as many queries as were given; also after JSON."""
    old, new, labels = scene()
    pairs = known_pairs(old, new, labels)
    items = Forecast.from_pairs(pairs, ITEMS, fit=RIDGE)
    users = Forecast.from_pairs(pairs, ITEMS, fit=RIDGE, queries=Features(new[-50:]))
    assert (items.queries, items.holds_for) == (0, "queries that are like the items")
    again = Forecast.from_json(users.to_json())
    assert (again.queries, again.holds_for) == (50, "queries like those given")


def test_a_quality_is_reached_for_good():
    """A curve that rises above the target and falls below it again has not reached it."""
    values = [0.5, 0.96, 0.9, 0.94, 1.0]
    forecast = Forecast("map", [0, 0.25, 0.5, 0.75, 1], values, values, values, 100, 20)
    assert forecast.reached(0.95).middle == pytest.approx(0.75 + 0.25 / 6)
    assert forecast.reached(0.4).middle == 0
    assert forecast.reached(1.0).middle == 1


def test_reached_has_the_range_of_the_draws():
    """The range of the fraction is that of the curves that are as likely."""
    draws = [[0.5, 1.0, 1.0], [0.5, 0.5, 1.0]] * 50
    forecast = Forecast(
        "map", [0, 0.5, 1], [0.5, 0.8, 1], [0.5, 0.5, 1], [0.5, 1, 1], 100, 20, draws
    )
    low, middle, high = forecast.reached(0.9)
    assert low == pytest.approx(0.4)
    assert low < middle < high
    assert high == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"metric": "map", "gallery_labels": None}, LabelError),
        ({"metric": "nothing"}, InputError),
        ({"items": 100}, InputError),
        ({"gallery": np.ones((9, 3))}, ShapeError),
    ],
)
def test_what_cannot_be_forecast_is_refused(change, error):
    """Missing labels, unknown metrics, too few items and foreign vectors are named."""
    old, new, labels = scene(items=200)
    given = {"items": 200, "gallery": old[100:], "gallery_labels": labels[100:]} | change
    with pytest.raises(error):
        Forecast.from_pairs(known_pairs(old, new, labels, 100), fit=RIDGE, **given)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"values": [0.1]}, ShapeError),
        ({"fractions": [0.5, 0.2]}, InputError),
        ({"draws": [[0.1]]}, ShapeError),
        ({"metric": "nothing"}, InputError),
    ],
)
def test_malformed_forecasts_are_refused(fields, error):
    """A forecast has one number of each kind for each fraction."""
    given = {
        "metric": "map", "fractions": [0, 1], "values": [0.4, 0.7], "lower": [0.3, 0.6],
        "upper": [0.5, 0.8], "items": 10, "pairs": 5,
    } | fields  # fmt: skip
    with pytest.raises(error):
        Forecast(**given)


def test_questions_outside_the_curve_are_refused():
    """Fractions and qualities lie between 0 and 1; JSON of something else is no forecast."""
    forecast = Forecast("map", [0, 1], [0.4, 0.7], [0.3, 0.6], [0.5, 0.8], 10, 5)
    with pytest.raises(InputError, match="outside the forecast"):
        forecast.at(1.5)
    with pytest.raises(InputError, match="between 0 and 1"):
        forecast.reached(95)
    with pytest.raises(InputError, match="not a forecast"):
        Forecast.from_json({"metric": "map"})


def test_queries_of_users_take_the_place_of_the_pairs():
    """Where users ask for something else than items, the start is what they find."""
    old, new, labels = scene(items=500)
    rng = np.random.default_rng(3)
    centres = np.stack([new[labels == c].mean(0) for c in np.unique(labels)])
    kinds = rng.integers(len(centres), size=200)
    asked = Features(centres[kinds] + 0.01 * rng.normal(size=(200, new.shape[1])), labels=kinds)
    pairs = known_pairs(old, new, labels, 150)
    rehearsal = Rehearsal(
        pairs, 500, fit=RIDGE, gallery=old[150:], gallery_labels=labels[150:], queries=asked
    )
    relevance = Relevance.from_labels(labels, query_labels=kinds)
    truth = gallery_scores(
        asked.vectors, rehearsal.alignment(old).vectors, relevance, as_metrics("map")
    )
    found = rehearsal.forecast("map")
    assert found.values[0] == pytest.approx(float(truth.values["map"].mean()), abs=1e-6)
    assert (
        found.values[0]
        > Rehearsal(pairs, 500, fit=RIDGE, gallery=old[150:], gallery_labels=labels[150:])
        .forecast("map")
        .values[0]
    )


def test_the_agreement_of_users_is_that_of_their_queries():
    """Queries need no labels there; those between two items agree less than the items do."""
    old, new, labels = scene(items=500)
    pairs = known_pairs(old, new, labels, 150)
    rng = np.random.default_rng(3)
    usual, far = (
        Forecast.from_pairs(
            pairs, 500, fit=RIDGE, gallery=old[150:], policy="random", queries=Features(asked)
        )
        for asked in (
            new[150:],
            new[150:].mean(0) + 0.1 * rng.normal(size=(200, new.shape[1])),
        )
    )
    alone = Forecast.from_pairs(pairs, 500, fit=RIDGE, gallery=old[150:], policy="random")
    assert np.abs(usual.values - alone.values).mean() < 0.03
    assert far.values[0] < usual.values[0] - 0.05
    assert far.values[-1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("queries", "match"),
    [
        (Features(np.ones((3, 10)), name="asked.npy"), "asked.npy: the queries have no labels"),
        (Features(np.ones((3, 99)), labels=[0, 1, 2]), "Embed the queries by the new model"),
        (Features(np.ones((3, 10)), labels=["a", "b", "c"]), "both as numbers or both as texts"),
        (Features(np.ones((3, 10)), labels=[97, 98, 99]), "No query has the label of an item"),
    ],
)
def test_queries_that_cannot_be_used_are_refused(queries, match):
    """In one sentence that says what to give."""
    old, new, labels = scene(items=200)
    with pytest.raises(FastFillError, match=match):
        Forecast.from_pairs(
            known_pairs(old, new, labels, 100), 200, fit=RIDGE, gallery=old[100:],
            gallery_labels=labels[100:], queries=queries, metric="map",
        )  # fmt: skip
