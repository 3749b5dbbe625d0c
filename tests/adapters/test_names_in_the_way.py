"""Before a migration begins: what it would add must not be there, whoever has made it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from qdrant_world import create_collection, models, qdrant_client

from fastfill.errors import MigrationError
from fastfill.gallery import Gallery
from fastfill.migrate import Migration
from fastfill.testing import OLD_DIM, values
from fastfill.wiring import open_store


class World(NamedTuple):
    """A place for a collection, and its owner's hands."""

    url: str
    run: Callable[[Any], None]  # what the owner does
    look: Callable[[], Any]  # everything that is there


# --- the stores ----------------------------------------------------------------------------------


def lance_world(path: Path) -> World:
    """A LanceDB table in a folder."""
    lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    kinds = {"vector": pa.list_(pa.float32(), OLD_DIM)}
    data = {name: pa.array(column, kinds.get(name)) for name, column in values(20).items()}
    db = lancedb.connect(path)
    db.create_table("photos", pa.table(data))

    def look() -> Any:
        tables = [db.open_table(name) for name in db.list_tables().tables]
        return {table.name: (table.version, table.schema) for table in tables}

    return World(f"lance://{path}#photos.vector", lambda do: do(db), look)


def postgres_world(uri: str) -> World:
    """A PostgreSQL table."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    data = values(20)

    def run(statement: str) -> None:
        with psycopg.connect(uri, autocommit=True) as owner:
            owner.execute(statement)

    run(f"CREATE TABLE photos (id text PRIMARY KEY, text text, vector vector({OLD_DIM}))")
    with psycopg.connect(uri, autocommit=True) as owner:
        rows = zip(data["id"], data["text"], map(str, data["vector"]), strict=True)
        owner.cursor().executemany("INSERT INTO photos VALUES (%s, %s, %s)", list(rows))

    def look() -> Any:
        query = "SELECT table_name, column_name, data_type FROM information_schema.columns "
        query += "WHERE table_schema = 'public' ORDER BY 1, 2"
        with psycopg.connect(uri) as owner:
            rows = owner.execute("SELECT id, xmin::text FROM photos ORDER BY 1").fetchall()
            return owner.execute(query).fetchall(), rows

    return World(f"{uri}#photos.vector", run, look)


def qdrant_world(path: Path, vector: str) -> World:
    """A collection in a folder of Qdrant's local mode."""
    data = values(20, key=int)
    create_collection(path, data, vector=vector)

    def run(do: Any) -> None:
        client = qdrant_client.QdrantClient(path=str(path))
        do(client)
        client.close()

    def look() -> Any:
        client = qdrant_client.QdrantClient(path=str(path))
        names = [each.name for each in client.get_collections().collections]
        there = {n: (client.get_collection(n), client.scroll(n, with_vectors=True)) for n in names}
        client.close()
        return there

    return World(f"qdrant+local://{path}#photos{'.' * bool(vector)}{vector}", run, look)


def sqlite_world(path: Path, kind: str) -> World:
    """A table of SQLite, to which columns are added, or beside which a table is."""
    pytest.importorskip("sqlite_vec", reason="sqlite-vec is not installed")
    from sqlite_world import PLAIN, fill, owner_of

    fill(path, values(20), f"{PLAIN} {kind}")

    def run(statement: str) -> None:
        with owner_of(path) as owner:
            owner.execute(statement)

    return World(f"sqlite://{path}#photos.vector", run, path.read_bytes)


def add_field(name: str) -> Callable[[Any], None]:
    """Add a column to the LanceDB table."""
    import pyarrow as pa

    return lambda db: db.open_table("photos").add_columns([pa.field(name, pa.int64())])


def create(name: str) -> Callable[[Any], None]:
    """Make a Qdrant collection of the owner's own."""
    params = models.VectorParams(size=3, distance=models.Distance.DOT)
    return lambda client: client.create_collection(name, params)


def name_alias(client: Any) -> None:
    """Give the owner's collection another name, which is that of our alias."""
    alias = models.CreateAlias(collection_name="photos", alias_name="photos__vector_new")
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])


def name_vector(client: Any) -> None:
    """Give the owner's points a vector of the name of ours."""
    config = models.DenseVectorConfig(size=3, distance=models.Distance.DOT)
    client.create_vector_name(
        "photos", "image_new", vector_name_config=models.DenseVectorNameConfig(dense=config)
    )


CASES = {
    "lance: a vector": ("lance", lambda: add_field("vector_new"), "vector_new"),
    "lance: a mark": ("lance", lambda: add_field("ff_vector_model"), "ff_vector_model"),
    "lance: the place": ("lance", lambda: add_field("ff_vector_place"), "ff_vector_place"),
    "lance: documents": (
        "lance",
        lambda: lambda db: db.create_table("fastfill", [{"mine": 1}]),
        "fastfill",
    ),
    "postgres: a mark": (
        "postgres",
        lambda: "ALTER TABLE photos ADD ff_vector_priority text",
        "ff_vector_priority",
    ),
    "postgres: the transaction": (
        "postgres",
        lambda: "ALTER TABLE photos ADD ff_vector_xid bigint",
        "ff_vector_xid",
    ),
    "postgres: documents": (
        "postgres",
        lambda: "CREATE TABLE fastfill_documents (mine int)",
        "fastfill_documents",
    ),
    "sqlite: a mark": (
        "sqlite",
        lambda: "ALTER TABLE photos ADD ff_vector_priority TEXT",
        "ff_vector_priority",
    ),
    "sqlite: documents": (
        "sqlite",
        lambda: "CREATE TABLE fastfill_documents (mine)",
        "fastfill_documents",
    ),
    "sqlite: the table beside": (
        "sqlite STRICT",
        lambda: "CREATE TABLE fastfill_photos_vector_new (mine)",
        "fastfill_photos_vector_new",
    ),
    "qdrant: a vector": ("qdrant named", lambda: name_vector, "image_new"),
    "qdrant: the ledger": (
        "qdrant named",
        lambda: create("photos__image_new__fastfill"),
        "photos__image_new__fastfill",
    ),
    "qdrant: documents": ("qdrant", lambda: create("photos__fastfill"), "photos__fastfill"),
    "qdrant: the second collection": (
        "qdrant",
        lambda: create("photos__vector_new"),
        "photos__vector_new",
    ),
    "qdrant: the alias": ("qdrant", lambda: name_alias, "photos__vector_new"),
}


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, unsynced: None) -> Iterator[World]:
    """The store of a case."""
    kind = CASES[request.getfixturevalue("case")][0]
    if kind == "lance":
        yield lance_world(tmp_path / "db")
    elif kind == "postgres":
        yield postgres_world(request.getfixturevalue("postgres"))
    elif kind.startswith("sqlite"):
        yield sqlite_world(tmp_path / "photos.db", kind.removeprefix("sqlite"))
    else:
        yield qdrant_world(tmp_path / "db", "image" if "named" in kind else "")


@pytest.mark.parametrize("case", CASES)
def test_a_name_that_is_taken_is_refused_before_anything_is_done(case: str, world: World) -> None:
    """One sentence names it; nothing was embedded, and nothing was written."""
    _, plant, name = CASES[case]
    world.run(plant())
    before, embedded = world.look(), []

    def encode(texts: Any) -> Any:
        embedded.extend(texts)
        return np.ones((len(texts), 4))

    store = open_store(world.url)
    migration = Migration(Gallery(store, input="text", distance="l2"), encode)
    assert name in store.added
    assert store.occupied() == (name,)
    with pytest.raises(MigrationError) as error:
        migration.start(pairs=20, method="ridge")
    store.close()
    del migration, store  # local mode lets one client in at a time
    assert f"there is already {name}, which no migration has added." in str(error.value)
    assert "\n" not in str(error.value)
    assert embedded == []
    assert world.look() == before


@pytest.mark.parametrize(
    "case", ["lance: a mark", "postgres: a mark", "qdrant: the ledger", "sqlite: the table beside"]
)
def test_the_plan_names_everything_that_is_added(case: str, world: World) -> None:
    """The vector, the marks and what only this store needs are told before they are added."""
    store = open_store(world.url)
    plan = Migration(
        Gallery(store, input="text", distance="l2"),
        lambda texts: np.random.default_rng(0).normal(size=(len(texts), 4)),
    ).plan()
    for name in store.added:
        assert name in str(plan)
    store.close()
