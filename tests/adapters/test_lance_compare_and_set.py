"""The compare-and-set on LanceDB, against owners who write in every way that there is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.gallery import Rows, Settled
from fastfill.testing import COLUMNS, NEW_DIM, OLD_DIM, marks, new_vectors, values

lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def open_store(path: Path, **extra: Any) -> tuple[Any, Any]:
    """An expanded store over ten rows, and the owner's own handle."""
    from fastfill.adapters.lance import LanceStore

    kinds = {"vector": pa.list_(pa.float32(), OLD_DIM), "album": pa.int64()}
    data = values(10)
    columns = {n: pa.array(v, kinds.get(n, pa.string())) for n, v in data.items()} | extra
    lancedb.connect(path).create_table("photos", pa.table(columns))
    store = LanceStore(str(path), "photos", "vector")
    store.bind(COLUMNS)
    store.expand(NEW_DIM)
    return store, lancedb.connect(path).open_table("photos")


def latest(owner: Any, *names: str) -> dict[str, tuple[Any, ...]]:
    """The owner's columns by id."""
    owner.checkout_latest()
    rows = owner.search().select(["id", *names]).limit(100).to_arrow().to_pylist()
    return {row["id"]: tuple(row[name] for name in names) for row in rows}


def edit_in_place(owner: Any, key: str, **changes: Any) -> None:
    """Change columns where they are, as LanceDB does for an owner with an index on the key."""
    from lancedb.index import BTree

    owner.checkout_latest()
    owner.create_index("id", config=BTree(), replace=True)
    schema = owner.schema
    source = {"id": [key]} | {n: pa.array([v], schema.field(n).type) for n, v in changes.items()}
    where = f"id = '{key.replace(chr(39), chr(39) * 2)}'"

    def address() -> int:
        found = owner.search().where(where).select(["_rowaddr"]).limit(1).to_arrow()
        return int(found["_rowaddr"][0].as_py())

    before = address()
    owner.merge_insert("id").when_matched_update_all().execute(pa.table(source))
    assert address() == before, "the row has moved: this edit was not in place"


def test_an_edit_in_place_since_the_reading_is_seen(tmp_path: Path) -> None:
    """A row whose text changed without moving is not written; its neighbours are."""
    store, owner = open_store(tmp_path)
    rows = store.read(["it's 1", "it's 2"])
    edit_in_place(owner, "it's 1", text="edited")
    assert store.write(rows, new_vectors(rows), marks("new", rows)) == 1
    assert latest(owner, "text", "ff_vector_generation")["it's 1"] == ("edited", None)


def test_an_edit_in_place_during_the_merge_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's value survives a commit between the comparison and the merge."""
    store, owner = open_store(tmp_path)
    rows = store.read(["it's 1", "it's 2"])
    merge, edits = store._writes._merge._merge, [("it's 1", 77)]

    def race(*arguments: Any) -> int:
        while edits:
            key, album = edits.pop()
            edit_in_place(owner, key, album=album)
        return int(merge(*arguments))

    monkeypatch.setattr(store._writes._merge, "_merge", race)
    store.write(rows, new_vectors(rows), marks("new", rows))
    found = latest(owner, "album", "ff_vector_generation")
    assert found["it's 1"] == (77, None)
    assert found["it's 2"] == (2, "new")
    left = store.unsettled(Settled(None, "model"), batch=100, changed=True)
    assert "it's 1" in {key for block in left for key in block.ids}


def test_with_an_index_on_the_key_the_owners_columns_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others can edit in place nothing of theirs is brought along, so nothing can be lost."""
    from lancedb.index import BTree

    store, owner = open_store(tmp_path)
    owner.checkout_latest()
    owner.create_index("id", config=BTree())
    rows = store.read(["it's 1", "it's 2"])
    merge, brought = store._writes._merge._merge, []

    def spy(rows: Any, values: Any, owners: Any) -> int:
        brought.append(list(owners))
        return int(merge(rows, values, owners))

    monkeypatch.setattr(store._writes._merge, "_merge", spy)
    assert store.write(rows, new_vectors(rows), marks("new", rows)) == 2
    assert brought == [[]]


def test_columns_that_are_not_ours_are_never_written_back_stale(tmp_path: Path) -> None:
    """A column that the migration does not look at keeps what its owner wrote meanwhile."""
    store, owner = open_store(tmp_path)
    rows = store.read(values(10)["id"])
    owner.checkout_latest()
    owner.update(where="id = 'it''s 3'", values={"album": 88})
    edit_in_place(owner, "it's 4", album=99)
    assert store.write(rows, new_vectors(rows), marks("new", rows)) == 10
    found = latest(owner, "album", "ff_vector_generation")
    assert found["it's 3"] == (88, "new")
    assert found["it's 4"] == (99, "new")


def test_a_compaction_costs_no_row(tmp_path: Path) -> None:
    """Rows that were moved by a compaction since they were read are found again and written."""
    store, owner = open_store(tmp_path)
    rows = store.read(values(10)["id"])
    owner.checkout_latest()
    owner.delete("id = 'it''s 9'")
    owner.add(owner.search().limit(1).to_arrow().set_column(0, "id", pa.array(["another"])))
    owner.optimize()
    assert store.write(rows, new_vectors(rows), marks("new", rows)) == 9


def test_an_id_that_is_there_twice_is_written_row_by_row(tmp_path: Path) -> None:
    """Each of two rows of one id keeps its own content."""
    store, owner = open_store(tmp_path)
    owner.checkout_latest()
    double = owner.search().where("id = 'it''s 1'").limit(1).to_arrow()
    owner.add(double.set_column(1, "text", pa.array(["the other"])))
    for _ in range(2):
        for rows in store.unsettled(Settled(None, "model"), batch=100, changed=False):
            store.write(rows, new_vectors(rows), marks("new", rows))
    table = lancedb.connect(tmp_path).open_table("photos")
    found = table.search().where("id = 'it''s 1'").limit(9).to_arrow().to_pylist()
    assert sorted(row["text"] for row in found) == sorted(["the other", "text 1 ü\n'\""])
    assert {row["ff_vector_generation"] for row in found} == {"new"}


@pytest.mark.parametrize("kind", ["nested", "list", "vector"])
def test_columns_of_every_kind_stay_as_they_are(tmp_path: Path, kind: str) -> None:
    """Columns that the client would mend or cannot write back are left where they are."""
    other = np.arange(10 * 12, dtype=np.float32).reshape(10, 12)
    extra = {
        "nested": pa.array([{"a": n} for n in range(10)]),
        "list": pa.array([[float(n)] * n for n in range(10)]),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(other.ravel()), 12),
    }[kind]
    store, owner = open_store(tmp_path, extra=extra)
    before = latest(owner, "extra", "album")
    rows = store.read(values(10)["id"])
    assert store.write(rows, new_vectors(rows), marks("new", rows)) == 10
    assert latest(owner, "extra", "album") == before


def test_rows_with_a_nan_are_not_written_back_whole() -> None:
    """LanceDB's client would put a null in the place of such a vector."""
    from fastfill.adapters.lance.arrow import whole

    vectors = np.ones((4, 12), dtype=np.float32)
    vectors[1, 3] = np.nan
    column = pa.FixedSizeListArray.from_arrays(
        pa.array(vectors.ravel()), 12, mask=pa.array([False, False, True, False])
    )
    assert whole(pa.table({"v": column})).tolist() == [True, False, True, True]


def test_nothing_is_read_again_when_no_one_else_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch after batch is written from the rows that were read."""
    store, owner = open_store(tmp_path)

    def never(*_: Any) -> Any:
        raise AssertionError("the rows were read again")

    monkeypatch.setattr(store._writes._merge, "_again", never)
    blocks: list[Rows] = []
    for rows in store.unsettled(Settled("map", "model"), batch=3, changed=False):
        blocks.append(rows)
        assert store.write(rows, new_vectors(rows), marks("aligned", rows)) == len(rows)
    assert len(blocks) == 4
    rows = store.read(store.pick("aligned", 5, ()))
    assert store.write(rows, new_vectors(rows), marks("new", rows)) == 5
    with ThreadPoolExecutor(1) as thread:  # read ahead, before another batch is written
        picked = store.pick("aligned", 9, ())
        first, second = (store.read(picked.take([n])) for n in range(2))
        ahead = thread.submit(store.read, picked.take(slice(2, None)))
        rows = ahead.result()
        assert store.write(first, new_vectors(first), marks("new", first)) == 1
        assert store.write(second, new_vectors(second), marks("new", second)) == 1
        assert store.write(rows, new_vectors(rows), marks("aligned", rows)) == 3
    monkeypatch.undo()
    owner.checkout_latest()
    rows = store.read(store.pick("aligned", 5, ()))
    owner.update(where="album = 1", values={"text": "edited"})
    assert store.write(rows, new_vectors(rows), marks("new", rows)) < 5
