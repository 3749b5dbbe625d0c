"""Which way of serving agrees best with the new model, among pairs that the map has not seen.

It needs no judgement and no search of the store: under both models the reference pairs are known,
so the neighbours by the new model are, and so is what each way would find in their place while a
share of the rows is new.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastfill.align import SERVINGS, Fusion, Reference
from fastfill.evaluate import (
    Evidence,
    SearchTask,
    SearchVectors,
    Way,
    judged_evidence,
    search_tasks,
)
from fastfill.features import Distance
from fastfill.migrate.ledger.query_sample import QuerySample

NEIGHBOURS = 10


def agreement_evidence(
    reference: Reference,
    fusion: Fusion,
    sample: QuerySample | None,
    fraction: float,
    distance: Distance,
) -> Evidence:
    """agreement@10 of each way, of queries where there are some, else of the pairs themselves."""
    metric = f"agreement@{min(NEIGHBOURS, len(reference) - 1)}"
    ways = [Way(serving) for serving in SERVINGS]
    asked = (None, None) if sample is None else (sample.old, sample.new)
    vectors = SearchVectors.of(reference.new, asked[1], distance, reference.old, asked[0])
    [task] = search_tasks(vectors, metric, None, None)
    return judged_evidence(metric, pair_values(task, reference, fusion, fraction, ways))[0]


def pair_values(
    task: SearchTask, reference: Reference, fusion: Fusion, fraction: float, ways: Sequence[Way]
) -> dict[Way, NDArray[np.float64]]:
    """The first metric of each query, by way, where a fraction of the reference pairs is new."""
    order = np.random.default_rng(len(reference)).permutation(len(reference))
    is_new = order < round(fraction * len(reference))
    added = np.where(is_new[:, None], reference.new, reference.aligned)
    name = task.metrics[0].name
    return {
        way: task.now(way.serving, way.fused_by(fusion), added, is_new).values[name][:, 0]
        for way in ways
    }
