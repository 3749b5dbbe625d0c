"""A curve over shards is the curve of the gallery in one piece, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from fastfill.errors import IdError
from fastfill.features import Distance
from fastfill.metrics import Relevance, as_metrics, curve_scores
from fastfill.metrics.shards import GalleryShard, ShardedCurve

METRICS = as_metrics("map,cmc@1,ndcg@5,recall@3")


@pytest.mark.parametrize("distance", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("own", [True, False])
def test_shards_add_up_to_the_whole_curve(distance: Distance, own: bool) -> None:
    """For queries of the gallery and others, with ties, and shards of any rows."""
    rng = np.random.default_rng(4)
    before, after = (rng.integers(-3, 4, size=(90, 4)).astype(np.float32) + 0.5 for _ in "ab")
    labels = rng.integers(0, 7, size=90)
    queries = after if own else after[:20] + np.float32(0.25)
    relevance = Relevance.from_labels(labels, None if own else labels[:20])
    positions, counts = rng.permutation(90), np.array([0, 10, 45, 80])
    whole = curve_scores(
        queries, before, after, positions, counts, relevance, METRICS, distance=distance
    )
    steps = np.empty(90, dtype=np.int64)
    steps[positions] = np.searchsorted(counts, np.arange(90), side="right")
    everything = GalleryShard(np.arange(90), before, after)
    curve = ShardedCurve(queries, everything, relevance, steps, 4, METRICS, distance)
    parts = np.array_split(rng.permutation(90), 4)
    shards = (GalleryShard(rows, before[rows], after[rows]) for rows in parts)
    added = curve.scores(curve.count(shard) for shard in shards)
    assert np.array_equal(added.queries, whole.queries)
    assert added.excluded == whole.excluded
    for name, values in whole.values.items():
        assert np.array_equal(added.values[name], values), name


def test_relevant_items_without_vectors_are_named() -> None:
    """They are needed whatever shard they are in."""
    vectors = np.ones((4, 2), dtype=np.float32)
    with pytest.raises(IdError, match="relevant items 3 were not given"):
        ShardedCurve(
            vectors, GalleryShard(np.arange(3), vectors[:3], vectors[:3]),
            Relevance.from_labels([0, 0, 1, 1]), np.zeros(4, dtype=np.int64), 1, METRICS,
        )  # fmt: skip
