"""Searching through pgvector's indexes, and building them beside the application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from psycopg.sql import SQL, Composable, Identifier, Literal

from fastfill.adapters.postgres_connection import PostgresConnection, raw
from fastfill.adapters.postgres_table import OPERATORS, PostgresTable
from fastfill.features import Distance
from fastfill.gallery import Hits, Side, objects

INDEXABLE = 2_000  # dimensions of `vector` that an HNSW index can hold; `halfvec` holds 4,000
EXACT = "SET LOCAL enable_indexscan = off; SET LOCAL enable_seqscan = on"
GO_ON = "SET LOCAL hnsw.iterative_scan = strict_order; "
GO_ON += "SET LOCAL ivfflat.iterative_scan = relaxed_order"


class PostgresSearch(PostgresTable):
    """The k nearest rows, by an index where there is one and it finds them."""

    _iterative: bool | None = None

    def __init__(self, conninfo: str, table: str, column: str, schema: str | None = None) -> None:
        # Connections of their own: queries never wait for the work of this process, and batches are
        # read while others are written.
        self._queries, self._writing = PostgresConnection(conninfo), PostgresConnection(conninfo)
        super().__init__(conninfo, table, column, schema)
        self._queries.name = self._writing.name = self.name

    def close(self) -> None:
        """Close the connections."""
        self._queries.close()
        self._writing.close()
        super().close()

    def search(
        self,
        vector: ArrayLike,
        k: int,
        *,
        side: Side,
        distance: Distance,
        where: Mapping[str, Any] | None = None,
        exact: bool = False,
    ) -> Hits:
        """The k nearest rows."""
        column = self.columns.side(side)
        kind = self._types[column].split("(")[0]
        marked = self.columns.mark("generation") in self._types
        away = SQL("t.{} {} {}::{}").format(
            Identifier(column),
            raw(OPERATORS[distance]),
            Literal(str(np.asarray(vector, dtype=np.float32).tolist())),
            raw(kind),
        )
        conditions = [SQL("t.{} IS NOT NULL").format(Identifier(column))]
        conditions += [
            SQL("t.{} = {}").format(Identifier(n), Literal(v)) for n, v in (where or {}).items()
        ]
        query = SQL("SELECT {}, {}, {} FROM {} t WHERE {} ORDER BY {} LIMIT {}").format(
            self._id(),
            away,
            self._mark("generation") if marked else SQL("NULL::text"),
            self._target,
            SQL(" AND ").join(conditions),
            away,
            Literal(k),
        )
        with self._queries._transaction() as cursor:
            if exact:
                cursor.connection.execute(EXACT)
            else:
                cursor.execute("SELECT set_config('hnsw.ef_search', %s, true)", [str(max(100, k))])
                if self._goes_on():
                    cursor.connection.execute(GO_ON)
            found = cursor.execute(query).fetchall()
            if len(found) < k and not exact:
                # The index gave up: rows that the filter refuses, or dead versions of rows, came
                # first. A scan knows whether there are more.
                cursor.connection.execute(EXACT)
                found = cursor.execute(query).fetchall()
        found.sort(key=lambda row: row[1])  # an IVFFlat scan that goes on is nearly in order
        distances = np.array([row[1] for row in found], dtype=np.float32)
        return Hits(
            objects([row[0] for row in found]),
            distances**2 if distance == "l2" else distances,
            objects([row[2] for row in found]),
        )

    def _goes_on(self) -> bool:
        """Can an index scan go on when filters or dead rows leave it with too few answers?"""
        if self._iterative is None:
            query = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
            found = self._queries._rows_of(query)
            version = str(found[0][0]).split(".") if found else ["0", "0"]
            self._iterative = (int(version[0]), int(version[1])) >= (0, 8)
        return self._iterative

    def indexed(self, side: Side) -> bool:
        """Is there a valid HNSW or IVFFlat index on the column?"""
        return bool(self._operator_classes(self.columns.side(side)))

    def build_index(self, side: Side, distance: Distance) -> None:
        """Build the index concurrently, or rebuild it."""
        self._look()
        column = self.columns.side(side)
        self._index(self._indexing(side, distance, self._dim(column)), f"{column}_hnsw", True)

    def optimize(self) -> None:
        """Build the index that backfilling picks rows by, once, and refresh the statistics then.

        Later statistics are autovacuum's.
        """
        self._look()
        if self.columns.mark("priority") not in self._types:
            return
        if self._index(self._ordering(), f"ff_{self.column}_order", False):
            marks = [self.columns.mark(name) for name in ("generation", "priority")]
            columns = SQL(", ").join(map(Identifier, marks))
            self._rows_of(SQL("ANALYZE {} ({})").format(self._target, columns))

    def _index_name(self, suffix: str) -> str:
        return f"{self._table}_{suffix}"[-63:]  # PostgreSQL cuts names off at 63 bytes

    def _ordering(self) -> Composable:
        """Of the rows that are yet to be embedded: those that are done leave it."""
        return SQL(
            "CREATE INDEX CONCURRENTLY {} ON {} ({g}, {} DESC NULLS LAST) "
            "WHERE {g} IN ('aligned', 'waiting')"
        ).format(
            Identifier(self._index_name(f"ff_{self.column}_order")),
            self._target,
            Identifier(self.columns.mark("priority")),
            g=Identifier(self.columns.mark("generation")),
        )

    def _indexing(self, side: Side, distance: Distance, dim: int) -> Composable:
        column = self.columns.side(side)
        kind = self._types.get(column, "vector" if dim <= INDEXABLE else "halfvec").split("(")[0]
        return SQL("CREATE INDEX CONCURRENTLY {} ON {} USING hnsw ({} {})").format(
            Identifier(self._index_name(f"{column}_hnsw")),
            self._target,
            Identifier(column),
            raw(f"{kind}_{distance}_ops"),
        )

    def _index(self, statement: Composable, suffix: str, rebuild: bool) -> bool:
        """Build an index if it is not there; was it built?

        CREATE INDEX CONCURRENTLY leaves an invalid index behind when it is interrupted.
        """
        name = self._index_name(suffix)
        found = self._rows_of(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)",
            [f'"{self._schema}"."{name}"'],
        )
        if found and found[0][0] and not rebuild:
            return False
        steps = [statement]
        if found:
            drop = SQL("DROP INDEX CONCURRENTLY {}").format(Identifier(self._schema, name))
            steps.insert(0, drop)
        self._change_schema(steps)
        return True
