"""Searching LanceDB while rows come and go: only rows with a vector, by an index that is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lancedb", reason="LanceDB is not installed")

from test_lance_store import create_table

from fastfill.gallery import Gallery
from fastfill.migrate import Migration
from fastfill.testing import OLD_DIM

ROWS = 600


def encode(texts: Any) -> Any:
    """A new model."""
    return np.stack([np.sin(np.arange(1, 9) * (int(text) + 1)) for text in texts])


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """A started migration with an index on the added column."""
    from fastfill.adapters.lance import LanceStore

    old = np.random.default_rng(0).standard_normal((ROWS, OLD_DIM)).astype(np.float32)
    numbers = [str(n) for n in range(ROWS)]
    create_table(tmp_path, {"id": numbers, "text": numbers, "vector": old.tolist()})
    found = LanceStore(str(tmp_path), "photos", "vector")
    gallery = Gallery(found, id="id", input="text", distance="l2")
    Migration(gallery, encode, encoder_name="e").start(pairs=40, method="ridge", index=True)
    return found


@pytest.mark.parametrize("exact", [True, False])
def test_rows_without_a_vector_are_never_found(store: Any, exact: bool) -> None:
    """What the application has just inserted has no added vector yet, and does not answer."""
    store.upsert({"id": ["late"], "text": ["7"], "vector": [[0.0] * OLD_DIM]})
    for distance in ("l2",) if not exact else ("l2", "cosine", "ip"):
        hits = store.search(np.ones(8), ROWS + 1, side="new", distance=distance, exact=exact)
        assert "late" not in hits.ids.tolist()
        assert np.isfinite(hits.distances).all()
    assert len(hits.ids) == ROWS


def test_two_searches_run_at_once_where_both_have_an_index(store: Any) -> None:
    """Without one on both columns they come one after the other, and never hold memory twice."""
    assert not store.describe().parallel
    store.build_index("old", "l2")
    assert store.describe().parallel


def test_an_index_of_many_parts_is_built_anew(store: Any) -> None:
    """Parts that every batch adds are joined now and then, and queries find what they found."""
    from fastfill.adapters.lance.search import MOST_PARTS

    migration = Migration(Gallery(store, id="id", input="text"), encode, encoder_name="e")
    parts = []
    for _ in range(2 * MOST_PARTS):
        [*migration.backfill(rows=20, refit=None, throttle=False)]
        store._search._built_at = -1e9  # long ago
        store.optimize()
        index = next(
            i for i in store._context.table.list_indices() if list(i.columns) == ["vector_new"]
        )
        parts.append(store._context.table.index_stats(index.name).num_indices)
    assert max(parts) <= MOST_PARTS
    assert parts.count(1) >= 1
    exact = store.search(np.ones(8), 5, side="new", distance="l2", exact=True)
    near = store.search(np.ones(8), 5, side="new", distance="l2")
    assert set(exact.ids) == set(near.ids)


def test_an_index_is_not_built_anew_all_the_time(store: Any, monkeypatch: Any) -> None:
    """What has just taken long is not done again at once."""
    built: list[str] = []
    build = store._search._build
    monkeypatch.setattr("fastfill.adapters.lance.search.MOST_PARTS", 0)
    monkeypatch.setattr(store._search, "_build", lambda *a: (built.append("again"), build(*a)))
    for _ in range(3):
        store.optimize()
    assert built == ["again"]
