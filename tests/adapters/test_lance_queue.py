"""Picks from LanceDB: few readings of the table, and never a stale answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.gallery import Marks
from fastfill.testing import COLUMNS, NEW_DIM, OLD_DIM, new_vectors, values

lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """Ten aligned rows: the later, the more urgent."""
    from fastfill.adapters.lance import LanceStore

    kinds = {"vector": pa.list_(pa.float32(), OLD_DIM), "album": pa.int64()}
    data = values(10)
    columns = {name: pa.array(v, kinds.get(name, pa.string())) for name, v in data.items()}
    lancedb.connect(tmp_path).create_table("photos", pa.table(columns))
    opened = LanceStore(str(tmp_path), "photos", "vector")
    opened.bind(COLUMNS)
    opened.expand(NEW_DIM)
    align(opened, data["id"], range(10))
    return opened


def align(store: Any, ids: Any, priority: Any) -> None:
    """Write rows as aligned with these priorities."""
    rows = store.read(ids)
    numbers = dict(zip(ids, priority, strict=True))
    order = np.array([numbers[key] for key in rows.ids], dtype=np.float32)
    assert store.write(rows, new_vectors(rows), Marks("aligned", "a", order, order)) == len(ids)


def embed(store: Any, ids: Any) -> None:
    """Write rows as new."""
    rows = store.read(ids)
    assert store.write(rows, new_vectors(rows), Marks("new", "m")) == len(ids)


def test_picks_after_own_writes_read_nothing_again(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that this process has embedded leave the line, and the rest keeps its order."""
    ids = values(10)["id"]
    assert store.pick("aligned", 3, ()) == ids[:-4:-1]
    monkeypatch.setattr(store, "_scan", None)
    assert store.pick("aligned", 3, ()) == ids[:-4:-1]
    embed(store, ids[-3:])
    assert store.pick("aligned", 3, {ids[5]}) == [ids[6], ids[4], ids[3]]
    embed(store, [ids[6], ids[4]])
    assert store.pick("aligned", 9, ()) == [ids[5], *ids[3::-1]]


def test_picks_see_what_others_have_committed(store: Any, tmp_path: Path) -> None:
    """Rows that someone else has taken or made urgent are seen by the next pick."""
    ids = values(10)["id"]
    assert store.pick("aligned", 2, ()) == [ids[9], ids[8]]
    owner = lancedb.connect(tmp_path).open_table("photos")
    owner.update(where="ff_vector_priority = 9", values={"ff_vector_generation": "new"})
    owner.update(where="ff_vector_priority = 0", values={"ff_vector_priority": 99})
    assert store.pick("aligned", 2, ()) == [ids[0], ids[8]]


def test_picks_follow_new_priorities(store: Any) -> None:
    """Rows that are aligned again come in the order of their new priorities."""
    ids = values(10)["id"]
    assert store.pick("aligned", 1, ()) == [ids[9]]
    align(store, ids, range(10, 0, -1))
    assert store.pick("aligned", 2, ()) == [ids[0], ids[1]]


def test_a_line_keeps_the_best_rows_alone(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With less room than rows the next rows are read from the table when the line runs short."""
    from fastfill.adapters import lance, lance_queue

    monkeypatch.setattr(lance_queue, "WINDOW", 2)
    monkeypatch.setattr(lance, "MARK_ROWS", 3)
    ids, found = values(10)["id"], []
    while picked := store.pick("aligned", 2, ()):
        found += picked
        embed(store, picked)
    assert found == ids[::-1]
