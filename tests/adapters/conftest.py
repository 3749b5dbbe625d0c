"""What tests of adapters share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Qdrant's local mode commits every point by itself: do not wait for the disk each time."""
    reason = "qdrant-client is not installed"
    local = pytest.importorskip("qdrant_client.local.persistence", reason=reason)
    ensure = local.CollectionPersistence._ensure_table

    def unsynced(self: Any) -> None:
        self.storage.execute("PRAGMA synchronous = OFF")
        ensure(self)

    monkeypatch.setattr(local.CollectionPersistence, "_ensure_table", unsynced)
