"""Chroma passes the suite on a real server, and keeps the owner's collection as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from chroma_world import fill

from fastfill.features import Distance
from fastfill.gallery import Store
from fastfill.testing import StoreSuite
from fastfill.wiring import open_store


class TestChromaStore(StoreSuite):
    """The suite over the network."""

    vectors_optional = False

    @pytest.fixture(autouse=True)
    def _server(self, chroma_owner: Any, chroma_place: str) -> Iterator[None]:
        self.owner, self.place = chroma_owner, chroma_place
        self.opened: list[Store] = []
        yield
        for store in self.opened:
            store.close()

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """A store over a collection made by its owner."""
        fill(self.owner, values)
        self.opened.append(open_store(f"{self.place}#photos"))
        return self.opened[-1]
