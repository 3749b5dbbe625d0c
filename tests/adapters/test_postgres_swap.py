"""Cut-over under the same name on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fastfill.errors import MigrationError, StoreError
from fastfill.gallery import Gallery
from fastfill.migrate import Migration
from fastfill.wiring import connect

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

OLD_DIM, NEW_DIM, ROWS = 6, 5, 40
MIX = np.random.default_rng(3).standard_normal((OLD_DIM, OLD_DIM)).astype(np.float32)


def encode_old(texts: Any) -> Any:
    """The old model: a vector that the number in the text decides."""
    seeds = [int(text.split()[-1]) for text in texts]
    return np.stack([np.random.default_rng(n).standard_normal(OLD_DIM) for n in seeds])


def encode(texts: Any) -> Any:
    """A new model of other dimensions, linear in the old one."""
    return np.asarray(encode_old(texts) @ MIX[:, :NEW_DIM], dtype=np.float32)


def encode_wide(texts: Any) -> Any:
    """A new model of the same dimensions as the old one."""
    return np.asarray(encode_old(texts) @ MIX, dtype=np.float32)


def ask(owner: Any, vector: Any, where: str = "true") -> Any:
    """What an application asks that knows its own column alone."""
    query = f"SELECT id FROM docs WHERE {where} ORDER BY embedding <=> %s::vector LIMIT 1"
    return owner.execute(query, [str(vector.tolist())]).fetchone()[0]


def columns(owner: Any, table: str = "docs") -> dict[str, bool]:
    """The columns of vectors, and whether they may not be null."""
    query = "SELECT attname, attnotnull FROM pg_attribute WHERE attrelid = %s::regclass "
    query += "AND attnum > 0 AND NOT attisdropped AND attname LIKE 'embedding%%'"
    return dict(owner.execute(query, [table]).fetchall())


def migrated(gallery: Gallery, model: Any) -> Migration:
    """A migration whose rows are all new."""
    migration = Migration(gallery, model)
    migration.start(pairs=20, method="ridge", serving="aligned")
    assert [*migration.backfill(throttle=False)][-1].fraction == 1
    return migration


@pytest.fixture
def owner(postgres: str) -> Iterator[Any]:
    """An application's table, in which every row must have a vector."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE docs (id int PRIMARY KEY, tenant int, body text, "
            f"embedding vector({OLD_DIM}) NOT NULL)"
        )
        texts = [f"text {n}" for n in range(ROWS)]
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO docs VALUES (%s, %s, %s, %s::vector)",
                [
                    (n, n % 2, text, str(vector.tolist()))
                    for n, (text, vector) in enumerate(zip(texts, encode_old(texts), strict=True))
                ],
            )
        yield connection


@pytest.fixture
def gallery(postgres: str, owner: Any) -> Iterator[Gallery]:
    """The whole table."""
    opened = connect(f"{postgres}#docs.embedding", input="body", distance="cosine")
    yield opened
    opened.store.close()


def test_a_whole_column_changes_its_name(gallery: Gallery, owner: Any, postgres: str) -> None:
    """The application's query needs the new model and nothing else; a swap back undoes it."""
    reader = connect(f"{postgres}#docs.embedding")
    migration = migrated(gallery, encode)
    migration.complete()
    assert reader.search(encode(["text 3"])[0], k=1).ids.tolist() == [3]
    migration.complete(swap=True)
    assert ask(owner, encode(["text 7"])[0]) == 7
    assert columns(owner) == {"embedding": True, "embedding_old": False}
    assert reader.search(encode(["text 3"])[0], k=1).ids.tolist() == [3]
    owner.execute("INSERT INTO docs (id, body, embedding) VALUES (900, 'late', '[1,2,3,4,5]')")
    migration.swap_back()
    assert ask(owner, encode_old(["text 7"])[0]) == 7
    assert columns(owner) == {"embedding": False, "embedding_new": False}
    owner.execute("DELETE FROM docs WHERE id = 900")
    migration.complete(swap=True, drop_old=True)
    assert columns(owner) == {"embedding": False}
    reader.store.close()


def test_nobody_waits_for_a_look_at_every_row(
    gallery: Gallery, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that swept without the index of changes gets it before it is locked."""
    migration = migrated(gallery, encode)
    built = "SELECT count(*) FROM pg_index WHERE indisvalid AND indexrelid = to_regclass(%s)"
    changed = "docs_ff_embedding_changed"
    assert owner.execute(built, [changed]).fetchone() == (0,)
    monkeypatch.setattr("fastfill.adapters.postgres.indexes.LARGE", 0)
    migration.complete(swap=True)
    assert owner.execute(built, [changed]).fetchone() == (1,)
    assert ask(owner, encode(["text 7"])[0]) == 7


def test_rows_that_are_written_in_the_last_moment(gallery: Gallery, owner: Any) -> None:
    """They are seen under the lock, and nothing is renamed."""
    migration = migrated(gallery, encode)
    migration.complete()
    vector = str(encode_old(["text 41"])[0].tolist())
    owner.execute("UPDATE docs SET body = 'text 41', embedding = %s WHERE id = 1", [vector])
    with pytest.raises(MigrationError, match="1 rows have been written"):
        migration.complete(swap=True)
    assert set(columns(owner)) == {"embedding", "embedding_new"}


def test_a_kill_after_the_rename(
    gallery: Gallery, owner: Any, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers find the vectors although the state does not know yet, and a second call goes on."""
    migration = migrated(gallery, encode)
    migration.complete()
    with monkeypatch.context() as patched:
        patched.setattr(gallery.store, "bind", None)  # what comes after the rename and the state
        patched.setattr("fastfill.migrate.cutover._end", None)
        with pytest.raises(TypeError):
            migration.complete(swap=True)
    reader = connect(f"{postgres}#docs.embedding")
    assert reader.search(encode(["text 3"])[0], k=1).ids.tolist() == [3]
    Migration(reader).complete(swap=True)
    assert ask(owner, encode(["text 7"])[0]) == 7
    Migration(reader).rollback()
    assert columns(owner) == {"embedding": True}
    reader.store.close()


def test_a_name_that_is_taken(gallery: Gallery, owner: Any) -> None:
    """A column of the owner's with the name for the old vectors is refused before anything else."""
    owner.execute("ALTER TABLE docs ADD COLUMN embedding_old int")
    migration = migrated(gallery, encode)
    with pytest.raises(StoreError, match="already a column 'embedding_old'"):
        migration.complete(swap=True)
    assert migration.status().phase == "started"


@pytest.mark.parametrize("crash", [True, False])
def test_a_part_is_moved_into_the_shared_column(
    postgres: str, owner: Any, monkeypatch: pytest.MonkeyPatch, crash: bool
) -> None:
    """Rows of others stay as they are, byte for byte; the way back restores the old vectors."""
    before = owner.execute("SELECT *, xmin FROM docs ORDER BY id").fetchall()
    part = connect(
        f"{postgres}#docs.embedding", input="body", distance="cosine", where={"tenant": 1}
    )
    migration = migrated(part, encode_wide)
    if crash:  # after the move, before anybody was told
        with monkeypatch.context() as patched:
            patched.setattr(part.store, "end_swap", None)
            with pytest.raises(TypeError):
                migration.complete(swap=True)
    migration.complete(swap=True)
    assert ask(owner, encode_wide(["text 7"])[0], "tenant = 1") == 7
    assert part.search(encode_wide(["text 7"])[0], k=1).ids.tolist() == [7]
    assert ask(owner, encode_old(["text 6"])[0], "tenant = 0") == 6
    migration.rollback()
    after = owner.execute("SELECT *, xmin FROM docs ORDER BY id").fetchall()
    assert [row[:-1] for row in after] == [row[:-1] for row in before]
    assert after[::2] == before[::2]
    part.store.close()


def test_a_part_of_other_dimensions_does_not_fit(postgres: str, owner: Any) -> None:
    """A typed column cannot hold the new vectors, which is told before anything is changed."""
    part = connect(
        f"{postgres}#docs.embedding", input="body", distance="cosine", where={"tenant": 1}
    )
    migration = migrated(part, encode)
    with pytest.raises(StoreError, match="also of other rows, and the new ones have 5"):
        migration.complete(swap=True)
    assert migration.status().phase == "started"
    part.store.close()
