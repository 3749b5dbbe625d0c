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


def picked(store: Any, limit: int, exclude: Any = ()) -> list[Any]:
    """The ids of the next aligned rows."""
    return store.pick("aligned", limit, exclude).ids.tolist()


def test_rows_that_were_picked_are_read_by_their_row_ids(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pick serves many batches: none of them looks for its rows in the whole table."""
    from fastfill.adapters.lance import rows as adapter

    ids = values(10)["id"]
    every = store.pick("aligned", 10, ())
    monkeypatch.setattr(adapter, "one_of", None)  # the condition of a look by ids
    for first in range(0, 10, 3):
        batch = every.take(slice(first, first + 3))
        rows = store.read(batch, old=False)
        assert sorted(rows.ids) == sorted(ids[::-1][first : first + 3])
        assert store.write(rows, new_vectors(rows), Marks("new", "m")) == len(batch)
    assert store.counts() == {("new", "m"): 10}


def test_rows_that_have_moved_since_they_were_picked_are_found(store: Any, tmp_path: Path) -> None:
    """After edits and a compaction by others every row is still read, and only itself."""
    every = store.pick("aligned", 10, ())
    owner = lancedb.connect(tmp_path).open_table("photos")
    owner.update(where="album = 1", values={"text": "edited"})
    owner.delete("album = 2")
    owner.optimize()
    rows = store.read(every)
    data = values(10)
    left = {key for key, album in zip(data["id"], data["album"], strict=True) if album != 2}
    assert len(rows) == len(left)
    assert set(rows.ids) == left
    assert sorted(rows.inputs.tolist()).count("edited") == 3


def test_picks_see_what_others_have_committed(store: Any, tmp_path: Path) -> None:
    """Rows that someone else has taken or made urgent are seen by the next pick."""
    ids = values(10)["id"]
    assert picked(store, 2) == [ids[9], ids[8]]
    owner = lancedb.connect(tmp_path).open_table("photos")
    owner.update(where="ff_vector_priority = 9", values={"ff_vector_generation": "new"})
    owner.update(where="ff_vector_priority = 0", values={"ff_vector_priority": 99})
    assert picked(store, 2) == [ids[0], ids[8]]


def test_picks_follow_new_priorities(store: Any) -> None:
    """Rows that are aligned again come in the order of their new priorities."""
    ids = values(10)["id"]
    assert picked(store, 1) == [ids[9]]
    align(store, ids, range(10, 0, -1))
    assert picked(store, 2) == [ids[0], ids[1]]


def test_a_pick_of_few_rows_from_many_blocks(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best rows of the whole table are kept, although most are let go of on the way."""
    from fastfill.adapters.lance import reads

    monkeypatch.setattr(reads, "MARK_ROWS", 1)
    ids = values(10)["id"]
    assert picked(store, 2) == [ids[9], ids[8]]
    assert picked(store, 3, {ids[9], ids[7]}) == [ids[8], ids[6], ids[5]]
    embed(store, ids[5:])
    assert picked(store, 9) == ids[4::-1]
