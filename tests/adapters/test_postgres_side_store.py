"""PostgreSQL passes the suite with its added vectors in a table of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from test_postgres_store import create_table

from fastfill.errors import StoreError
from fastfill.features import Distance
from fastfill.gallery import Columns, Store
from fastfill.testing import StoreSuite

pytest.importorskip("psycopg", reason="psycopg is not installed")


class TestPostgresSideStore(StoreSuite):
    """The suite on PostgreSQL, in the layout `side`."""

    @pytest.fixture(autouse=True)
    def _database(self, postgres: str) -> Iterator[None]:
        self.uri = postgres
        self.opened: list[Store] = []
        yield
        for store in self.opened:
            store.close()

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """A store over a table made by its owner, which is bound in that layout alone."""
        from fastfill.adapters.postgres import PostgresStore

        class SideStore(PostgresStore):
            def bind(self, columns: Columns) -> None:
                super().bind(replace(columns, layout="side"))

        create_table(self.uri, values)
        self.opened.append(SideStore(self.uri, "Photos", "vector"))
        return self.opened[-1]

    def test_dropping_the_old_vectors_keeps_the_new(self) -> None:
        """The owner's table is never changed: that is refused, with the statements that do it."""
        store, _ = self.both()
        self.align_all(store)
        with pytest.raises(
            StoreError, match=r'ALTER TABLE "public"\."Photos" ADD COLUMN "vector_new"'
        ):
            store.drop_old()
        assert "vector" in store.describe().columns
