"""A small gallery in the middle of a migration, and the obvious way to score it by both models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfill.align import Fusion
from fastfill.align.fusion import Weights
from fastfill.features import Distance
from fastfill.gallery import Columns, MemoryStore, State, save_fusion

COLUMNS = Columns(id="id", input="text", old="vector")
OLD_DIM, NEW_DIM = 3, 4
KINDS = ("new", "aligned", "inserted", "given", "no old", "waiting")


def make_fusion(distance: Distance, seed: int = 0) -> Fusion:
    """Reference pairs at random, and weights that give each side its share."""
    rng = np.random.default_rng([seed, 1])
    old, new = rng.normal(size=(9, OLD_DIM)), rng.normal(size=(9, NEW_DIM))
    weights = Weights(0.3, 0.6, 0.2)
    return Fusion(old.astype(np.float32), new.astype(np.float32), distance, weights, 0.5)


def make_store(kinds: Sequence[str], distance: Distance = "l2", seed: int = 0) -> MemoryStore:
    """A started migration that both models serve, with rows of these kinds.

    new, aligned: with both vectors; inserted: by the application, with no mark and no added vector;
    given: the same, with an added vector; no old: embedded without one; waiting: not embedded yet.
    """
    rng = np.random.default_rng(seed)
    old, new = rng.normal(size=(len(kinds), OLD_DIM)), rng.normal(size=(len(kinds), NEW_DIM))
    marks = {"no old": "new", "inserted": None, "given": None}
    values: dict[str, list[Any]] = {
        "id": [f"item {n}" for n in range(len(kinds))],
        "text": [f"text {n}" for n in range(len(kinds))],
        "album": [n % 2 for n in range(len(kinds))],
        "vector": [None if kind == "no old" else old[n] for n, kind in enumerate(kinds)],
        COLUMNS.new: [
            None if kind in ("inserted", "waiting") else new[n] for n, kind in enumerate(kinds)
        ],
        COLUMNS.mark("generation"): [marks.get(kind, kind) for kind in kinds],
    }
    store = MemoryStore({"id": ["first"], "text": ["first"], "vector": [[0.0] * OLD_DIM]})
    store.bind(COLUMNS)
    store.expand(NEW_DIM)
    store.delete(["first"])
    store.upsert(values)
    tag = save_fusion(store, make_fusion(distance, seed))
    set_state(store, distance=distance, serving="both", fusion=tag)
    return store


def set_state(store: MemoryStore, **changes: Any) -> None:
    """Write the state of a migration."""
    values: dict[str, Any] = {
        "phase": "started",
        "columns": COLUMNS,
        "distance": "l2",
        "encoder": "m:f",
        "model": "1f",
        "dim": NEW_DIM,
        **changes,
    }
    State.change(store, lambda _: State(**values))


def similarity(query: Any, item: Any, distance: Distance) -> float:
    """As the three distances define it."""
    product = sum(float(q) * float(x) for q, x in zip(query, item, strict=True))
    if distance == "ip":
        return product
    if distance == "cosine":
        return product / (math.dist(query, [0] * len(query)) * math.dist(item, [0] * len(item)))
    return -(math.dist(query, item) ** 2)


def obvious_scores(
    store: MemoryStore, fusion: Fusion, old: Any, new: Any, album: int | None
) -> dict[str, float]:
    """The score of every item of an album (None: of all), one number after the other."""
    scores: dict[str, float] = {}
    for row in store._rows.values():
        if album is not None and row["album"] != album:
            continue
        z_old = _standard(old, row["vector"], fusion.old, fusion.distance)
        z_new = _standard(new, row[COLUMNS.new], fusion.new, fusion.distance)
        if z_old is None and z_new is None:
            continue
        generation, added = row[COLUMNS.mark("generation")], z_new
        z_old = z_new if z_old is None else z_old
        z_new = z_old if z_new is None else z_new
        assert z_old is not None
        assert z_new is not None
        own = generation == "new" or (generation is None and added is not None)
        weights = fusion.weights
        predicted = weights.old * z_old + weights.aligned * z_new + weights.constant
        scores[str(row["id"])] = fusion.keep * z_old + (z_new if own else predicted)
    return scores


def _standard(query: Any, item: Any, reference: Any, distance: Distance) -> float | None:
    if item is None:
        return None
    values = [similarity(query, each, distance) for each in reference]
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    return (similarity(query, item, distance) - mean) / spread
