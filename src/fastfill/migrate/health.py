"""Is the index good, and does one generation crowd out the other?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Matrix
from fastfill.gallery import Gallery
from fastfill.migrate.job import Job
from fastfill.migrate.progress import Progress

QUERIES = 50
K = 10
GOOD_RECALL = 0.9
CROWDED = 2.0  # share in the answers over the share in the gallery at which to warn


@dataclass(frozen=True)
class IndexHealth:
    """Recall of the approximate index on the added column against exact search."""

    indexed: bool
    recall: float | None = None

    @property
    def good(self) -> bool:
        """Nothing to do: no index, or one that finds what is there."""
        return self.recall is None or self.recall >= GOOD_RECALL


def index_health(job: Job, queries: int = QUERIES, k: int = K) -> IndexHealth:
    """Measure the index with vectors of the gallery as queries."""
    if not job.store.indexed("new"):
        return IndexHealth(indexed=False)
    distance, recalls = job.gallery.distance, []
    for vector in _some_items(job, queries).new:
        exact, near = (
            set(job.store.search(vector, k, side="new", distance=distance, exact=e).ids)
            for e in (True, False)
        )
        recalls.append(len(exact & near) / max(len(exact), 1))
    return IndexHealth(indexed=True, recall=float(np.mean(recalls)) if recalls else None)


@dataclass(frozen=True)
class Balance:
    """The share of new items in the answers and in the gallery."""

    in_gallery: float
    in_answers: float
    queries: int

    @property
    def warning(self) -> str | None:
        """What to say when one generation crowds out the other."""
        if self.queries == 0 or not 0.02 < self.in_gallery < 0.98:
            return None
        for name, answers, gallery in (
            ("new", self.in_answers, self.in_gallery),
            ("aligned", 1 - self.in_answers, 1 - self.in_gallery),
        ):
            if answers > min(CROWDED * gallery, (1 + gallery) / 2):
                return (
                    f"{name} items are {100 * answers:.0f} % of the answers but "
                    f"{100 * gallery:.0f} % of the gallery: they crowd out the others."
                )
        return None


def balance(job: Job, progress: Progress, queries: int = QUERIES, k: int = K) -> Balance:
    """Search with items of both generations, as readers are served, and count who answers."""
    reader = Gallery(job.store)  # which knows the latest state
    new = total = asked = 0
    for key, old_vector, new_vector in zip(*_some_items(job, queries), strict=True):
        hits = reader.search(old=old_vector, new=new_vector, k=k + 1)
        others = hits.generation[hits.ids != key][:k]
        new += sum(generation == "new" for generation in others)
        total += len(others)
        asked += 1
    return Balance(progress.fraction, new / total if total else progress.fraction, asked)


class _Items(NamedTuple):
    """Items under both models, to ask with."""

    ids: NDArray[np.object_]
    old: Matrix
    new: Matrix


def _some_items(job: Job, limit: int) -> _Items:
    """Random rows of either generation that have both vectors."""
    aligned = job.store.read(job.store.sample(limit, seed=len(job.store.name)), new=True)
    fresh = next(iter(job.store.scan("new", batch=limit, new=True)), None)
    parts = [rows for rows in (aligned, fresh) if rows is not None and rows.new is not None]
    parts = [rows for rows in parts if len(rows)]
    if not parts:
        empty = np.zeros((0, 1), dtype=np.float32)
        return _Items(np.zeros(0, dtype=object), empty, empty)
    ids, old = (np.concatenate([getattr(rows, name) for rows in parts]) for name in ("ids", "old"))
    new = np.concatenate([rows.new for rows in parts if rows.new is not None])
    whole = np.flatnonzero(np.isfinite(old).all(axis=1) & np.isfinite(new).all(axis=1))
    chosen = whole[np.random.default_rng(0).permutation(len(whole))[:limit]]
    return _Items(ids[chosen], old[chosen], new[chosen])
