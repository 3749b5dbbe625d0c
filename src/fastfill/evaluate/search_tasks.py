"""What is asked of a gallery, and what is relevant: a whole one, or a sample of its items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Fusion, Serving
from fastfill.errors import LabelError
from fastfill.evaluate.search_vectors import SearchVectors
from fastfill.features import Ints, Matrix, check_rows
from fastfill.metrics import (
    LabelSets,
    Metric,
    QueryScores,
    Relevance,
    Tick,
    as_metric,
    as_metrics,
    as_relevance,
    curve_scores,
    gallery_scores,
    neighbours,
)

Kind = TypeVar("Kind", bound=np.generic)
SAMPLE = 500  # items among which agreement is measured where nothing is judged
AGREEMENT = "agreement@10"


@dataclass(frozen=True, eq=False)
class SearchTask:
    """Queries, the items that they are asked among, and which of those are right."""

    vectors: SearchVectors
    relevance: Relevance
    metrics: Sequence[Metric]
    rows: Ints | None = None  # of the gallery, those of a sample; None: all

    def along(
        self,
        serving: Serving,
        fusion: Fusion | None,
        aligned: Matrix,
        positions: Ints,
        counts: Ints,
        *,
        device: str | None = None,
        tick: Tick | None = None,
    ) -> QueryScores:
        """Every metric of each query at every stage of a backfill, (k, f); `old` never changes."""
        if serving == "old":
            return self._at_once(serving, fusion, aligned, False, device)  # (k, 1)
        positions, counts = self._own_order(positions, counts)
        vectors = self.vectors
        return curve_scores(
            vectors.asked(serving, fusion),
            vectors.items(serving, self._own(aligned), False, fusion),
            vectors.items(serving, vectors.new, True, fusion),
            positions,
            counts,
            self.relevance,
            self.metrics,
            distance=vectors.compared_by(serving),
            device=device,
            tick=tick,
        )

    def now(
        self,
        serving: Serving,
        fusion: Fusion | None,
        added: Matrix,
        is_new: NDArray[np.bool_],
        *,
        device: str | None = None,
    ) -> QueryScores:
        """Every metric of each query of the gallery as it is now, (k, 1)."""
        return self._at_once(serving, fusion, self._own(added), self._own(is_new), device)

    def numbers(self, queries: Ints) -> Ints:
        """What some of its queries are called in the whole query set."""
        return queries if self.rows is None or not self.vectors.same else self.rows[queries]

    def _own(self, values: NDArray[Kind]) -> NDArray[Kind]:
        """What belongs to the task's own items, of the values of a whole gallery."""
        return values if self.rows is None else values[self.rows]

    def _at_once(
        self,
        serving: Serving,
        fusion: Fusion | None,
        added: Matrix,
        is_new: ArrayLike,
        device: str | None,
    ) -> QueryScores:
        vectors = self.vectors
        return gallery_scores(
            vectors.asked(serving, fusion),
            vectors.items(serving, added, is_new, fusion),
            self.relevance,
            self.metrics,
            distance=vectors.compared_by(serving),
            device=device,
        )

    def _own_order(self, positions: Ints, counts: Ints) -> tuple[Ints, Ints]:
        """The order of the task's own items, and how many of them are new at each stage."""
        if self.rows is None:
            return positions, counts
        place = np.full(len(positions), -1)
        place[self.rows] = np.arange(len(self.rows))
        own = place[positions]  # −1: not an item of the task
        done = np.concatenate([[0], np.cumsum(own >= 0)])
        return own[own >= 0], done[counts]


def search_tasks(
    vectors: SearchVectors,
    metrics: str | Iterable[str],
    labels: Relevance | ArrayLike | LabelSets | None,
    query_labels: ArrayLike | LabelSets | None,
) -> list[SearchTask]:
    """A task for the metrics with labels, and one for each agreement with new neighbours."""
    tasks = []
    named = as_metrics(metrics)
    labelled = [metric for metric in named if metric.family != "agreement"]
    if labelled:
        tasks.append(
            SearchTask(vectors, _judged(vectors, labelled, labels, query_labels), labelled)
        )
    tasks += [_agreement(vectors, metric) for metric in named if metric.family == "agreement"]
    return tasks


def sampled_task(vectors: SearchVectors, seed: int = 0) -> SearchTask:
    """Agreement with the new model among random items, of which alone it has to be known."""
    size = min(SAMPLE, len(vectors.new))
    rows = np.sort(np.random.default_rng([seed, 11]).permutation(len(vectors.new))[:size])
    return _agreement(vectors.take(rows), as_metric(AGREEMENT), rows)


def _agreement(vectors: SearchVectors, metric: Metric, rows: Ints | None = None) -> SearchTask:
    near = neighbours(
        vectors.queries, vectors.new, metric.k, distance=vectors.distance, same=vectors.same
    )
    return SearchTask(vectors, near, [metric], rows)


def _judged(
    vectors: SearchVectors,
    metrics: Sequence[Metric],
    labels: Relevance | ArrayLike | LabelSets | None,
    query_labels: ArrayLike | LabelSets | None,
) -> Relevance:
    """What the labels or judgements say is relevant."""
    if labels is None:
        raise LabelError(
            f"The metric {metrics[0].name} needs labels or judgements. Without them measure "
            "agreement@k, the share of the k new neighbours that are found."
        )
    if not vectors.same and query_labels is None and not isinstance(labels, Relevance):
        raise LabelError("Queries that are not the gallery need labels too (query_labels).")
    relevance = as_relevance(labels, query_labels)
    check_rows(relevance.items, len(vectors.new), "labels")
    check_rows(len(relevance), len(vectors.queries), "query labels")
    return relevance
