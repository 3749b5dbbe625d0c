"""Which way of serving finds items of the query's own label, among pairs that the map has not seen.

Where nobody has judged queries, a column of labels tells what is right: the reference pairs ask
each other, each left out of its own answers, and items with the same label are right answers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Fusion, Reference
from fastfill.evaluate import (
    Evidence,
    SearchVectors,
    judged_evidence,
    search_tasks,
    ways_to_judge,
)
from fastfill.features import Ints
from fastfill.gallery import Id, State
from fastfill.metrics import Relevance
from fastfill.migrate.job import Job
from fastfill.migrate.quality.sample import number_labels
from fastfill.migrate.serving.agreement import pair_values
from fastfill.migrate.serving.judged import LEAST_JUDGED

METRIC = "map"
BATCH = 8_192  # rows that are read at a time


def labelled_evidence(
    job: Job, state: State, reference: Reference, fusion: Fusion, fraction: float, label: str
) -> tuple[Evidence, float | None] | None:
    """mAP of each way, and how much of the old score both models should keep.

    None where too few pairs share their label with another.
    """
    rows, labels = _labelled_rows(job, reference, label)
    if np.count_nonzero(Relevance.from_labels(labels).counts) < LEAST_JUDGED:
        return None
    some = Reference(reference.old[rows], reference.new[rows], reference.aligned[rows])
    vectors = SearchVectors.of(some.new, None, state.distance, some.old, None)
    [task] = search_tasks(vectors, METRIC, labels, None)
    ways = ways_to_judge(fusion.keeps)
    return judged_evidence(METRIC, pair_values(task, some, fusion, fraction, ways))


def _labelled_rows(job: Job, reference: Reference, label: str) -> tuple[Ints, NDArray[np.int64]]:
    """Reference pairs that are rows of the gallery still, and numbers for their labels."""
    keys = _keys_by_vector(job, reference)
    there = {
        row: keys[vector.tobytes()]
        for row, vector in enumerate(reference.old)
        if vector.tobytes() in keys
    }
    labels = number_labels(job.store, label, list(there.values()))
    return np.array(list(there), dtype=np.int64), labels


def _keys_by_vector(job: Job, reference: Reference) -> dict[bytes, Id]:
    """Ids of the reference pairs by their old vectors: they are kept without ids."""
    wanted = {vector.tobytes() for vector in reference.old}
    return {
        vector.tobytes(): key
        for rows in job.store.scan("new", batch=BATCH, new=False)
        for key, vector in zip(rows.ids.tolist(), rows.old, strict=True)
        if vector.tobytes() in wanted
    }
