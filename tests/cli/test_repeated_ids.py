"""Ids that several rows bear, from the command line, on LanceDB."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.gallery import Gallery
from fastfill.wiring import open_store

lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

URL = "lance://./db#photos.vector"
ROWS = 200
Fastfill = Callable[..., Any]


def old(text: str) -> Any:
    """What the old model made of a text."""
    seed = sum(map(ord, text)) * 1_000 + len(text) * 7 + int(text.split()[1])
    return np.random.default_rng(seed).standard_normal(6).astype(np.float32)


MIX = np.random.default_rng(5).standard_normal((6, 8)).astype(np.float32)


def encode(texts: Any) -> Any:
    """The new model."""
    return np.tanh(np.stack([old(str(text)) for text in texts]) @ MIX)


def photos(ids: list[Any], first: int = 0) -> Any:
    """Rows of a table under these ids, with a text of their own each."""
    texts = [f"text {first + n}" for n in range(len(ids))]
    flat = pa.array(np.concatenate([old(text) for text in texts]))
    vectors = pa.FixedSizeListArray.from_arrays(flat, 6)
    albums = [n % 20 for n in range(len(ids))]
    return pa.table({"id": ids, "album": albums, "text": texts, "vector": vectors})


@pytest.fixture
def fastfill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fastfill:
    """Run the command in a folder of its own; returns click's result."""
    from click.testing import CliRunner

    from fastfill.cli.main import commands, load_commands

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "repeated_ids_encoder", sys.modules[__name__])
    load_commands()
    return lambda *arguments: CliRunner().invoke(commands, arguments)


def begin(fastfill: Fastfill, verb: str, *options: str) -> Any:
    """`plan` or `start` with what they must be told."""
    told = ("--input", "text", "--encoder", "repeated_ids_encoder:encode", "--distance", "l2")
    return fastfill(verb, URL, *told, *options)


@pytest.mark.parametrize("verb", ["plan", "start", "pairs"])
def test_ids_that_do_not_tell_rows_apart_are_refused(fastfill: Fastfill, verb: str) -> None:
    """Before anything is written a sentence names some of them, and the way out."""
    lancedb.connect("db").create_table("photos", photos(list(range(ROWS))))
    before = lancedb.connect("db").open_table("photos").version
    refused = begin(fastfill, verb, "--id", "album")
    assert refused.exit_code == 1
    told = str(refused.exception)
    assert "column 'album' does not tell rows apart: 20 of its values are in more than" in told
    assert "Name one with --id that does" in told
    assert lancedb.connect("db").open_table("photos").version == before
    assert begin(fastfill, verb).exit_code == 0


def test_rows_without_an_id_are_refused(fastfill: Fastfill) -> None:
    """Nothing could be written to them alone."""
    lancedb.connect("db").create_table("photos", photos([None, "a", "a", "b", None, "c"]))
    told = str(begin(fastfill, "plan").exception)
    assert "one of its values is in more than one row (a) and 2 rows have none" in told


def test_ids_that_are_repeated_later_hold_nothing_up(fastfill: Fastfill) -> None:
    """Each row gets the vector of its own text, and learning again leaves the second one out."""
    table = lancedb.connect("db").create_table("photos", photos(list(range(ROWS))))
    assert begin(fastfill, "start", "--pairs", "60", "--method", "ridge").exit_code == 0
    names = table.schema.names
    later = photos(list(range(60)), first=500)
    table.checkout_latest()
    table.add(later.select([name for name in names if name in later.column_names]))
    ended = fastfill("backfill", URL, "--refit", "5%", "--batch", "16")
    assert ended.exit_code == 0, ended.output
    assert "260/260" in ended.output
    assert fastfill("complete", URL).exit_code == 0
    rows = lancedb.connect("db").open_table("photos").to_arrow()
    assert rows.num_rows == ROWS + 60
    vectors = np.stack(rows["vector_new"].to_numpy(zero_copy_only=False))
    np.testing.assert_allclose(vectors, encode(rows["text"].to_pylist()), rtol=1e-5)


def test_doctor_and_start_count_the_same(fastfill: Fastfill) -> None:
    """All ids are looked at, however small the sample is."""
    lancedb.connect("db").create_table("photos", photos([*range(ROWS - 1), 5]))
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
