"""One list of hits out of two searches: what a gallery that is served by both models answers.

Each model's search gives candidates, with the old and the added vector of each. Every candidate is
then scored by both models (`Fusion`), from its own vectors, whichever search has found it. So the
answer is the same as if every item of the gallery had been scored, but for items that are among
the candidates of neither model.

An item that has only one of the two vectors is scored by that one alone: its standard score stands
in for the one that is missing. An item that was inserted a second ago, and has no added vector yet,
is thus found by its old one as well as its neighbours are; an item without an old vector by its
new one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Fusion
from fastfill.align.fusion import similarities
from fastfill.errors import InputError
from fastfill.features import Distance, Matrix
from fastfill.gallery.fingerprint import missing_vectors
from fastfill.gallery.store import Hits

PER_ANSWER = 10  # candidates of each search for one answer
LEAST_CANDIDATES = 50

Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]


def candidates_for(k: int, candidates: int | None = None) -> int:
    """How many hits of each model k answers are chosen from.

    >>> candidates_for(10), candidates_for(1), candidates_for(10, 40)
    (100, 50, 40)
    """
    if candidates is None:
        return max(PER_ANSWER * k, LEAST_CANDIDATES)
    if candidates < k:
        raise InputError(
            f"{k} answers cannot be chosen from {candidates} candidates of each model."
        )
    return candidates


def fuse_hits(fusion: Fusion, old: ArrayLike, new: ArrayLike, hits: Sequence[Hits], k: int) -> Hits:
    """The k best of the hits of several searches, which came with their vectors.

    `old` (d_old,) and `new` (d_new,) are the query under both models. The distances of the answer
    are minus the fused scores: smaller is better, and they can be compared for one query alone.

    >>> from fastfill.align.fusion import Weights
    >>> from fastfill.gallery import objects
    >>> some = np.float32([[0.0], [1.0], [2.0]])
    >>> fusion = Fusion(some, some, "l2", Weights(0.5, 0.5, 0.0))
    >>> far = np.float32([0.0, 4.0])
    >>> hits = Hits(objects(["a", "b"]), far, objects(["new", "new"]), some[::2], some[::2])
    >>> fuse_hits(fusion, [1.9], [1.9], [hits, hits], k=1).ids.tolist()
    ['b']
    """
    every = _union(hits)
    scores = fused_scores(fusion, old, new, every)
    best = np.argsort(-scores, kind="stable")[:k]
    best = best[np.isfinite(scores[best])]
    answers = every.take(best)
    return Hits(
        answers.ids,
        (-scores[best]).astype(np.float32),
        answers.generation,
        answers.old,
        answers.new,
    )


def fused_scores(fusion: Fusion, old: ArrayLike, new: ArrayLike, hits: Hits) -> Scores:
    """(n,) what both models say of each hit, the best highest; −∞ for one without any vector."""
    by_old, has_old = _similarities(old, hits.old, fusion.distance, len(hits))
    by_new, has_new = _similarities(new, hits.new, fusion.distance, len(hits))
    scale = fusion.scale(old, new)
    ratio = scale.new_spread / scale.old_spread
    as_old = scale.old_mean + (by_new - scale.new_mean) / ratio
    as_new = scale.new_mean + (by_old - scale.old_mean) * ratio
    scores = fusion.combine(
        scale,
        np.where(has_old, by_old, as_old),
        np.where(has_new, by_new, as_new),
        _is_new(hits, has_new),
    )
    return np.where(has_old | has_new, scores, -np.inf)


def _is_new(hits: Hits, has_new: Mask) -> Mask:
    """Vectors of the new model: marked so, or put there by the application, without a mark."""
    unmarked = np.array([each is None for each in hits.generation], dtype=bool)
    return np.asarray((hits.generation == "new") | (unmarked & has_new), dtype=bool)


def _similarities(
    query: ArrayLike, vectors: Matrix | None, distance: Distance, rows: int
) -> tuple[Scores, Mask]:
    """(n,) similarities to a query, and which items have a vector; 0 for the others."""
    if vectors is None or not rows:
        return np.zeros(rows), np.zeros(rows, dtype=bool)
    there = ~missing_vectors(vectors)
    full = vectors if there.all() else np.where(there[:, None], vectors, np.float32(0))
    asked = np.asarray(query, dtype=np.float32)[None, :]
    return similarities(asked, full, distance)[0], there


def _union(hits: Sequence[Hits]) -> Hits:
    """All hits, each item once: as the last of the searches saw it."""
    ids = np.concatenate([each.ids for each in hits])
    places = list({key: place for place, key in enumerate(ids)}.values())
    return Hits(
        ids,
        np.concatenate([each.distances for each in hits]),
        np.concatenate([each.generation for each in hits]),
        _stacked([each.old for each in hits]),
        _stacked([each.new for each in hits]),
    ).take(places)


def _stacked(parts: Sequence[Matrix | None]) -> Matrix | None:
    there = [part for part in parts if part is not None]
    return np.concatenate(there) if len(there) == len(parts) else None
