"""The sample: random rows of the gallery on which quality is measured while it changes.

Its queries are rows that were embedded because chance chose them, so that they stand for all; each
is left out of its own ranking. They are asked, exactly, among themselves and up to `MOST_OTHERS`
other rows: in a gallery of that size or less that is the gallery itself. The same rows are read
each time, as they are in the store then. Measuring embeds nothing and writes no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Fusion, Serving
from fastfill.errors import InputError, MigrationError
from fastfill.evaluate import SearchTask, SearchVectors
from fastfill.features import Array, Features, Pairs
from fastfill.gallery import Id, Rows, State, Store
from fastfill.metrics import Relevance, as_metrics
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.sample_rows import SampleRows
from fastfill.migrate.pairs import random_new_rows
from fastfill.migrate.priorities import alignable

MOST_OTHERS = 10_000
LOOKED_AT = 1_000  # rows whose labels tell whether a column can be used


@dataclass(frozen=True, eq=False)
class SampleSnapshot:
    """The rows of the sample as they were read at one moment."""

    rows: Rows  # that have both vectors; the queries among them
    queries: NDArray[np.int64]  # (q,) their positions
    new: NDArray[np.bool_]  # (n,) rows that are new
    labels: Array | None  # (n,) whole numbers; −1, −2, … where a row has none

    @property
    def fraction(self) -> float:
        """Share of the sample that is new."""
        return float(self.new.mean())

    @property
    def first(self) -> float:
        """Share of the sample that was new from the beginning: the queries."""
        return len(self.queries) / len(self.rows)

    def measure(
        self, metric: str, state: State, serving: Serving = "aligned", fusion: Fusion | None = None
    ) -> float:
        """A metric with labels: the queries, asked in one way, among the rows as they are now."""
        added, labels = self.rows.new, self.labels
        if added is None or labels is None:
            raise InputError(f"To measure {metric}, name the column of the labels with --label.")
        relevance = Relevance.from_labels(labels).take(self.queries)
        answerable = np.flatnonzero(relevance.counts)
        asked, old = self.queries[answerable], self.rows.old
        vectors = SearchVectors.of(added, added[asked], state.distance, old, old[asked])
        task = SearchTask(vectors, relevance.take(answerable), as_metrics(metric))
        scores = task.now(serving, fusion, added, self.new)
        return float(scores.values[metric].mean())

    def pairs(self) -> Pairs:
        """The queries under both models."""
        return Pairs(self._features(self.rows.old), self._features(self.rows.new))

    def _features(self, vectors: Any) -> Features:
        labels = None if self.labels is None else self.labels[self.queries]
        return Features(vectors[self.queries], labels=labels)

    @property
    def others(self) -> NDArray[np.int64]:
        """(n − q,) positions of the rows that are no queries."""
        return np.setdiff1d(np.arange(len(self.rows)), self.queries)


def read_sample(job: Job, state: State, label: str | None = None) -> SampleSnapshot:
    """The sample's rows as they are now; its other rows are chosen here if they have not been."""
    sample = _chosen(job, state)
    rows = job.store.read([*sample.queries, *(sample.others or ())], new=True)
    if rows.new is None:
        raise MigrationError(f"{job.store.name}: the added vectors could not be read.")
    rows = rows.take(alignable(rows, state) & np.isfinite(rows.new).all(axis=1))
    new = np.array([model == state.model for model in rows.model], dtype=bool)
    asked = set(sample.queries)
    queries = np.flatnonzero(new & np.array([key in asked for key in rows.ids], dtype=bool))
    if not len(queries):
        raise MigrationError(
            f"{job.store.name}: no random row is new, so quality cannot be measured. "
            "Run: fastfill backfill with --label or --metric, which embeds some first."
        )
    labels = None if label is None else _labels(job.store, label, rows.ids.tolist())
    return SampleSnapshot(rows, queries, new, labels)


def check_label(job: Job, label: str) -> None:
    """Refuse a column that cannot tell which answers are right, before anything is embedded."""
    waiting = job.store.sample(LOOKED_AT, seed=0)  # near the end there are few of these
    asked = SampleRows.of(job.store).queries
    _labels(job.store, label, list(dict.fromkeys([*waiting, *asked])))


def number_labels(store: Store, label: str, ids: Sequence[Id]) -> NDArray[np.int64]:
    """Numbers that are equal where the column's values are; nothing equals a missing value."""
    values = store.values_of(label, ids)
    numbers: dict[Any, int] = {}
    labels = []
    for position, key in enumerate(ids):
        value = values.get(key)
        missing = -1 - position
        labels.append(missing if value is None else numbers.setdefault(value, len(numbers)))
    return np.array(labels, dtype=np.int64)


def _labels(store: Store, label: str, ids: Sequence[Id]) -> Array:
    """The same, refused where no two rows have the same label."""
    labels = number_labels(store, label, ids)
    if len(labels) and len(np.unique(labels)) == len(labels):
        raise InputError(
            f"{store.name}: no two rows have the same value in column '{label}', so it cannot tell "
            "which answers are right."
        )
    return labels


def _chosen(job: Job, state: State) -> SampleRows:
    sample = SampleRows.of(job.store)
    if sample.others is not None:
        return sample
    others = _random_rows(job, state, MOST_OTHERS, set(sample.queries))
    return SampleRows.set_others(job.store, others)


def _random_rows(job: Job, state: State, most: int, without: set[Id]) -> list[Id]:
    """Random rows of either generation, each with the same chance."""
    counts = job.store.estimate() or job.store.counts()
    new, total = counts.get(("new", state.model), 0), sum(counts.values())
    rest = total - len(without)
    share = min(most, rest) / max(rest, 1)
    chosen = random_new_rows(job, state, round(share * (new - len(without))), without)
    return chosen + job.store.sample(round(share * (total - new)), seed=len(chosen))
