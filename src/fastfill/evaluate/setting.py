"""`Setting`: what every candidate of a study is measured on."""

from __future__ import annotations

from dataclasses import dataclass

from fastfill.errors import InputError
from fastfill.evaluate.search_tasks import SearchTask, search_tasks
from fastfill.evaluate.search_vectors import SearchVectors
from fastfill.features import Array, Distance, Features, check_rows
from fastfill.metrics import Relevance


@dataclass(frozen=True, eq=False)
class Setting:
    """What every candidate is measured on: one gallery, its queries, and how."""

    new: Features  # the gallery under the new model
    labels: Array | Relevance | None = None
    old: Features | None = None  # the gallery under the old model, for old/old and novelty
    queries: Features | None = None  # under the new model; None: the gallery asks itself
    query_labels: Array | None = None
    query_old: Features | None = None
    groups: Array | None = None  # (n,) of the gallery's items
    query_groups: Array | None = None  # (q,) where the queries are a set of their own
    metrics: tuple[str, ...] = ("cmc@1", "cmc@5", "map")
    points: int = 21
    seeds: int = 1  # random orders are drawn so many times
    distance: Distance = "l2"
    device: str | None = None

    def __post_init__(self) -> None:
        if self.old is not None:
            check_rows(len(self.old), len(self.new), self.old.name)
        if self.query_old is not None and self.queries is not None:
            check_rows(len(self.query_old), len(self.queries), self.query_old.name)
        if self.seeds < 1:
            raise InputError(f"At least one seed is needed, got {self.seeds}.")

    @property
    def old_search(self) -> bool:
        """Are the old vectors known on both sides?"""
        return self.old is not None and (self.queries is None or self.query_old is not None)

    def vectors(self) -> SearchVectors:
        """All that can be compared."""
        return SearchVectors.of(self.new, self.queries, self.distance, self.old, self.query_old)

    def tasks(self, vectors: SearchVectors) -> list[SearchTask]:
        """What is asked, and what is relevant."""
        return search_tasks(vectors, self.metrics, self.labels, self.query_labels)
