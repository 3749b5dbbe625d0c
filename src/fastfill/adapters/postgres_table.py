"""The table to be migrated: its columns and types, and the pieces of SQL made from them."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.sql import SQL, Composable, Identifier

from fastfill.adapters.postgres_connection import raw
from fastfill.adapters.postgres_documents import PostgresDocuments
from fastfill.errors import StoreError, some
from fastfill.features import Distance
from fastfill.gallery import Columns, Description

OPERATORS: dict[Distance, str] = {"l2": "<->", "cosine": "<=>", "ip": "<#>"}


class PostgresTable(PostgresDocuments):
    """One vector column of one table, as the catalogue describes it."""

    def __init__(self, conninfo: str, table: str, column: str, schema: str | None = None) -> None:
        super().__init__(conninfo)
        self.column = column
        self._columns: Columns | None = None
        self._types: dict[str, str] = {}
        found = self._rows_of(
            "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.oid = to_regclass(%s)",
            [f'"{schema}"."{table}"' if schema else f'"{table}"'],
        )
        if not found:
            raise StoreError(f"The database has no table '{table}' that this user can see.")
        self._schema, self._table = str(found[0][0]), table
        self._target = Identifier(self._schema, table)
        info = self._connect().info
        self.name = f"postgresql://{info.host}/{info.dbname}#{self._schema}.{table}.{column}"
        self._look()
        if column not in self._types and not self._documents_exist():
            raise StoreError(
                f"{self.name}: there is no column '{column}', only {some(self._types)}."
            )

    def _change_schema(self, statements: Sequence[Composable]) -> None:
        super()._change_schema(statements)
        self._look()

    def _look(self) -> None:
        found = self._rows_of(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [f'"{self._schema}"."{self._table}"'],
        )
        self._types = {str(name): str(kind) for name, kind in found}

    @property
    def columns(self) -> Columns:
        """The names in use."""
        if self._columns is None:
            raise StoreError(f"{self.name}: say first which columns hold the id and the input.")
        return self._columns

    def bind(self, columns: Columns) -> None:
        """Say which columns hold what; the id must be unique and indexed."""
        for name in (columns.id, columns.input):
            if name is not None and name not in self._types:
                raise StoreError(
                    f"{self.name}: there is no column '{name}', only {some(self._types)}."
                )
        unique = self._rows_of(
            "SELECT 1 FROM pg_index i JOIN pg_attribute a "
            "ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
            "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indnkeyatts = 1 "
            "AND i.indpred IS NULL AND a.attname = %s",
            [f'"{self._schema}"."{self._table}"', columns.id],
        )
        if not unique:
            raise StoreError(
                f"{self.name}: column '{columns.id}' has no unique index. Name the primary key "
                "with --id, or run CREATE UNIQUE INDEX CONCURRENTLY on it."
            )
        self._columns = columns

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        self._look()
        query = SQL("SELECT count(*) FROM {}").format(self._target)
        there = self.columns.new in self._types
        return Description(
            count=lambda: int(self._rows_of(query)[0][0]),
            old_dim=self._dim(self.column),
            new_dim=self._dim(self.columns.new) if there else None,
            distance=self._index_distance(self.column),
            columns=tuple(self._types),
            batch=4_096,
        )

    def _dim(self, column: str) -> int:
        kind = self._types.get(column, "")
        if not kind:
            return 0
        if "vec" not in kind:
            raise StoreError(f"{self.name}: column '{column}' holds {kind}, not vectors.")
        if "(" in kind:
            return int(kind[kind.index("(") + 1 : -1])
        query = SQL("SELECT vector_dims({c}) FROM {t} WHERE {c} IS NOT NULL LIMIT 1")
        found = self._rows_of(query.format(c=Identifier(column), t=self._target))
        return int(found[0][0]) if found else 0

    def _index_distance(self, column: str) -> Distance | None:
        for name in self._operator_classes(column):
            for distance in OPERATORS:
                if f"_{distance}_" in name:
                    return distance
        return None

    def _operator_classes(self, column: str) -> list[str]:
        found = self._rows_of(
            "SELECT o.opcname FROM pg_index i JOIN pg_opclass o ON o.oid = i.indclass[0] "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
            "JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam "
            "WHERE i.indrelid = to_regclass(%s) AND a.attname = %s AND i.indisvalid "
            "AND m.amname IN ('hnsw', 'ivfflat')",
            [f'"{self._schema}"."{self._table}"', column],
        )
        return [str(name) for (name,) in found]

    # --- pieces of SQL -------------------------------------------------------------------------

    def _id(self) -> Composable:
        whole = self._types[self.columns.id] in ("smallint", "integer", "bigint")
        return SQL("t.{}" if whole else "t.{}::text").format(Identifier(self.columns.id))

    def _id_type(self) -> Composable:
        kind = self._types[self.columns.id].split("(")[0]
        return raw(kind)

    def _mark(self, name: str) -> Composable:
        return SQL("t.{}").format(Identifier(self.columns.mark(name)))

    def _bytes_of(self, column: str) -> Composable:
        if column not in self._types:
            return SQL("NULL::bytea")
        return SQL("vector_send(t.{}::vector)").format(Identifier(column))

    def _input(self) -> Composable:
        name = self.columns.input
        if name is None:
            return SQL("NULL::text")
        kind = "t.{}" if self._types[name] == "bytea" else "t.{}::text"
        return SQL(kind).format(Identifier(name))

    def _fingerprint(self) -> Composable:
        """Of the bytes of vector and input; a leading byte tells a null from an empty value."""
        raw = self.columns.input is not None and self._types[self.columns.input] == "bytea"
        content = self._input() if raw else SQL("convert_to({}, 'UTF8')").format(self._input())
        one = SQL(r"coalesce('\x01'::bytea || {}, '\x00'::bytea)")
        both = SQL(" || ").join([one.format(self._bytes_of(self.columns.old)), one.format(content)])
        return SQL("substring(sha256({}) FROM 1 FOR 16)").format(both)

    @property
    def _xid(self) -> str:
        """The column of the transaction that has marked the row."""
        return self.columns.mark("xid")

    def _untouched(self) -> Composable:
        return SQL("t.xmin = t.{}").format(Identifier(self._xid))

    def _known(self) -> Composable:
        """The stored fingerprint where nobody has touched the row since."""
        return SQL("CASE WHEN {} THEN {} END").format(self._untouched(), self._mark("fingerprint"))
