"""The reference passes its own suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastfill.features import Distance
from fastfill.gallery import MemoryStore, Store
from fastfill.testing import StoreSuite


class TestMemoryStore(StoreSuite):
    """The suite on the in-memory store."""

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """A store of these rows."""
        return MemoryStore(values, distance=distance)
