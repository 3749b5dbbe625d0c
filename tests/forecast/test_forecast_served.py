"""Forecasts of what readers see when the old model answers too, against slow versions and truth."""

import numpy as np
import pytest

from fastfill.align import FitOptions
from fastfill.errors import InputError, ShapeError
from fastfill.evaluate import backfill_curves
from fastfill.features import Features, Pairs
from fastfill.forecast import Forecast, Rehearsal
from fastfill.order import Order, PolicyInput, arrange

ITEMS, KNOWN, ASKED = 800, 120, 60
AGREEMENT = "agreement@10"


def world(seed=0):
    """Items and queries of classes under both models, which see different parts of them."""
    rng = np.random.default_rng(seed)
    rows = ITEMS + ASKED
    labels = rng.integers(0, 10, rows)
    hidden = 1.5 * rng.normal(size=(10, 12))[labels] + rng.normal(size=(rows, 12))
    new = (hidden[:, 2:] + 0.2 * rng.normal(size=(rows, 10))).astype(np.float32)
    old = (hidden[:, :8] @ rng.normal(size=(8, 8))).astype(np.float32)
    return old, new, labels


@pytest.fixture(scope="module")
def rehearsal():
    """Real queries, embedded by both models."""
    old, new, labels = world()
    pairs = Pairs(Features(old[:KNOWN]), Features(new[:KNOWN], labels=labels[:KNOWN]))
    return Rehearsal(
        pairs, ITEMS, fit=FitOptions(method="ridge"), gallery=old[KNOWN:ITEMS],
        gallery_labels=labels[KNOWN:ITEMS], queries_old=Features(old[ITEMS:]),
        queries=Features(new[ITEMS:], labels=labels[ITEMS:]),
    )  # fmt: skip


def truth(rehearsal, metric, serving, labelled=False):
    """The curve of the whole gallery, measured: the pairs first, then at random."""
    old, new, labels = world()
    aligned = rehearsal.alignment(old[:ITEMS])
    scores = np.array(arrange("random", PolicyInput(aligned, seed=3)).scores)
    scores[:KNOWN] = scores.max() + 1
    return backfill_curves(
        aligned, new[:ITEMS], labels[:ITEMS] if labelled else None, metrics=metric,
        policy=Order.by_score(scores), queries=new[ITEMS:], queries_old=old[ITEMS:],
        query_labels=labels[ITEMS:] if labelled else None, old=old[:ITEMS], serving=serving,
        fusion=rehearsal._served("both").fusion,
    )[metric].values  # fmt: skip


def test_both_models_rank_items_by_the_fusion_s_own_scores(rehearsal):
    """Item by item the scores are those that a search by both models gives."""
    old, new, _ = world()
    served, every = rehearsal._served("both"), np.arange(ITEMS)
    ranking, asked = served.of_query(7, rooted=True), ITEMS + 7
    for added, rank, is_new in (
        (rehearsal.alignment(old[:ITEMS]).vectors, ranking.of_aligned, False),
        (new[:ITEMS], ranking.of_new, True),
    ):
        scores = served.fusion.scores(old[asked], new[asked], old[:ITEMS], added, is_new)
        roots = np.linalg.norm(added - new[asked], axis=1).astype(np.float64)
        np.testing.assert_allclose(rank(every, roots), -scores, atol=1e-4)


@pytest.mark.parametrize(("serving", "error"), [("both", 0.04), ("old", 0.1)])
def test_agreement_is_forecast_as_it_is_served(rehearsal, serving, error):
    """Near the true curve and inside the band, and its quality is relative to the new model."""
    forecast = rehearsal.forecast(AGREEMENT, "random", serving=serving)
    true = truth(rehearsal, AGREEMENT, serving)
    assert np.abs(forecast.values - true).mean() < error
    assert ((true >= forecast.lower) & (true <= forecast.upper)).mean() >= 0.8
    assert forecast.quality[-1] == pytest.approx(forecast.values[-1])
    assert forecast.reached(0.999).middle == 1.0
    if serving == "old":
        assert forecast.values == pytest.approx(np.full(21, forecast.values[0]))


def test_a_metric_with_labels_starts_where_both_models_are_now(rehearsal):
    """Before anything is new every score is known; later ones lie within twice the band."""
    forecast = rehearsal.forecast("map", "random", serving="both")
    true = truth(rehearsal, "map", "both", labelled=True)
    assert forecast.values[0] == pytest.approx(true[0], abs=1e-6)
    assert (np.abs(forecast.values - true) <= forecast.upper - forecast.lower).all()
    alone = rehearsal.forecast("map", "random")
    assert forecast.quality == pytest.approx(forecast.values / alone.values[-1])


def test_pairs_play_queries_of_both_models_where_there_are_none():
    """Items that ask are found by the old model as well."""
    old, new, _ = world()
    pairs = Pairs(Features(old[:KNOWN]), Features(new[:KNOWN]))
    made = Forecast.from_pairs(
        pairs, ITEMS, fit=FitOptions(method="ridge"), gallery=old[KNOWN:ITEMS], serving="both"
    )
    assert made.holds_for == "queries that are like the items"
    assert made.values[0] < made.values[-1] < 1
    assert Forecast.from_json(made.to_json()).serving == "both"
    assert Forecast.from_json(made.to_json()).quality == pytest.approx(made.quality, abs=1e-3)


def test_a_sample_of_the_gallery_is_not_to_be_trusted():
    """Its neighbours are not those of all items, and the forecast says so."""
    old, new, _ = world()
    pairs = Pairs(Features(old[:KNOWN]), Features(new[:KNOWN]))
    given = {"fit": FitOptions(method="ridge"), "serving": "both"}
    made = Forecast.from_pairs(pairs, ITEMS, gallery=old[KNOWN:300], **given)
    assert "Only 300 of 800 items are known" in made.doubt
    with pytest.raises(InputError, match=r"needs the old vectors of the other items"):
        Forecast.from_pairs(pairs, ITEMS, **given)


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"queries": 10}, InputError, "give the queries under it too"),
        ({"queries_old": 8}, InputError, "need those under the new"),
        ({"queries": 10, "queries_old": 5}, ShapeError, "Embed the queries by the old model"),
    ],
)
def test_queries_of_one_model_are_refused(given, error, match):
    """Both models answer the same queries, each by its own vectors."""
    old, new, _ = world()
    pairs = Pairs(Features(old[:50]), Features(new[:50]))
    asked = {name: Features(np.ones((3, dim))) for name, dim in given.items()}
    with pytest.raises(error, match=match):
        Forecast.from_pairs(pairs, ITEMS, gallery=old[50:ITEMS], serving="both", **asked)
