"""The forecast of a migration follows its map: made anew after a refit, from fair queries only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_quality import LABELLED, ROWS, new_vectors, started, store

from fastfill.forecast import Forecast
from fastfill.gallery import MemoryStore
from fastfill.migrate.ledger.sample_rows import SampleRows

__all__ = ["store"]  # the fixture of that module
FAST: dict[str, Any] = {"throttle": False, "batch": 10}


def test_after_a_refit_status_has_another_forecast(store: MemoryStore) -> None:
    """More backfill, another map, another forecast; what was measured before is still there."""
    migration = started(store)
    before = migration.forecast(**LABELLED)
    assert (before.learned, before.forecast.pairs) == (0, 100)
    [*migration.backfill(rows=100, refit=0.15, **LABELLED, **FAST)]
    status = migration.status()
    expected = status.forecast
    assert expected is not None
    assert status.state is not None
    assert status.state.refits >= 1
    assert expected.alignment == status.state.alignment != before.alignment
    assert expected.learned > 30
    assert expected.forecast.pairs == 100
    assert expected.forecast.values.tolist() != before.forecast.values.tolist()
    assert len(expected.measured) > 3
    assert f"forecast {expected.forecast.at(expected.measured[-1].sample)[0]:.3f}" in str(expected)


def test_without_another_map_the_forecast_stays(store: MemoryStore) -> None:
    """Rows that were embedded and taught nothing change no forecast."""
    migration = started(store)
    before = migration.forecast(**LABELLED)
    [*migration.backfill(rows=100, refit=None, **LABELLED, **FAST)]
    after = migration.status().forecast
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
    queries = new_vectors(SampleRows.of(store).queries)
    np.testing.assert_allclose(_sorted(asked["pairs"].new.vectors), _sorted(queries), rtol=1e-5)
    taught = {vector.tobytes() for vector in asked["taught"].new.vectors}
    assert taught
    assert not taught & {vector.tobytes() for vector in asked["pairs"].new.vectors}
    assert len(asked["done"]) == ROWS - 100
    assert sum(asked["done"]) == 150
    assert min(asked["refits"]) > 250 / ROWS


def _sorted(vectors: Any) -> Any:
    return vectors[np.lexsort(vectors.T)]
