"""`fastfill doctor`: planted faults are found, good tables are not blamed, nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fastfill.cli.main import commands, load_commands
from fastfill.gallery import Gallery, Inspectable, MemoryStore, change_state
from fastfill.migrate import Migration, diagnose
from fastfill.migrate.planning import MARK_BYTES, size
from fastfill.wiring import open_store

lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

ROWS, DIM = 60, 4
Vectors = np.ndarray[Any, Any]


def vectors() -> Vectors:
    """Of one model: different items, lengths that vary."""
    return np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)


def texts() -> list[str | None]:
    """One for each item."""
    return [f"text {n}" for n in range(ROWS)]


def doctor(url: str, *options: str) -> tuple[int, dict[str, str], dict[str, Any]]:
    """The exit code, the level of each check by its name, and the whole answer."""
    load_commands()
    done = CliRunner().invoke(commands, ["doctor", url, "--json", *options])
    answer = json.loads(done.stdout)
    order = ["ok", "warning", "problem"]
    levels: dict[str, str] = {}
    for check in answer["checks"]:
        before = levels.get(check["check"], "ok")
        levels[check["check"]] = max(before, check["level"], key=order.index)
    return done.exit_code, levels, answer


def lance_table(
    folder: Path, old: Vectors, inputs: Sequence[str | None], ids: Sequence[int] = range(ROWS)
) -> str:
    """A LanceDB table of these rows; its URL."""
    flat = pa.FixedSizeListArray.from_arrays(pa.array(old.ravel()), old.shape[1])
    table = pa.table({"id": list(ids), "text": pa.array(inputs, pa.string()), "vector": flat})
    lancedb.connect(folder).create_table("photos", table, on_bad_vectors="fill", mode="overwrite")
    return f"lance://{folder}#photos.vector"


def test_a_good_table_passes(tmp_path: Path) -> None:
    """Where nothing is wrong every check is ok, the exit code is 0 and nothing is written."""
    url = lance_table(tmp_path, vectors(), texts())
    before = sorted(tmp_path.rglob("*"))
    code, levels, answer = doctor(url, "--input", "text", "--distance", "l2")
    assert (code, set(levels.values())) == (0, {"ok"})
    assert (answer["rows"], answer["sampled"], answer["good"]) == (ROWS, ROWS, True)
    assert sorted(tmp_path.rglob("*")) == before


def zero(old: Vectors, inputs: list[Any], ids: list[int]) -> None:
    """A vector without a direction."""
    old[7] = 0


def empty_input(old: Vectors, inputs: list[Any], ids: list[int]) -> None:
    """An input of blanks."""
    inputs[7] = " "


def no_input(old: Vectors, inputs: list[Any], ids: list[int]) -> None:
    """No input at all."""
    inputs[7] = None


def same_vector(old: Vectors, inputs: list[Any], ids: list[int]) -> None:
    """Two items that no search tells apart."""
    old[7] = old[8]


def same_id(old: Vectors, inputs: list[Any], ids: list[int]) -> None:
    """Two rows under one id."""
    ids[7] = ids[8]


def two_models(old: Vectors, inputs: list[Any], ids: list[int]) -> None:
    """One text with the vectors of two models."""
    inputs[7] = inputs[8]


def normalised_rows(old: Vectors, inputs: list[Any], ids: list[int]) -> None:
    """Some rows of unit length among others that are not."""
    old[:12] /= np.linalg.norm(old[:12], axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("plant", "name", "level"),
    [
        (zero, "zero vectors", "problem"),
        (empty_input, "missing inputs", "problem"),
        (no_input, "missing inputs", "problem"),
        (same_vector, "duplicate vectors", "warning"),
        (same_id, "duplicate ids", "problem"),
        (two_models, "mixed models", "problem"),
        (normalised_rows, "mixed models", "problem"),
    ],
)
def test_planted_faults_are_found(
    tmp_path: Path, plant: Callable[..., None], name: str, level: str
) -> None:
    """Each fault is named, and only problems make the exit code 1."""
    old, inputs, ids = vectors(), texts(), list(range(ROWS))
    plant(old, inputs, ids)
    url = lance_table(tmp_path, old, inputs, ids)
    code, levels, _ = doctor(url, "--input", "text", "--distance", "cosine")
    assert levels[name] == level
    assert code == (1 if level == "problem" else 0)
    assert {key for key, value in levels.items() if value != "ok"} == {name}


def test_non_finite_numbers_are_found(tmp_path: Path) -> None:
    """A vector with an infinite number is a problem, and its id is told."""
    old = vectors()
    old[7, 2] = np.inf
    code, levels, answer = doctor(lance_table(tmp_path, old, texts()), "--distance", "l2")
    assert (code, levels["non-finite vectors"]) == (1, "problem")
    assert [c["ids"] for c in answer["checks"] if c["check"] == "non-finite vectors"] == [[7]]


def test_a_sample_is_told_as_one(tmp_path: Path) -> None:
    """Of a table that is larger than the sample so many rows are read, and people are told."""
    url = lance_table(tmp_path, vectors(), texts())
    _, _, answer = doctor(url, "--sample", "20", "--distance", "l2")
    assert (answer["rows"], answer["sampled"]) == (ROWS, 20)
    shown = CliRunner().invoke(commands, ["doctor", url, "--sample", "20"])
    assert "a random sample of 20 of them" in shown.stdout
    assert shown.stderr == ""


def test_too_little_space_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than every row once more, and what is added, is not enough; a byte more is."""
    url = lance_table(tmp_path, vectors(), texts())
    with closing(open_store(url)) as store:
        Gallery(store, input="text", distance="l2")
        assert isinstance(store, Inspectable)
        stored = store.inspect(1, seed=0).stored_bytes
    assert stored is not None
    needed = stored + ROWS * (4 * 8 + MARK_BYTES)
    usage = shutil.disk_usage(tmp_path)
    for free, level in ((needed, "problem"), (needed + 1, "ok")):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        code, levels, answer = doctor(url, "--input", "text", "--distance", "l2", "--dim", "8")
        assert (code, levels["space"]) == (int(level == "problem"), level)
        (text,) = (c["text"] for c in answer["checks"] if c["check"] == "space")
        assert f"up to {size(needed)} are needed for a while, {size(free)} are free" in text


def test_marks_of_another_model_are_found() -> None:
    """Amid a migration, rows of a model that is not the present one; before it, nobody asks."""
    rows = {"id": range(ROWS), "text": texts(), "vector": vectors()}
    store = MemoryStore(rows, distance="l2")

    def mixed() -> list[str]:
        found = diagnose(Gallery(store, input="text"))
        return [check.text for check in found.checks if check.name == "mixed models"]

    assert mixed() == []
    gallery = Gallery(store, input="text")
    Migration(gallery, lambda items: vectors()[: len(items), :3] + 1).start(20, method="ridge")
    assert mixed() == []
    change_state(store, lambda state: replace(state, model="another"))
    (text,) = mixed()
    assert text.startswith(f"20 of the {ROWS} rows that were looked at bear marks of other models")


def test_an_index_of_another_distance_is_a_problem(tmp_path: Path) -> None:
    """An index that searches by the distance of the gallery cannot use is named."""
    from lancedb.index import IvfFlat

    url = lance_table(tmp_path, vectors(), texts())
    table = lancedb.connect(tmp_path).open_table("photos")
    table.create_index("vector", config=IvfFlat(distance_type="l2", num_partitions=1))
    assert doctor(url, "--distance", "cosine")[1]["indexes"] == "problem"
    assert doctor(url)[1]["indexes"] == "ok"


def test_a_column_of_lists_is_refused_as_json(tmp_path: Path) -> None:
    """Vectors of no fixed length cannot be migrated: that is a problem, not a crash."""
    rows = [{"id": 1, "numbers": [1.0, 2.0]}, {"id": 2, "numbers": [1.0, 2.0, 3.0]}]
    kind = pa.schema([("id", pa.int64()), ("numbers", pa.list_(pa.float32()))])
    lancedb.connect(tmp_path).create_table("photos", pa.Table.from_pylist(rows, kind))
    code, levels, answer = doctor(f"lance://{tmp_path}#photos.numbers")
    assert (code, levels) == (1, {"opening": "problem"})
    assert "not vectors" in answer["checks"][0]["text"]


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Every verb refuses it, with the columns that there are, also beside another migration."""
    url = lance_table(tmp_path, vectors(), texts())
    sentence = "there is no column 'vectors', only id, text, vector"
    for _ in range(2):
        code, levels, answer = doctor(f"{url}s")
        assert (code, levels) == (1, {"opening": "problem"})
        assert sentence in answer["checks"][0]["text"]
        for verb in ("status", "rollback"):
            done = CliRunner().invoke(commands, [verb, f"{url}s"])
            assert sentence in str(done.exception)
        with closing(open_store(url)) as store:
            gallery = Gallery(store, input="text", distance="l2")
            Migration(gallery, lambda items: [[len(t), int(t.split()[1])] for t in items]).pairs(30)


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """A path that was mistyped is named, and nothing is left behind."""
    code, _, answer = doctor(f"lance://{tmp_path / 'nowhere'}#photos.vector")
    assert code == 1
    assert "nowhere is no folder" in answer["checks"][0]["text"]
    assert not (tmp_path / "nowhere").exists()


@pytest.fixture
def photos(postgres: str) -> str:
    """The URI of a database with a good table."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE photos (id int PRIMARY KEY, text text, vector vector)")
        rows = zip(range(ROWS), texts(), (str(v) for v in vectors().tolist()), strict=True)
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO photos VALUES (%s, %s, %s::vector)", list(rows))
    return postgres


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("UPDATE photos SET vector = '[1,2,3]' WHERE id = 7", "mixed dimensions"),
        ("UPDATE photos SET vector = '[0,0,0,0]' WHERE id = 7", "zero vectors"),
        ("UPDATE photos SET text = NULL WHERE id = 7", "missing inputs"),
        ("UPDATE photos SET text = 'text 8' WHERE id = 7", "mixed models"),
        ("ALTER TABLE photos ADD COLUMN ff_vector_model text", "names"),
        (
            "ALTER TABLE photos ALTER vector TYPE vector(4); "
            "CREATE INDEX ON photos USING hnsw (vector vector_l2_ops)",
            "indexes",
        ),
        (
            "ALTER TABLE photos ALTER vector TYPE vector(4); "
            "CREATE INDEX broken ON photos USING hnsw (vector vector_cosine_ops); "
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'broken'::regclass",
            "indexes",
        ),
        ("ALTER TABLE photos DROP CONSTRAINT photos_pkey", "opening"),
    ],
)
def test_planted_faults_of_postgres_are_found(photos: str, fault: str, name: str) -> None:
    """The same on PostgreSQL, with the faults that only its tables can have."""
    with psycopg.connect(photos, autocommit=True) as connection:
        connection.execute(fault)
    code, levels, _ = doctor(f"{photos}#photos.vector", "--input", "text", "--distance", "cosine")
    assert (code, levels[name]) == (1, "problem")
    assert [value for value in levels.values() if value == "problem"] == ["problem"]


def test_permissions_are_looked_at(photos: str) -> None:
    """A user who may only read is told what a migration would need; the owner has it all."""
    url = f"{photos}#photos.vector"
    assert doctor(url, "--distance", "l2")[1]["permissions"] == "ok"
    with psycopg.connect(photos, autocommit=True) as connection:
        connection.execute(
            "DO $$ BEGIN CREATE ROLE reader LOGIN; EXCEPTION WHEN duplicate_object THEN END $$; "
            "GRANT SELECT ON photos TO reader; REVOKE CREATE ON SCHEMA public FROM public"
        )
    separator = "&" if "?" in photos else "?"
    as_reader = f"{photos}{separator}options=-crole%3Dreader#photos.vector"
    code, levels, answer = doctor(as_reader, "--distance", "l2")
    assert (code, levels["permissions"]) == (1, "problem")
    text = next(c["text"] for c in answer["checks"] if c["check"] == "permissions")
    assert all(word in text for word in ("UPDATE", "owner", "fastfill_documents"))
    assert "SELECT" not in text


def test_a_huge_postgres_table_is_sampled_by_pages(photos: str) -> None:
    """Of many more rows than the sample only random pages are read."""
    with psycopg.connect(photos, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO photos SELECT n, 'x' || n, format('[%s,1,2,3]', n)::vector "
            "FROM generate_series(1000, 6000) n"
        )
        connection.execute("ANALYZE photos")
    _, _, answer = doctor(f"{photos}#photos.vector", "--distance", "l2", "--sample", "300")
    assert answer["rows"] == ROWS + 5_001
    assert 0 < answer["sampled"] <= 300


def test_qdrant_is_looked_at_too(tmp_path: Path) -> None:
    """Points without input, or zero, are found among random ones of a collection."""
    client = pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    models, old = client.models, vectors()
    old[7] = 0
    opened = client.QdrantClient(path=str(tmp_path))
    params = models.VectorParams(size=DIM, distance=models.Distance.EUCLID)
    opened.create_collection("photos", params)
    payloads = [{"text": text} if n != 8 else {} for n, text in enumerate(texts())]
    points = zip(range(ROWS), old.tolist(), payloads, strict=True)
    opened.upsert("photos", [models.PointStruct(id=n, vector=v, payload=p) for n, v, p in points])
    opened.close()
    code, levels, answer = doctor(f"qdrant+local://{tmp_path}#photos", "--input", "text")
    assert (code, answer["sampled"]) == (1, ROWS)
    wrong = {name: level for name, level in levels.items() if level != "ok"}
    assert wrong == {"missing inputs": "problem", "zero vectors": "warning"}
