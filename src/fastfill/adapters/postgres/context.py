"""What the parts of a PostgreSQL store share: connections, the table, and what its columns are."""

from __future__ import annotations

import time

from psycopg.sql import SQL, Composable, Identifier, Literal

from fastfill.adapters.postgres.connection import PostgresConnection
from fastfill.errors import StoreError
from fastfill.gallery import Side
from fastfill.gallery.base import StoreContext

SEARCH_FOR = 5.0  # seconds for which a reader that waits for an answer looks for the server


class PostgresContext(StoreContext):
    """One vector column of one table, as the catalogue describes it.

    It has four connections: queries never wait for the work of this process, nor those of one side
    for the other's, and batches are read while others are written. Each is opened when it is used.
    """

    takes_parts = True

    def __init__(self, conninfo: str, table: str, column: str, schema: str | None) -> None:
        super().__init__("PostgreSQL", column)
        self.opened = time.monotonic()
        self.work = PostgresConnection(conninfo, self)
        self.schema, self.table = self._find(table, schema), table
        self.target = Identifier(self.schema, table)
        self.writing = PostgresConnection(conninfo, self, proven=True)
        self.queries: dict[Side, PostgresConnection] = {
            side: PostgresConnection(conninfo, self, proven=True, most=SEARCH_FOR)
            for side in ("old", "new")
        }
        info = self.work.open().info
        self.name = f"postgresql://{info.host}/{info.dbname}#{self.schema}.{table}.{column}"
        self.types: dict[str, str] = {}
        self.look()

    def _find(self, table: str, schema: str | None) -> str:
        """The schema of the table."""
        rows = self.work.rows_of(
            "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.oid = to_regclass(%s)",
            [f'"{schema}"."{table}"' if schema else f'"{table}"'],
        )
        if not rows:
            raise StoreError(f"The database has no table '{table}' that this user can see.")
        return str(rows[0][0])

    def look(self) -> None:
        """Ask the catalogue for the columns and their types: the owner's, and those beside."""
        types = self.columns_of(self.table)
        if self.beside:
            types = {**self.columns_of(self.side_name), **types}
        self.types = types  # at once: another thread may be reading

    def columns_of(self, table: str) -> dict[str, str]:
        """Names and types of the columns of a table in this schema; none where it is missing."""
        rows = self.work.rows_of(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [self.regclass(table)],
        )
        return {str(name): str(kind) for name, kind in rows}

    def dim(self, column: str) -> int:
        """Dimensions of a vector column; 0 where there is none, or nothing in it that tells."""
        kind = self.types.get(column, "")
        if not kind:
            return 0
        if "vec" not in kind:
            raise StoreError(f"{self.name}: column '{column}' holds {kind}, not vectors.")
        if "(" in kind:
            return int(kind[kind.index("(") + 1 : -1])
        query = SQL("SELECT vector_dims(t.{c}) FROM {t} t WHERE t.{c} IS NOT NULL AND {p} LIMIT 1")
        step = query.format(c=Identifier(column), t=self.target, p=self.in_part)
        rows = self.work.rows_of(step)
        return int(rows[0][0]) if rows else 0

    @property
    def in_part(self) -> Composable:
        """The condition that a row `t` is one of those that are migrated.

        Values are texts without a type, which the server reads as one of the column's type.
        """
        return SQL(" AND ").join(
            [
                SQL("true"),
                *(SQL("t.{} = {}").format(Identifier(n), Literal(v)) for n, v in self.where),
            ]
        )

    def regclass(self, relation: str) -> str:
        """The full name of a table or an index of this schema, as the catalogue looks it up."""
        return f'"{self.schema}"."{relation}"'

    @property
    def beside(self) -> bool:
        """Are the added vectors and the marks kept in a table of their own?"""
        return self._columns is not None and self._columns.layout == "side"

    @property
    def side_name(self) -> str:
        """The name of that table; PostgreSQL cuts names off at 63 bytes."""
        return f"{self.table}_{self.columns.marks}"[-63:]

    @property
    def side(self) -> Identifier:
        """That table."""
        return Identifier(self.schema, self.side_name)

    @property
    def notes_name(self) -> str:
        """The name of the table of notes (`write_notes`), of its trigger and its function."""
        return f"{self.side_name}_notes"[-63:]

    @property
    def notes(self) -> Identifier:
        """That table."""
        return Identifier(self.schema, self.notes_name)

    @property
    def holder(self) -> Identifier:
        """The table that holds the added vectors and the marks."""
        return self.side if self.beside else self.target

    @property
    def holder_name(self) -> str:
        """The name of that table."""
        return self.side_name if self.beside else self.table

    @property
    def marked(self) -> bool:
        """Are there marks?"""
        return self.columns.mark("generation") in self.types

    @property
    def xid(self) -> str:
        """The column of the transaction that has marked the row."""
        return self.columns.mark("xid")

    @property
    def added(self) -> tuple[str, ...]:
        """Every column that a migration adds."""
        return (*self.columns.added, self.xid)

    def close(self) -> None:
        """Close the connections."""
        for connection in (self.work, self.writing, *self.queries.values()):
            connection.close()
