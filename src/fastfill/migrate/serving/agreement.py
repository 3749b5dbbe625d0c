"""Which way of serving agrees best with the new model, among pairs that the map has not seen.

It needs no judgement and no search of the store: under both models the reference pairs are known,
so the neighbours by the new model are, and so is what each way would find in their place while a
share of the rows is new.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastfill.align import SERVINGS, Fusion, Reference
from fastfill.evaluate import Evidence, SearchVectors, search_tasks
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
    return pair_evidence(reference, fusion, fraction, distance, metric, sample)


def pair_evidence(
    reference: Reference,
    fusion: Fusion,
    fraction: float,
    distance: Distance,
    metric: str,
    sample: QuerySample | None = None,
    labels: NDArray[np.int64] | None = None,
) -> Evidence:
    """A metric of each way in a gallery of the reference pairs, of which a fraction is new."""
    queries = (None, None) if sample is None else (sample.old, sample.new)
    vectors = SearchVectors.of(reference.new, queries[1], distance, reference.old, queries[0])
    [task] = search_tasks(vectors, metric, labels, None)
    order = np.random.default_rng(len(reference)).permutation(len(reference))
    is_new = order < round(fraction * len(reference))
    added = np.where(is_new[:, None], reference.new, reference.aligned)
    per_query = {way: task.now(way, fusion, added, is_new).values[metric][:, 0] for way in SERVINGS}
    return Evidence.of(metric, per_query)
