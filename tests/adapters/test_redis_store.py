"""Redis passes the suite on a real server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from redis_world import fill

from fastfill.features import Distance
from fastfill.gallery import Id, Store
from fastfill.testing import StoreSuite
from fastfill.wiring import open_store


class TestRedisStore(StoreSuite):
    """The suite on Redis; a row is known by its key."""

    @pytest.fixture(autouse=True)
    def _server(self, redis_owner: Any, redis_place: str) -> Iterator[None]:
        self.owner, self.place = redis_owner, redis_place
        self.opened: list[Store] = []
        yield
        for store in self.opened:
            store.close()

    def key(self, number: int) -> Id:
        """A key under the prefix of the index."""
        return f"photo:it's {number}"

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """A store over hashes made by their owner."""
        fill(self.owner, values)
        self.opened.append(open_store(f"{self.place}#photos.vector"))
        return self.opened[-1]
