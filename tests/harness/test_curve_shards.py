"""The benchmark of sharded curves is right on a toy, and keeps to its time."""

from __future__ import annotations

import argparse

import pytest
import torch

from benchmarks.curve_shards import Results, body, make, measure
from benchmarks.shared.made_shards import MadeShards, worst_difference


def options(seconds: float) -> argparse.Namespace:
    """A toy of three shards and three blocks of queries."""
    return argparse.Namespace(
        device="cpu", queries=60, items_per_class=3, dim=16, points=4, part=25, seconds=seconds,
        tilings=((256, 16, 3),),
    )  # fmt: skip


def measured(seconds: float) -> Results:
    """What is found of it, checked."""
    made = make(options(seconds))
    results, scores = measure(options(seconds), made)
    return {**results, "worst_difference": worst_difference(made, scores)}


def test_a_toy_is_measured_to_the_end():
    """All queries are asked, and are what an obvious computation finds."""
    results = measured(seconds=1000)
    assert results["asked"] == 60
    assert results["worst_difference"] < 1e-12
    assert results["public_difference"] < 1e-12
    assert results["means"]["map"][-1] > results["means"]["map"][0]
    assert "measured to the end" in body(results)


def test_too_little_time_asks_fewer_queries():
    """And says how much of the work was measured, and what all of it would take."""
    results = measured(seconds=1e-9)
    assert results["asked"] == 25
    assert results["worst_difference"] < 1e-12
    assert "25 queries to the end; extrapolated to all" in " ".join(body(results).split())


def test_parts_are_made_again_as_they_were():
    """A shard is its parts, and a query's relevant items are those of its class."""
    made = MadeShards(60, 3, 16, 4, 25, torch.device("cpu"))
    shard = made.shard(2)
    assert torch.equal(shard.after[25:50], made.items(2, 1).after)
    assert torch.equal(made.relevant(1).before[50:75], shard.before[25:50])
    assert made.relevance.of(27).tolist() == [27, 87, 147]
    steps = torch.cat([made.shard(copy).steps for copy in range(3)])
    assert sorted(set(steps.tolist())) == [1, 2, 3]


@pytest.mark.parametrize("copy", [0, 1])
def test_shards_differ(copy):
    """No two shards hold the same vectors."""
    made = MadeShards(60, 3, 16, 4, 25, torch.device("cpu"))
    assert not torch.equal(made.shard(copy).after, made.shard(2).after)
