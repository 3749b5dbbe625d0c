"""Is the index good, and does one generation crowd out the other?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastfill.features import Matrix
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
    for vector in _some_new_vectors(job, queries):
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
    """Search with vectors of both generations and count who answers."""
    distance = job.gallery.distance
    new = total = asked = 0
    for vector in _some_new_vectors(job, queries):
        hits = job.store.search(vector, k + 1, side="new", distance=distance)
        others = hits.generation[1:]  # the first is the item itself
        new += sum(generation == "new" for generation in others)
        total += len(others)
        asked += 1
    return Balance(progress.fraction, new / total if total else progress.fraction, asked)


def _some_new_vectors(job: Job, limit: int) -> Matrix:
    """Vectors of random rows of either generation."""
    ids = job.store.sample(limit, seed=len(job.store.name))
    rows = job.store.read(ids, new=True)
    fresh = next(iter(job.store.scan("new", batch=limit, new=True)), None)
    parts = [part.new for part in (rows, fresh) if part is not None and part.new is not None]
    vectors = np.concatenate([p for p in parts if len(p)]) if any(map(len, parts)) else None
    if vectors is None:
        return np.zeros((0, 1), dtype=np.float32)
    whole = vectors[np.isfinite(vectors).all(axis=1)]
    return np.asarray(whole[np.random.default_rng(0).permutation(len(whole))[:limit]])
