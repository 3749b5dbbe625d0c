"""`fastfill doctor` changes nothing: a whole snapshot of each store is what it was before."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fastfill.cli.main import commands, load_commands
from fastfill.gallery import Gallery
from fastfill.migrate import Migration
from fastfill.wiring import open_store

ROWS, DIM = 40, 5
Take = Callable[[], Any]


def rows(key: Callable[[int], Any]) -> dict[str, list[Any]]:
    """What an owner has: ids, texts, vectors."""
    vectors = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
    return {
        "id": [key(n) for n in range(ROWS)],
        "text": [f"text {n}" for n in range(ROWS)],
        "vector": vectors.tolist(),
    }


def encode(texts: Any) -> Any:
    """The new model."""
    return np.stack([np.random.default_rng(len(t) + ord(t[-1])).normal(size=3) for t in texts])


def check_unchanged(url: str, take: Take) -> None:
    """By a doctor before any migration, and by one amid a migration with all its documents."""
    load_commands()
    for during in (False, True):
        if during:
            with closing(open_store(url)) as store:
                gallery = Gallery(store, input="text", distance="l2")
                Migration(gallery, encode, encoder_name="of:a_test").start(20, method="ridge")
        before = take()
        done = CliRunner().invoke(commands, ["doctor", url, "--input", "text", "--json"])
        answer = json.loads(done.stdout)
        assert done.exit_code == 0, answer
        assert ("migration" in [check["check"] for check in answer["checks"]]) == during
        assert take() == before
        assert before


def files(folder: Path) -> dict[str, str]:
    """Every file of a folder, and what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def tables(path: Path) -> dict[str, list[Any]]:
    """Every table of a file of SQLite, and the statements that make it."""
    with closing(sqlite3.connect(path)) as connection:
        made = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        taken = {n: connection.execute(f'SELECT * FROM "{n}"').fetchall() for (n,) in names}
    return {"made": made, **taken}


def test_a_folder_of_lancedb_is_as_it_was(tmp_path: Path) -> None:
    """No file is added, replaced or taken away."""
    lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    owned = rows(int)
    flat = pa.array(np.concatenate(owned["vector"]), pa.float32())
    vectors = pa.FixedSizeListArray.from_arrays(flat, DIM)
    table = pa.table({"id": owned["id"], "text": owned["text"], "vector": vectors})
    lancedb.connect(tmp_path).create_table("photos", table)
    check_unchanged(f"lance://{tmp_path}#photos.vector", lambda: files(tmp_path))


def test_a_file_of_sqlite_is_as_it_was(tmp_path: Path) -> None:
    """All tables, those of FastFill too, and how they are made."""
    pytest.importorskip("sqlite_vec", reason="sqlite-vec is not installed")
    from sqlite_world import fill

    path = tmp_path / "photos.db"
    fill(path, rows(int), "CREATE TABLE photos (id INTEGER PRIMARY KEY, text TEXT, vector BLOB)")
    check_unchanged(f"sqlite://{path}#photos.vector", lambda: tables(path))


def test_a_folder_of_chroma_is_as_it_was(tmp_path: Path) -> None:
    """All records and collections, and the log to which every write goes."""
    pytest.importorskip("chromadb", reason="chromadb is not installed")
    from chroma_world import fill, open_owner

    fill(open_owner(tmp_path), rows(str))
    check_unchanged(f"chroma://{tmp_path}#photos", lambda: tables(tmp_path / "chroma.sqlite3"))


def test_a_redis_is_as_it_was(redis_owner: Any, redis_place: str) -> None:
    """Every key, by its bytes, and how the index is made."""
    from redis_world import fill

    fill(redis_owner, rows("photo:{}".format), dim=DIM)

    def take() -> Any:
        info = redis_owner.execute_command("FT.INFO", "photos")
        known = dict(zip(info[::2], info[1::2], strict=True))
        made = [known.get(name, known.get(name.encode())) for name in ("attributes", "num_docs")]
        indexes = redis_owner.execute_command("FT._LIST")
        keys = sorted(redis_owner.scan_iter())
        return made, indexes, {key: redis_owner.dump(key) for key in keys}

    check_unchanged(f"{redis_place}#photos.vector", take)


def test_a_postgres_is_as_it_was(postgres: str) -> None:
    """Every row and its version, all tables, columns, indexes and triggers."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    owned = rows(int)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE photos (id int PRIMARY KEY, text text, vector vector)")
        values = zip(owned["id"], owned["text"], map(str, owned["vector"]), strict=True)
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO photos VALUES (%s, %s, %s::vector)", list(values))

    def take() -> Any:
        with psycopg.connect(postgres) as connection:
            made = [
                connection.execute(f"SELECT {what} ORDER BY 1, 2").fetchall()
                for what in (
                    "table_name, column_name, data_type FROM information_schema.columns "
                    "WHERE table_schema = 'public'",
                    "indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
                    "tgname, tgrelid::regclass::text FROM pg_trigger",
                )
            ]
            names = sorted({name for name, _, _ in made[0]})
            kept = [
                connection.execute(f'SELECT xmin, ctid::text, t::text FROM "{name}" t').fetchall()
                for name in names
            ]
        return made, dict(zip(names, kept, strict=True))

    check_unchanged(f"{postgres}#photos.vector", take)


def test_a_qdrant_is_as_it_was(qdrant_owner: Any, qdrant_server: str) -> None:
    """Every point of every collection, and how they are made."""
    from qdrant_world import fill

    fill(qdrant_owner, rows(int), vector="vector", dim=DIM)

    def take() -> Any:
        taken = {}
        for one in qdrant_owner.get_collections().collections:
            points, _ = qdrant_owner.scroll(
                one.name, limit=1_000, with_payload=True, with_vectors=True
            )
            made = qdrant_owner.get_collection(one.name)
            taken[one.name] = (made.config, made.payload_schema, points)
        return taken, qdrant_owner.get_aliases()

    check_unchanged(f"qdrant://{qdrant_server}#photos.vector", take)
