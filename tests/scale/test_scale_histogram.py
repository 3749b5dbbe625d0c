"""Ranks from histograms: a permutation, exact up to a bucket, however rows are cut in pieces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfill.errors import OrderError
from fastfill.order import Order
from fastfill.scale.histogram import ScoreHistogram, bucket_of, first_ranks, ranks_in_piece

SCORES = st.lists(
    st.one_of(
        st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, 1.0, 1.0 + 1e-9, 1.0 + 1e-3, 1e-300])
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=150)
@given(SCORES, st.lists(st.integers(0, 60), max_size=4))
def test_ranks_are_the_exact_order_up_to_a_bucket(scores: list[float], cuts: list[int]) -> None:
    """Each rank once; higher buckets first; within a piece exactly by score."""
    values = np.array(scores)
    parts = [part for part in np.split(values, sorted(cuts)) if len(part)]
    first = first_ranks([ScoreHistogram.of(part) for part in parts])
    pieces = [ranks_in_piece(part, start) for part, start in zip(parts, first, strict=True)]
    ranks = np.concatenate(pieces)
    exact = Order.by_score(values)
    assert np.array_equal(np.sort(ranks), np.arange(len(values)))
    buckets = bucket_of(values)
    assert np.array_equal(buckets[np.argsort(ranks)], buckets[exact.positions])
    for part, mine in zip(parts, pieces, strict=True):
        assert np.array_equal(np.argsort(mine), np.argsort(-part, kind="stable"))


def test_a_bucket_is_narrow() -> None:
    """Scores of one bucket differ by at most 2⁻¹² of the smaller one."""
    scores = np.sort(np.random.default_rng(0).lognormal(0, 3, size=20_000))
    buckets = bucket_of(scores)
    for bucket in np.unique(buckets)[:2000]:
        members = scores[buckets == bucket]
        assert members[-1] - members[0] <= members[0] * 2.0**-12


def test_histograms_add_up() -> None:
    """The sum of the parts is that of the whole."""
    scores = np.random.default_rng(0).random(1000)
    whole = ScoreHistogram.of(scores)
    total = ScoreHistogram.of(scores[:300]) + ScoreHistogram.of(scores[300:])
    assert np.array_equal(whole.buckets, total.buckets)
    assert np.array_equal(whole.counts, total.counts)
    assert total.rows == 1000


def test_scores_that_are_no_numbers_are_refused() -> None:
    """The rows are named."""
    with pytest.raises(OrderError, match="rows 1 are NaN"):
        ScoreHistogram.of(np.array([0.0, np.nan]))
