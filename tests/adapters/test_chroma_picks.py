"""Picks from a collection of Chroma's, which cannot sort."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chroma_world import fill, open_owner

from fastfill.adapters.chroma.collection import ChromaCollection
from fastfill.gallery import Columns, Id, Marks, Rows, Settled, Store
from fastfill.wiring import open_store

ROWS, DIM = 900, 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store whose rows are aligned, their priorities not all different."""
    values = {
        "id": [f"item-{n}" for n in range(ROWS)],
        "text": [f"text {n}" for n in range(ROWS)],
        "vector": np.random.default_rng(5).standard_normal((ROWS, DIM)).tolist(),
    }
    fill(open_owner(tmp_path), values)
    opened = open_store(f"chroma://{tmp_path}#photos")
    opened.bind(Columns(id="id", input="text", old="vector"))
    opened.expand(DIM)
    rows = opened.read(values["id"])
    order = Marks("aligned", "map", priority=priorities(rows))
    assert opened.write(rows, np.ones((ROWS, DIM), np.float32), order) == ROWS
    yield opened
    opened.close()


def priorities(rows: Rows) -> Any:
    """(n,) of the numbers in the ids; several rows have the same."""
    numbers = np.array([int(key.removeprefix("item-")) for key in rows.ids])
    return (numbers * 7_919 % 450).astype(np.float32)


def by_sorting(store: Store, exclude: Sequence[Id]) -> list[float]:
    """The priorities of all rows that may be picked, the highest first."""
    ids = [key for rows in store.scan(None, batch=ROWS, new=False) for key in rows.ids]
    rows = store.read([key for key in ids if key not in exclude])
    return sorted(priorities(rows).tolist(), reverse=True)


@pytest.mark.parametrize("limit", [1, 10, 100, 300, 700, ROWS, 2 * ROWS])
def test_the_most_urgent_are_picked(store: Store, limit: int) -> None:
    """As if all had been sorted, without those that are excluded or deleted, each once."""
    first = store.pick("aligned", 60, ()).ids.tolist()
    exclude, deleted = first[:40:2], first[40:]
    store.delete(deleted[:5])
    picked = store.pick("aligned", limit, exclude)
    assert len(set(picked.ids)) == len(picked)
    assert not set(picked.ids) & {*exclude, *deleted[:5]}
    found = priorities(_in_order(store, picked.ids.tolist())).tolist()
    assert found == by_sorting(store, exclude)[:limit]


def test_rows_that_their_owner_has_deleted_leave_none_out(store: Store, tmp_path: Path) -> None:
    """Where the second collection alone still has the most urgent ones, the next ones come."""
    gone = store.pick("aligned", 400, ()).ids.tolist()
    owner = open_owner(tmp_path)
    owner.get_collection("photos", embedding_function=None).delete(ids=gone)
    picked = store.pick("aligned", 30, ())
    assert priorities(_in_order(store, picked.ids.tolist())).tolist() == by_sorting(store, [])[:30]


def test_a_small_pick_reads_few_records(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample, and those above its bound."""
    read: list[int] = []
    records = ChromaCollection.records

    def listen(self: ChromaCollection, ids: Sequence[Id], **options: Any) -> Any:
        read.append(len(ids))
        return records(self, ids, **options)

    monkeypatch.setattr(ChromaCollection, "records", listen)
    assert len(store.pick("aligned", 10, ())) == 10
    assert 256 < sum(read) < 500


def test_a_sweep_of_right_rows_reads_their_marks_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no added vector; a row that was changed comes with its own."""
    asked: list[tuple[str, bool]] = []
    records = ChromaCollection.records

    def listen(self: ChromaCollection, ids: Sequence[Id], **options: Any) -> Any:
        asked.append((self.name, options.get("vectors", False)))
        return records(self, ids, **options)

    monkeypatch.setattr(ChromaCollection, "records", listen)
    settled = Settled(aligned="map", new="model")
    assert not list(store.unsettled(settled, batch=ROWS, changed=True, new=True))
    assert sorted(asked) == [("photos", True), ("photos__vector_new", False)]
    store.upsert({"id": ["item-3"], "text": ["another"]})
    (rows,) = store.unsettled(settled, batch=ROWS, changed=True, new=True)
    assert rows.ids.tolist() == ["item-3"]
    assert rows.new is not None
    assert rows.new.tolist() == [[1.0] * DIM]


def _in_order(store: Store, ids: list[Id]) -> Rows:
    """These rows in the order of the ids."""
    rows = store.read(ids)
    places = {key: place for place, key in enumerate(rows.ids)}
    return rows.take(np.array([places[key] for key in ids]))
