"""Qdrant passes the suite in local mode, in both of its layouts."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from qdrant_world import create_collection

from fastfill.features import Distance
from fastfill.gallery import Id, Store
from fastfill.testing import StoreSuite


class QdrantSuite(StoreSuite):
    """The suite on a folder of the client's local mode."""

    vector: str

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, unsynced: None) -> Iterator[None]:
        self.path = tmp_path / "data"
        self.opened: list[Store] = []
        yield
        for store in self.opened:
            store.close()

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """A store over a collection made by its owner."""
        from fastfill.wiring import open_store

        create_collection(self.path, values, vector=self.vector)
        named = f".{self.vector}" if self.vector else ""
        self.opened.append(open_store(f"qdrant+local://{self.path}#photos{named}"))
        return self.opened[-1]


class TestNamedVector(QdrantSuite):
    """The added vector is another named vector of the owner's points; ids are numbers."""

    vector = "vector"

    def key(self, number: int) -> Id:
        """A number."""
        return number


class TestSecondCollection(QdrantSuite):
    """A vector without a name can have none beside it; ids are UUIDs."""

    vector = ""

    def key(self, number: int) -> Id:
        """A UUID."""
        return str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))
