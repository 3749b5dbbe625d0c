"""What the parts of a SQLite store share: connections, the table, and where added columns live."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection
from pathlib import Path

from fastfill.adapters.sqlite.connection import SqliteConnection
from fastfill.adapters.sqlite.sql import literal, quoted
from fastfill.errors import StoreError, some
from fastfill.gallery import Columns, Side
from fastfill.gallery.base import StoreContext

ROWID = "rowid"  # what a table without an id of its own is known by
WRITTEN = 32_768  # KiB of pages that a transaction may change before some are written twice
DECLARED = re.compile(r"float\[(\d+)\]", re.I)  # the type of a column of vectors
ON_EVERY_UPDATE = re.compile(r"\bUPDATE\s+ON\b", re.I)


class SqliteContext(StoreContext):
    """One vector column of one table, virtual table or view, as the file describes it.

    It has four connections: queries never wait for the work of this process, nor those of one side
    for the other's, and batches are read while others are written. Each is opened when it is used.
    """

    takes_parts = True

    def __init__(self, path: str, table: str, column: str) -> None:
        super().__init__(f"sqlite://{path}#{table}.{column}", column)
        self.path, self.table = Path(path), table
        turn = threading.Lock()
        self.work = SqliteConnection(path, self, turn)
        self.writing = SqliteConnection(path, self, turn, cache=WRITTEN)
        self.queries: dict[Side, SqliteConnection] = {
            side: SqliteConnection(path, self, turn) for side in ("old", "new")
        }
        self.kind, self._strict = self._find(table)
        self.types: dict[str, str] = {}  # of the owner's table
        self.side_types: dict[str, str] = {}  # of the table of added columns, where there is one
        self._dims: dict[str, int] = {}
        self.look()

    def _find(self, table: str) -> tuple[str, bool]:
        """What the table is (`table`, `view`, `virtual`), and whether it is STRICT."""
        rows = self.work.rows_of(
            "SELECT name, type, strict FROM pragma_table_list WHERE schema = 'main' "
            "AND type <> 'shadow' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        )
        for name, kind, strict in rows:
            if name == table:
                return str(kind), bool(strict)
        names = some(name for name, *_ in rows) or "an empty file"
        raise StoreError(f"{self.path} has no table '{table}', only {names}.")

    def use_columns(self, columns: Columns, have: Collection[str]) -> None:
        """Take these names into use, and look for what they have been added to."""
        super().use_columns(columns, have)
        self.look()

    def look(self) -> None:
        """Ask the file for the columns and their types."""
        self.types = self.columns_of(self.table)
        self.side_types = {} if self._columns is None else self._look_aside()
        self._dims = {}

    def _look_aside(self) -> dict[str, str]:
        """Columns of the table of added ones, if it is ours."""
        types = self.columns_of(self.side_table)
        is_ours = types.pop("id", None) is not None and self.columns.new in types
        return types if is_ours else {}

    def columns_of(self, table: str) -> dict[str, str]:
        """Names and declared types of the columns of a table; none where it is missing."""
        query = "SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden <> 1 ORDER BY cid"
        return {str(name): str(kind) for name, kind in self.work.rows_of(query, [table])}

    # --- where the added columns live ----------------------------------------------------------

    @property
    def side_table(self) -> str:
        """The name of a table of our own for the added columns, whether it exists or not."""
        return f"fastfill_{self.table}_{self.columns.new}"

    @property
    def beside(self) -> bool:
        """Are the added columns, or will they be, in a table of our own?"""
        if self.columns.new in self.types:
            return False
        return bool(self.side_types) or self.kind != "table" or self._strict or self._has_trigger()

    def _has_trigger(self) -> bool:
        """Would our writes to the owner's table set off a trigger of the owner's?"""
        query = "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?"
        rows = self.work.rows_of(query, [self.table])
        return any(ON_EVERY_UPDATE.search(str(text)) for (text,) in rows)

    @property
    def home(self) -> str:
        """The table of the added columns."""
        return self.side_table if self.beside else self.table

    @property
    def names(self) -> tuple[str, ...]:
        """Every column, the owner's and the added ones."""
        return (*self.types, *self.side_types)

    @property
    def marked(self) -> bool:
        """Are there marks?"""
        return self.columns.mark("generation") in self.names

    # --- what the SQL is made of ---------------------------------------------------------------

    @property
    def source(self) -> str:
        """The owner's rows `t`, with those of the added columns `s` where these are apart."""
        owner = f"{quoted(self.table)} AS t"
        if not self.side_types:
            return owner
        return f'{owner} LEFT JOIN {quoted(self.side_table)} AS s ON s."id" = {self.id}'

    @property
    def id(self) -> str:
        """The id of the row."""
        return f"t.{quoted(self.key)}"

    def column_of(self, name: str) -> str:
        """A column of the row; null where there is no such column."""
        if name in self.types:
            return f"t.{quoted(name)}"
        return f"s.{quoted(name)}" if name in self.side_types else "NULL"

    def mark(self, name: str) -> str:
        """A mark of the row; null before there are marks."""
        return self.column_of(self.columns.mark(name))

    @property
    def in_part(self) -> str:
        """The condition that a row is one of those that are migrated."""
        texts = (f"CAST({self.column_of(name)} AS TEXT) = {literal(v)}" for name, v in self.where)
        return " AND ".join(["TRUE", *texts])

    # --- dimensions ----------------------------------------------------------------------------

    def dim(self, name: str) -> int:
        """Dimensions of a column: as declared, or those of a vector; 0 where nothing tells."""
        if name not in self._dims and name in self.names:
            declared = DECLARED.fullmatch({**self.types, **self.side_types}[name].strip())
            dim = int(declared.group(1)) if declared else self._dim_of_a_vector(name)
            if not dim:
                return 0
            self._dims[name] = dim
        return self._dims.get(name, 0)

    def _dim_of_a_vector(self, name: str) -> int:
        value = self.column_of(name)
        whole = f"typeof({value}) = 'blob' AND length({value}) % 4 = 0"
        rows = self.work.rows_of(
            f"SELECT typeof({value}), length({value}), CASE WHEN {whole} THEN vec_type({value}) "
            f"END FROM {self.source} WHERE {value} IS NOT NULL AND {self.in_part} LIMIT 1"
        )
        if not rows:
            return 0
        stored, size, kind = rows[0]
        if kind != "float32":
            raise StoreError(
                f"{self.name}: column '{name}' holds {kind or f'{stored}s of {size} bytes'}, not "
                "vectors of float32 as sqlite_vec.serialize_float32 makes them."
            )
        return int(size) // 4

    def check_drop_old(self) -> None:
        """Refuse a table that has no columns to drop."""
        if self.kind != "table":
            raise StoreError(
                f"{self.name}: SQLite drops no column of a view or a virtual table. Complete "
                f"without --drop-old, and drop '{self.table}' yourself when nobody reads it."
            )

    def close(self) -> None:
        """Close the connections."""
        for connection in (self.work, self.writing, *self.queries.values()):
            connection.close()
