"""One list of hits out of two searches: what a gallery that is served by both models answers.

Each model's search gives candidates: their distances, and their vectors of the other model. Every
candidate is then scored by both models (`Fusion`), whichever search has found it. So the answer is
the same as if every item of the gallery had been scored, but for items that are among the
candidates of neither model.

An item that has only one of the two vectors is scored by that one alone: its standard score stands
in for the one that is missing. An item that was inserted a second ago, and has no added vector yet,
is thus found by its old one as well as its neighbours are; an item without an old vector by its
new one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import Fusion
from fastfill.align.fusion import QueryScale, similarities
from fastfill.errors import InputError
from fastfill.features import Distance, Matrix
from fastfill.gallery.fingerprint import missing_vectors
from fastfill.gallery.hits import Hits

PER_ANSWER = 10  # candidates of each search for one answer
LEAST_CANDIDATES = 50

Scores = NDArray[np.float64]


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


def fuse_hits(
    fusion: Fusion, old: ArrayLike, new: ArrayLike, by_old: Hits, by_new: Hits, k: int
) -> Hits:
    """The k best of the hits of two searches, which came with their vectors of the other side.

    `old` (d_old,) and `new` (d_new,) are the query under both models. The distances of the answer
    are minus the fused scores: smaller is better, and they can be compared for one query alone.

    >>> from fastfill.align.fusion import Weights
    >>> from fastfill.gallery import objects
    >>> some = np.float32([[0.0], [1.0], [2.0]])
    >>> fusion = Fusion(some, some, "l2", Weights(0.5, 0.5, 0.0))
    >>> by_old = Hits(objects(["a"]), np.float32([0.01]), objects(["new"]), new=some[:1])
    >>> by_new = Hits(objects(["b"]), np.float32([0.01]), objects(["new"]), old=some[2:])
    >>> fuse_hits(fusion, [0.1], [1.9], by_old, by_new, k=1).ids.tolist()
    ['b']
    """
    scale = fusion.scale(old, new)
    scores = np.concatenate(
        [
            _scores(
                fusion,
                scale,
                _from_distances(old, by_old, fusion.distance),
                _from_vectors(new, by_old.new, by_old, fusion.distance),
                by_old.generation,
            ),
            _scores(
                fusion,
                scale,
                _from_vectors(old, by_new.old, by_new, fusion.distance),
                _from_distances(new, by_new, fusion.distance),
                by_new.generation,
            ),
        ]
    )
    ids = np.concatenate([by_old.ids, by_new.ids])
    # A row that was written between the searches counts as the later one saw it.
    once = np.fromiter({key: place for place, key in enumerate(ids)}.values(), dtype=np.int64)
    best = once[np.argsort(-scores[once], kind="stable")[:k]]
    generation = np.concatenate([by_old.generation, by_new.generation])
    return Hits(ids[best], (-scores[best]).astype(np.float32), generation[best])


def _scores(
    fusion: Fusion,
    scale: QueryScale,
    by_old: Scores,
    by_new: Scores,
    generation: NDArray[np.object_],
) -> Scores:
    """(n,) fused scores from similarities, of which one of the two may be NaN."""
    has_old, has_new = ~np.isnan(by_old), ~np.isnan(by_new)
    ratio = scale.new_spread / scale.old_spread
    as_old = scale.old_mean + (by_new - scale.new_mean) / ratio
    as_new = scale.new_mean + (by_old - scale.old_mean) * ratio
    # Vectors of the new model are marked so, or the application has put them there without a mark.
    unmarked = np.array([mark is None for mark in generation], dtype=bool)
    return fusion.combine(
        scale,
        np.where(has_old, by_old, as_old),
        np.where(has_new, by_new, as_new),
        (generation == "new") | (unmarked & has_new),
    )


def _from_distances(query: ArrayLike, hits: Hits, distance: Distance) -> Scores:
    """(n,) similarities as `Fusion` defines them, from the distances of a search."""
    far = hits.distances.astype(np.float64)
    if distance == "l2":  # what ‖q − x‖² leaves without ‖q‖²
        return float(np.square(np.asarray(query, dtype=np.float32)).sum()) - far
    return 1 - far if distance == "cosine" else -far


def _from_vectors(
    query: ArrayLike, vectors: Matrix | None, hits: Hits, distance: Distance
) -> Scores:
    """(n,) similarities to a query, NaN where an item has no vector."""
    if vectors is None or not len(hits):
        return np.full(len(hits), np.nan)
    missing = missing_vectors(vectors)
    full = np.where(missing[:, None], np.float32(0), vectors) if missing.any() else vectors
    values = similarities(np.asarray(query, dtype=np.float32)[None, :], full, distance)[0]
    return np.where(missing, np.nan, values)
