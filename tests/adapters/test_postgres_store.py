"""PostgreSQL passes the suite on a real server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from fastfill.features import Distance
from fastfill.gallery import Store
from fastfill.testing import OLD_DIM, StoreSuite

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")


def create_table(
    uri: str, values: Mapping[str, Sequence[Any]], *, dim: int = OLD_DIM, kind: str = "vector"
) -> None:
    """A table as its owner would make it."""
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(
            'CREATE TABLE "Photos" (id text PRIMARY KEY, text text, album int, '
            f"vector {kind}({dim}))"
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                f'INSERT INTO "Photos" VALUES (%s, %s, %s, %s::{kind})',
                [
                    (key, text, album, None if vector is None else str(vector))
                    for key, text, album, vector in zip(*values.values(), strict=True)
                ],
            )


class TestPostgresStore(StoreSuite):
    """The suite on PostgreSQL."""

    @pytest.fixture(autouse=True)
    def _database(self, postgres: str) -> Iterator[None]:
        self.uri = postgres
        self.opened: list[Store] = []
        yield
        for store in self.opened:
            store.close()

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """A store over a table made by its owner."""
        from fastfill.adapters.postgres import PostgresStore

        create_table(self.uri, values)
        self.opened.append(PostgresStore(self.uri, "Photos", "vector"))
        return self.opened[-1]
