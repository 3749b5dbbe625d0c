"""The toy gallery as fixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from migration_world import encode, gallery_values

from fastfill.gallery import Gallery, MemoryStore
from fastfill.migrate import Migration


@pytest.fixture
def store() -> MemoryStore:
    """Two hundred items in memory."""
    return MemoryStore(gallery_values(200), distance="l2")


@pytest.fixture
def rows_done_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is embedded again to check the model: a test counts those that are done."""
    monkeypatch.setattr("fastfill.migrate.model_check.ROWS", 0)


@pytest.fixture
def migrate(store: MemoryStore) -> Callable[..., Migration]:
    """A migration of the store by an encoder."""

    def make(encoder: Any = encode, **options: Any) -> Migration:
        return Migration(Gallery(store, input="text"), encoder, **options)

    return make
