"""Cut-over under the same name on LanceDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.errors import MigrationError, StoreError
from fastfill.gallery import Gallery
from fastfill.migrate import Migration
from fastfill.wiring import connect, open_store

lancedb = pytest.importorskip("lancedb", reason="lancedb is not installed")

ROWS = 60


def encode(texts: Any) -> Any:
    """The new model."""
    return np.array([[int(t) % 5 + 1, int(t) % 7 + 1] for t in texts], np.float32)


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """The owner's table."""
    rows = [
        {"id": n, "text": str(n), "vector": np.array([n % 5, n % 7, 1.0], np.float32)}
        for n in range(ROWS)
    ]
    return lancedb.connect(tmp_path).create_table("docs", rows)


@pytest.fixture
def migration(tmp_path: Path, table: Any) -> Migration:
    """A migration whose rows are all new."""
    url = f"lance://{tmp_path}#docs.vector"
    opened = Migration(connect(url, input="text", distance="l2"), encode)
    opened.start(pairs=20, method="ridge", serving="aligned")
    assert [*opened.backfill(throttle=False)][-1].fraction == 1
    return opened


def nearest(table: Any, vector: Any) -> int:
    """What an application asks that knows its own column alone."""
    table.checkout_latest()
    query = table.search(vector, vector_column_name="vector").limit(1)
    return int(query.to_list()[0]["id"])


def test_both_columns_change_their_names(migration: Migration, table: Any, tmp_path: Path) -> None:
    """The application's query needs the new model and nothing else; it can be taken back."""
    reader = connect(f"lance://{tmp_path}#docs.vector")
    migration.complete(swap=True)
    assert nearest(table, encode(["6"])[0]) == 6
    assert reader.search(encode(["8"])[0], k=1).ids.tolist() == [8]
    migration.swap_back()
    assert nearest(table, [1.0, 6.0, 1.0]) == 6
    migration.complete(swap=True, drop_old=True)
    table.checkout_latest()
    assert table.schema.names == ["id", "text", "vector"]
    assert nearest(table, encode(["6"])[0]) == 6


def test_rows_written_before_the_swap(migration: Migration, table: Any) -> None:
    """A row without a new vector is in the way, and nothing is renamed."""
    migration.complete()
    table.checkout_latest()
    table.add([{"id": 99, "text": "99", "vector": [9.0, 9.0, 1.0]}])
    with pytest.raises(MigrationError, match="1 rows have been written"):
        migration.complete(swap=True)
    assert nearest(table, [9.0, 9.0, 1.0]) == 99


def test_a_part_is_refused(tmp_path: Path, table: Any) -> None:
    """LanceDB's tables are migrated as a whole."""
    store = open_store(f"lance://{tmp_path}#docs.vector")
    with pytest.raises(StoreError, match="can only be migrated as a whole"):
        Gallery(store, input="text", where={"id": 1})
