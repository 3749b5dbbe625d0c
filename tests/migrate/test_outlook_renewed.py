"""The forecast of a migration follows its map: made anew after a refit, from fair queries only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_quality import LABELLED, ROWS, new_vectors, started, store

from fastfill.forecast import Forecast
from fastfill.gallery import MemoryStore
from fastfill.migrate.notes import PANEL, read_note

__all__ = ["store"]  # the fixture of that module
FAST: dict[str, Any] = {"make_room": False, "batch": 10}


def test_after_a_refit_status_has_another_forecast(store: MemoryStore) -> None:
    """More backfill, another map, another forecast; what was measured before is still there."""
    migration = started(store)
    before = migration.forecast(**LABELLED)
    assert (before.learned, before.forecast.pairs) == (0, 100)
    [*migration.backfill(rows=100, refit=0.15, **LABELLED, **FAST)]
    status = migration.status()
    outlook = status.outlook
    assert outlook is not None
    assert status.state is not None
    assert status.state.refits >= 1
    assert outlook.alignment == status.state.alignment != before.alignment
    assert outlook.learned > 30
    assert outlook.forecast.pairs == 100
    assert outlook.forecast.values.tolist() != before.forecast.values.tolist()
    assert len(outlook.measured) > 3
    assert f"forecast {outlook.forecast.at(outlook.measured[-1].panel)[0]:.3f}" in str(outlook)


def test_without_another_map_the_forecast_stays(store: MemoryStore) -> None:
    """Rows that were embedded and taught nothing change no forecast."""
    migration = started(store)
    before = migration.forecast(**LABELLED)
    [*migration.backfill(rows=100, refit=None, **LABELLED, **FAST)]
    after = migration.status().outlook
    assert after is not None
    assert after.forecast.values.tolist() == before.forecast.values.tolist()


def test_only_random_rows_are_queries(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that an order has picked teach the map of the forecast, and never play a query."""
    asked: dict[str, Any] = {}
    rehearse = Forecast.from_pairs.__func__  # type: ignore[attr-defined]

    def spy(cls: Any, pairs: Any, items: int, **options: Any) -> Forecast:
        asked.update(options, pairs=pairs)
        return rehearse(cls, pairs, items, **options)

    migration = started(store, policy="sigma")
    [*migration.backfill(rows=150, refit=0.1, **FAST)]
    monkeypatch.setattr(Forecast, "from_pairs", classmethod(spy))
    migration.forecast(**LABELLED)
    queries = new_vectors(read_note(store, PANEL)["queries"])
    np.testing.assert_allclose(_sorted(asked["pairs"].new.vectors), _sorted(queries), rtol=1e-5)
    taught = {vector.tobytes() for vector in asked["taught"].new.vectors}
    assert taught
    assert not taught & {vector.tobytes() for vector in asked["pairs"].new.vectors}
    assert len(asked["done"]) == ROWS - 100
    assert sum(asked["done"]) == 150
    assert min(asked["refits"]) > 250 / ROWS


def _sorted(vectors: Any) -> Any:
    return vectors[np.lexsort(vectors.T)]
