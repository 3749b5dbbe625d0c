"""Forecasts in the middle of a migration: more pairs teach, the random ones alone are queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastfill.align import Aligned, Alignment, FitOptions
from fastfill.errors import ShapeError
from fastfill.features import Features, Pairs
from fastfill.forecast import Forecast
from fastfill.forecast.known_gallery import KnownGallery, QueryView
from fastfill.forecast.labelled import backfill_steps
from fastfill.metrics import Relevance, as_metrics, gallery_scores

ROWS, KINDS, QUERIES, TAUGHT = 900, 6, 80, 500
RNG = np.random.default_rng(0)
LABELS = RNG.integers(KINDS, size=ROWS)
NEW = (RNG.standard_normal((KINDS, 16))[LABELS] + 0.8 * RNG.standard_normal((ROWS, 16))).astype(
    "f4"
)
OLD = (NEW @ RNG.standard_normal((16, 40)) + 2 * RNG.standard_normal((ROWS, 40))).astype("f4")


def pairs(first: int, last: int) -> Pairs:
    """Some of the items under both models."""
    rows = slice(first, last)
    return Pairs(Features(OLD[rows]), Features(NEW[rows], labels=LABELS[rows]))


def forecast(metric: str, **more: Any) -> Forecast:
    """From the first items as queries."""
    return Forecast.from_pairs(
        pairs(0, QUERIES), ROWS, metric=metric, fit=FitOptions(method="ridge"), policy="random",
        gallery=OLD[QUERIES:], gallery_labels=LABELS[QUERIES:], **more,
    )  # fmt: skip


def test_a_map_that_was_taught_more_agrees_more() -> None:
    """The start of the curve is that of a better map, its number of queries the same."""
    few = forecast("agreement@10")
    more = forecast("agreement@10", taught=pairs(QUERIES, QUERIES + TAUGHT))
    assert more.values[0] > few.values[0] + 0.05
    assert more.pairs == few.pairs == QUERIES


def test_the_start_is_that_of_the_map_of_all_pairs() -> None:
    """With labels, what is forecast is what the map of queries and taught pairs retrieves."""
    more = forecast("map", taught=pairs(QUERIES, QUERIES + TAUGHT))
    alignment = Alignment.fit(pairs(0, QUERIES + TAUGHT), method="ridge")
    scores = gallery_scores(
        NEW, alignment(OLD).vectors, Relevance.from_labels(LABELS), as_metrics("map")
    )
    assert more.values[0] == pytest.approx(scores.values["map"].mean(), abs=0.05)


def test_nothing_more_to_teach_changes_nothing() -> None:
    """Without other pairs and other new items the forecast is that of the pairs."""
    plain, none = forecast("map"), forecast("map", done=np.zeros(ROWS - QUERIES, dtype=bool))
    np.testing.assert_array_equal(plain.values, none.values)


def test_items_that_are_new_already_come_first() -> None:
    """No item becomes new before those that are."""
    done = RNG.random(ROWS - QUERIES) < 0.4
    gallery = KnownGallery.of(pairs(0, QUERIES), ROWS, OLD[QUERIES:], None, "l2", done)
    aligned = Aligned(NEW, RNG.random(ROWS).astype(np.float32))
    nothing = np.zeros((0, 0), dtype=np.float32)
    held, kept = np.arange(5), np.arange(5, QUERIES)
    view = QueryView(held, kept, aligned, nothing, nothing, held, None, nothing, nothing)
    steps = backfill_steps(gallery, view, np.arange(ROWS), "sigma", 0)
    first = np.r_[np.ones(QUERIES, dtype=bool), done]
    assert steps[first].max() <= steps[~first].min()


def test_one_mark_for_each_item() -> None:
    """Marks of another number of items are refused."""
    with pytest.raises(ShapeError, match="done"):
        forecast("map", done=[True])
