"""Migrations of a part of a PostgreSQL table, as in a table that several collections share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.errors import MigrationError, StoreError
from fastfill.gallery import Gallery, Store
from fastfill.migrate import Migration
from fastfill.wiring import connect, open_store

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

DIM, NEW_DIM, ROWS = 6, 5, 60
TENANTS = ("a'b", "100%", "c")
MIX = np.random.default_rng(3).standard_normal((DIM, NEW_DIM)).astype(np.float32)


def old(text: str) -> Any:
    """What the old model makes of a text."""
    return np.random.default_rng(int(text.split()[-1])).standard_normal(DIM).astype(np.float32)


def encode(texts: Any) -> Any:
    """A new model, linear in the old one."""
    return np.stack([old(text) @ MIX for text in texts])


def encode_later(texts: Any) -> Any:
    """Another new model, of other dimensions."""
    return np.stack([np.append(old(text) @ MIX, 1.0) for text in texts])


@pytest.fixture
def owner(postgres: str) -> Iterator[Any]:
    """A table of three tenants, whose vectors have no fixed number of dimensions."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE docs (id text PRIMARY KEY, tenant text, body text, v vector)"
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO docs VALUES (%s, %s, %s, %s::vector)",
                [
                    (f"{tenant} {n}", tenant, f"text {n}", str(old(f"text {n}").tolist()))
                    for tenant in TENANTS
                    for n in range(ROWS)
                ],
            )
            # Other tenants may have vectors of other dimensions, and come first in the table.
            cursor.execute("UPDATE docs SET v = '[1,2]' WHERE tenant = 'c'")
        yield connection


@pytest.fixture
def part(postgres: str, owner: Any) -> Iterator[Callable[..., Gallery]]:
    """Opens the gallery of a tenant."""
    opened: list[Gallery] = []

    def open_part(tenant: str | None) -> Gallery:
        where = None if tenant is None else {"tenant": tenant}
        url = f"{postgres}#docs.v"
        opened.append(connect(url, input="body", distance="l2", where=where))
        return opened[-1]

    yield open_part
    for gallery in opened:
        gallery.store.close()


def rows_of_others(owner: Any, tenant: str) -> Any:
    """Every value and the version of every row of the other tenants."""
    query = "SELECT xmin, ctid, id, tenant, body, v FROM docs WHERE tenant <> %s ORDER BY id"
    return owner.execute(query, [tenant]).fetchall()


def migrate(gallery: Gallery, model: Any = encode) -> Migration:
    """A migration up to its completion."""
    migration = Migration(gallery, model)
    migration.start(pairs=30, method="ridge", serving="aligned")
    assert [*migration.backfill(throttle=False)][-1].fraction == 1
    migration.complete()
    return migration


@pytest.mark.parametrize("tenant", TENANTS[:2])
def test_only_the_rows_of_the_part_are_migrated(part: Any, owner: Any, tenant: str) -> None:
    """Rows elsewhere are not written at all, and are neither counted nor found."""
    before = rows_of_others(owner, tenant)
    gallery = part(tenant)
    assert len(gallery.search(old("text 7"), k=ROWS * 3).ids) == ROWS
    migration = Migration(gallery, encode)
    assert migration.plan().rows == ROWS
    migration.start(pairs=30, method="ridge", serving="aligned")
    owner.execute("INSERT INTO docs VALUES ('late', %s, 'text 900', NULL)", [tenant])
    owner.execute("INSERT INTO docs VALUES ('other', 'd', 'text 901', NULL)")
    assert [*migration.backfill(throttle=False)][-1].total == ROWS + 1
    migration.complete()
    hits = part(tenant).search(encode(["text 7"])[0], k=ROWS * 3)
    assert hits.ids[0] == f"{tenant} 7"
    assert len(hits.ids) == ROWS + 1
    owner.execute("DELETE FROM docs WHERE id = 'other'")
    assert rows_of_others(owner, tenant) == before
    added = gallery.store.columns.new
    filled = owner.execute(f"SELECT DISTINCT tenant FROM docs WHERE {added} IS NOT NULL")
    assert filled.fetchall() == [(tenant,)]


def test_later_commands_take_the_part_from_the_store(part: Any) -> None:
    """Whoever names no part gets the one that is migrated; a rollback forgets it."""
    migration = Migration(part("100%"), encode)
    migration.start(pairs=30, method="ridge")
    again = Migration(part(None), encode)
    assert again.status().progress.total == ROWS
    again.rollback()
    assert part(None).store.describe().rows == 3 * ROWS


def test_another_part_waits_for_the_first(part: Any) -> None:
    """While one part is migrated another one is refused, by plan as by start."""
    Migration(part("100%"), encode).start(pairs=30, method="ridge")
    other = Migration(part("a'b"), encode)
    with pytest.raises(MigrationError, match=r"where tenant=100% is started\."):
        other.plan()
    with pytest.raises(MigrationError, match="before another part begins"):
        other.start(pairs=30)
    assert part("a'b").state is None


def test_one_part_after_the_other(part: Any, owner: Any) -> None:
    """A second part is migrated, by another model, and the first one is searched as before."""
    migrate(part("100%"))
    migrate(part("a'b"), encode_later)
    first, second = part("100%"), part("a'b")
    assert first.search(encode(["text 3"])[0], k=1).ids.tolist() == ["100% 3"]
    assert second.search(encode_later(["text 3"])[0], k=1).ids.tolist() == ["a'b 3"]
    Migration(first, encode).rollback()
    assert second.search(encode_later(["text 3"])[0], k=1).ids.tolist() == ["a'b 3"]
    Migration(second, encode).rollback()
    columns = owner.execute("SELECT * FROM docs LIMIT 0").description
    assert [column.name for column in columns] == ["id", "tenant", "body", "v"]


def test_writers_through_a_part_stay_in_it(part: Any, owner: Any) -> None:
    """Items that are inserted belong to the part, and rows of others cannot be changed."""
    before = rows_of_others(owner, "100%")
    gallery = part("100%")
    gallery.upsert({"id": ["100% new", "c 1"], "body": ["text 5", "stolen"]})
    gallery.delete(["c 2", "100% 0"])
    assert rows_of_others(owner, "100%") == before
    assert gallery.store.describe().rows == ROWS
    assert gallery.store.values_of("tenant", ["100% new", "c 1"]) == {"100% new": "100%"}


def test_a_row_that_leaves_the_part_is_not_written(part: Any, owner: Any) -> None:
    """What another collection got meanwhile is left alone, although it was read before."""
    from fastfill.gallery import Marks

    store = part("100%").store
    store.expand(NEW_DIM)
    rows = store.read(["100% 1", "100% 2"])
    owner.execute("UPDATE docs SET tenant = 'c' WHERE id = '100% 1'")
    vectors = np.ones((2, NEW_DIM), np.float32)
    assert store.write(rows, vectors, Marks("new", "m")) == 1
    assert store.read(["100% 1"]).ids.tolist() == []


@pytest.mark.parametrize(
    ("where", "message"),
    [({"owner": "a"}, "there is no column 'owner'"), ({"serial": "a"}, "invalid input syntax")],
)
def test_parts_that_cannot_be(postgres: str, owner: Any, where: Any, message: str) -> None:
    """A column that does not exist, and a value that it cannot hold, are refused."""
    owner.execute("ALTER TABLE docs ADD COLUMN serial int")
    store = open_store(f"{postgres}#docs.v")
    with pytest.raises(StoreError, match=message):
        Gallery(store, input="body", where=where)
    store.close()


def test_the_part_on_the_command_line(
    postgres: str, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filter is given once; status shows it, also as JSON, and another one is refused."""
    from click.testing import CliRunner

    from fastfill.cli.main import commands, load_commands

    load_commands()
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    url, encoder = f"{postgres}#docs.v", f"{Path(__file__).stem}:encode"
    opened: list[Store] = []  # a command leaves its connections to the end of its process

    def open_and_note(url: str) -> Store:
        opened.append(open_store(url))
        return opened[-1]

    monkeypatch.setattr("fastfill.wiring.open_store", open_and_note)

    def fastfill(*arguments: str) -> Any:
        return CliRunner().invoke(commands, arguments)

    def begin(verb: str, where: str) -> Any:
        more = ("--input", "body", "--encoder", encoder, "--distance", "l2", "--where", where)
        return fastfill(verb, url, *more)

    planned = begin("plan", "tenant=a'b").output
    assert "60 rows where tenant=a'b" in planned
    assert """--where 'tenant=a'"'"'b' --pairs 2000""" in planned
    assert begin("start", "tenant=a'b").exit_code == 0
    assert "where tenant=a'b" in fastfill("status", url).output
    assert json.loads(fastfill("status", url, "--json").stdout)["where"] == {"tenant": "a'b"}
    assert "a migration of the rows where" in str(begin("start", "tenant=c").exception)
    assert "COLUMN=VALUE, not 'c'" in str(begin("start", "c").exception)
    for store in opened:
        store.close()
