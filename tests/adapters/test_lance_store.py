"""LanceDB passes the suite, and keeps the owner's table as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fastfill.features import Distance
from fastfill.gallery import Columns, Store
from fastfill.testing import OLD_DIM, StoreSuite
from fastfill.wiring import open_store

lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def create_table(path: Path, values: Mapping[str, Sequence[Any]], name: str = "photos") -> Any:
    """A table as its owner would make it."""
    kinds = {"vector": pa.list_(pa.float32(), OLD_DIM), "album": pa.int64()}
    columns = {n: pa.array(list(v), kinds.get(n, pa.string())) for n, v in values.items()}
    return lancedb.connect(path).create_table(name, pa.table(columns), on_bad_vectors="null")


class TestLanceStore(StoreSuite):
    """The suite on LanceDB."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "data"

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """A store over a table made by its owner."""
        from fastfill.adapters.lance import LanceStore

        create_table(self.path, values)
        return LanceStore(str(self.path), "photos", "vector")


def test_documents_that_were_half_made_are_made_again(tmp_path: Path) -> None:
    """A process killed while it made the table of documents leaves a folder without a table."""
    db = lancedb.connect(str(tmp_path))
    db.create_table("photos", [{"id": 1, "text": "a", "vector": [1.0, 0.0]}])
    (tmp_path / "fastfill.lance").mkdir()
    store = open_store(f"lance://{tmp_path}#photos.vector")
    store.bind(Columns("id", "text", "vector"))
    assert store.occupied() == ()
    assert store.load("state") is None
    assert store.save("state", b"1", 0)
    document = store.load("state")
    assert document is not None
    assert document.value == b"1"
