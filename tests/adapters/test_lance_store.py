"""LanceDB passes the suite, and keeps the owner's table as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fastfill.features import Distance
from fastfill.gallery import Store
from fastfill.testing import OLD_DIM, StoreSuite

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
