"""Ids that several rows bear, from the command line, on LanceDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lance_photos import OPTIONS, ROWS, URL, Fastfill, commands_in, create, encode, photos, table

from fastfill.gallery import Gallery
from fastfill.wiring import open_store

pytest.importorskip("lancedb", reason="LanceDB is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.fixture
def fastfill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fastfill:
    """Run the command in a folder of its own."""
    return commands_in(tmp_path, monkeypatch)


def begin(fastfill: Fastfill, verb: str, *options: str) -> Any:
    """`plan` or `start` with what they must be told."""
    return fastfill(verb, URL, *OPTIONS, *options)


@pytest.mark.parametrize("verb", ["plan", "start", "pairs"])
def test_ids_that_do_not_tell_rows_apart_are_refused(fastfill: Fastfill, verb: str) -> None:
    """Before anything is written a sentence names some of them, and the way out."""
    create()
    before = table().version
    refused = begin(fastfill, verb, "--id", "album")
    assert refused.exit_code == 1
    told = str(refused.exception)
    assert "column 'album' does not tell rows apart: 20 of its values are in more than" in told
    assert "Name one with --id that does" in told
    assert table().version == before
    assert begin(fastfill, verb).exit_code == 0


def test_rows_without_an_id_are_refused(fastfill: Fastfill) -> None:
    """Nothing could be written to them alone."""
    create([None, "a", "a", "b", None, "c"])
    told = str(begin(fastfill, "plan").exception)
    assert "one of its values is in more than one row (a) and 2 rows have none" in told


def test_ids_that_are_repeated_later_hold_nothing_up(fastfill: Fastfill) -> None:
    """Each row gets the vector of its own text, and learning again leaves the second one out."""
    create()
    assert begin(fastfill, "start", "--pairs", "60", "--method", "ridge").exit_code == 0
    table().add(photos(list(range(60)), first=500))
    ended = fastfill("backfill", URL, "--refit", "5%", "--batch", "16")
    assert ended.exit_code == 0, ended.output
    assert "260/260" in ended.output
    assert fastfill("complete", URL).exit_code == 0
    rows = table().to_arrow()
    assert rows.num_rows == ROWS + 60
    vectors = np.stack(rows["vector_new"].to_numpy(zero_copy_only=False))
    np.testing.assert_allclose(vectors, encode(rows["text"].to_pylist()), rtol=1e-5)


def test_doctor_and_start_count_the_same(fastfill: Fastfill) -> None:
    """All ids are looked at, however small the sample is."""
    create([*range(ROWS - 1), 5])
    looked = fastfill("doctor", URL, "--input", "text", "--distance", "l2", "--sample", "3")
    assert looked.exit_code == 1
    assert "one of its values is in more than one row (5)" in looked.output


def test_the_memory_store_needs_no_look() -> None:
    """A store that keeps ids apart by itself is not asked."""
    from fastfill.gallery import MemoryStore, repeated_ids_of

    store = MemoryStore({"id": [1], "text": ["a"], "vector": [[1.0, 0.0]]})
    assert repeated_ids_of(store) is None


def test_a_view_of_sqlite_is_looked_at(tmp_path: Path) -> None:
    """Nothing keeps the ids of a view apart; those of a table cannot be repeated."""
    import sqlite3

    pytest.importorskip("sqlite_vec", reason="sqlite-vec is not installed")
    from fastfill.gallery import repeated_ids_of

    path = tmp_path / "photos.db"
    with sqlite3.connect(path) as owner:
        owner.execute("CREATE TABLE photos (id INTEGER PRIMARY KEY, place INTEGER, vector BLOB)")
        row = np.zeros(2, np.float32).tobytes()
        owner.executemany(
            "INSERT INTO photos VALUES (?, ?, ?)", [(n, n // 2, row) for n in (1, 2, 3)]
        )
        owner.execute("INSERT INTO photos VALUES (9, NULL, ?)", [row])
        owner.execute("CREATE VIEW seen AS SELECT place AS id, vector FROM photos")
    owner.close()
    found = {}
    for target in ("photos", "seen"):
        store = open_store(f"sqlite://{path}#{target}.vector")
        found[target] = repeated_ids_of(Gallery(store).store)
        store.close()
    assert not found["photos"]
    assert str(found["seen"]) == "one of its values is in more than one row (1) and a row has none"
