"""The panel: random rows of the gallery on which quality is measured while it changes.

Its queries are rows that were embedded because chance chose them, so that they stand for all; each
is left out of its own ranking. They are asked, exactly, among themselves and up to `MOST_OTHERS`
other rows: in a gallery of that size or less that is the gallery itself. The same rows are read
each time, as they are in the store then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import InputError, MigrationError
from fastfill.features import Array, Features, Pairs
from fastfill.gallery import Id, Rows, State, Store
from fastfill.metrics import Relevance, as_metrics, gallery_scores
from fastfill.migrate.job import Job
from fastfill.migrate.notes import PANEL, change_note, read_note
from fastfill.migrate.pairs import MOST_QUERIES, embed_pairs, note_queries
from fastfill.migrate.settle import alignable

MOST_OTHERS = 10_000
LEAST_QUERIES, QUERY_SHARE = 50, 0.03  # of the rows, where none were embedded by chance yet


@dataclass(frozen=True, eq=False)
class Look:
    """The rows of the panel as they were read at one moment."""

    rows: Rows  # that have both vectors; the queries among them
    asks: NDArray[np.int64]  # (q,) positions of the queries
    new: NDArray[np.bool_]  # (n,) rows that are new
    labels: Array | None  # (n,) whole numbers; −1, −2, … where a row has none

    @property
    def fraction(self) -> float:
        """Share of the panel that is new."""
        return float(self.new.mean())

    @property
    def first(self) -> float:
        """Share of the panel that was new from the beginning: the queries."""
        return len(self.asks) / len(self.rows)

    def measure(self, metric: str, state: State) -> float:
        """A metric with labels: queries with their new vectors, rows with those that serve now."""
        vectors, labels = self.rows.new, self.labels
        if vectors is None or labels is None:
            raise InputError(f"To measure {metric}, name the column of the labels with --label.")
        relevance = Relevance.from_labels(labels).take(self.asks)
        answerable = np.flatnonzero(relevance.counts)
        scores = gallery_scores(
            vectors[self.asks[answerable]],
            vectors,
            relevance.take(answerable),
            as_metrics(metric),
            distance=state.distance,
        )
        return float(scores.values[metric].mean())

    def pairs(self) -> Pairs:
        """The queries under both models."""
        return Pairs(self._features(self.rows.old), self._features(self.rows.new))

    def _features(self, vectors: Any) -> Features:
        labels = None if self.labels is None else self.labels[self.asks]
        return Features(vectors[self.asks], labels=labels)

    @property
    def others(self) -> NDArray[np.int64]:
        """(n − q,) positions of the rows that are no queries."""
        return np.setdiff1d(np.arange(len(self.rows)), self.asks)


def look(job: Job, state: State, label: str | None = None) -> Look:
    """Read the panel, which is chosen here where that has not been done, or too few are left."""
    found = _look(job, state, label)
    if len(found.asks) < LEAST_QUERIES:
        job.store.remove([PANEL])
        found = _look(job, state, label)
    if not len(found.asks):
        raise MigrationError(f"{job.store.name}: no row is new, so quality cannot be measured.")
    return found


def _look(job: Job, state: State, label: str | None) -> Look:
    queries, others = _panel(job, state)
    ids = [*queries, *others]
    rows = job.store.read(ids, new=True)
    if rows.new is None:
        raise MigrationError(f"{job.store.name}: the added vectors could not be read.")
    rows = rows.take(alignable(rows, state) & np.isfinite(rows.new).all(axis=1))
    new = np.array([model == state.model for model in rows.model], dtype=bool)
    asked = set(queries)
    asks = np.flatnonzero(new & np.array([key in asked for key in rows.ids], dtype=bool))
    labels = None if label is None else _labels(job.store, label, rows.ids.tolist())
    return Look(rows, asks, new, labels)


def _labels(store: Store, label: str, ids: Sequence[Id]) -> Array:
    """Numbers that are equal where the column's values are; nothing equals a missing value."""
    values = store.values_of(label, ids)
    numbers: dict[Any, int] = {}
    found = []
    for position, key in enumerate(ids):
        value = values.get(key)
        missing = -1 - position
        found.append(missing if value is None else numbers.setdefault(value, len(numbers)))
    if len(numbers) == len(found) or not numbers:
        raise InputError(
            f"{store.name}: no two rows have the same value in column '{label}', so it cannot tell "
            "which answers are right."
        )
    return np.array(found, dtype=np.int64)


def _panel(job: Job, state: State) -> tuple[list[Id], list[Id]]:
    note = read_note(job.store, PANEL)
    if len(note.get("queries", [])) < LEAST_QUERIES:
        _choose_queries(job, state)
        note = read_note(job.store, PANEL)
    if "others" not in note:
        others = _random_rows(job, state, MOST_OTHERS, set(note["queries"]))
        note = change_note(job.store, PANEL, lambda latest: {"others": others, **latest})
    return note["queries"], note["others"]


def _choose_queries(job: Job, state: State) -> None:
    """An alignment of elsewhere came without pairs: embed random rows, and draw of those new."""
    counts = job.store.counts()
    new, total = counts.get(("new", state.model), 0), sum(counts.values())
    wanted = min(max(LEAST_QUERIES, round(QUERY_SHARE * total)), MOST_QUERIES, total)
    note_queries(job.store, _random_new(job, state, round(wanted * new / total), set()))
    embed_pairs(job, state, new + round(wanted * (total - new) / total))


def _random_rows(job: Job, state: State, most: int, without: set[Id]) -> list[Id]:
    """Random rows of either generation, each with the same chance."""
    counts = job.store.counts()
    new, total = counts.get(("new", state.model), 0), sum(counts.values())
    rest = total - len(without)
    share = min(most, rest) / max(rest, 1)
    fresh = _random_new(job, state, round(share * (new - len(without))), without)
    return fresh + job.store.sample(round(share * (total - new)), seed=len(fresh))


def _random_new(job: Job, state: State, most: int, without: set[Id]) -> list[Id]:
    ids = [
        key
        for rows in job.store.scan("new", batch=8_192, new=False)
        for key, model in zip(rows.ids.tolist(), rows.model, strict=True)
        if model == state.model and key not in without
    ]
    chosen = np.random.default_rng(len(ids)).permutation(len(ids))[: max(most, 0)]
    return [ids[position] for position in chosen]
