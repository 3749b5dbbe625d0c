"""Searching through pgvector's indexes, and building them beside the application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from psycopg.sql import SQL, Composable, Composed, Literal

from fastfill.adapters.postgres.binary import as_matrix, dim_of
from fastfill.adapters.postgres.connection import Cursor, raw
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.indexes import build_missing, create_index
from fastfill.adapters.postgres.sql import (
    column,
    index_name,
    key,
    mark_or_null,
    source,
    value_of,
    vector_index,
    vector_of,
)
from fastfill.features import Distance, Matrix
from fastfill.gallery import Hits, Side, objects, wanted_sides

OPERATORS: dict[Distance, str] = {"l2": "<->", "cosine": "<=>", "ip": "<#>"}
EXACT = "SET LOCAL enable_indexscan = off; SET LOCAL enable_seqscan = on"
GO_ON = "SET LOCAL hnsw.iterative_scan = strict_order; "
GO_ON += "SET LOCAL ivfflat.iterative_scan = relaxed_order"


class PostgresSearch:
    """The k nearest rows, by an index where there is one and it finds them."""

    def __init__(self, context: PostgresContext) -> None:
        self._context = context
        self._iterative: bool | None = None  # not known yet

    def search(
        self,
        vector: ArrayLike,
        k: int,
        *,
        side: Side,
        distance: Distance,
        where: Mapping[str, Any] | None = None,
        exact: bool = False,
        vectors: bool | Side = False,
    ) -> Hits:
        """The k nearest rows."""
        context, name = self._context, self._context.columns.side(side)
        if name not in context.types:  # as it is where this was opened before the start
            context.look()
            context.require_column(name, context.types)
        chosen = {each: context.columns.side(each) for each in wanted_sides(vectors)}
        away = self._distance(np.asarray(vector, dtype=np.float32), name, distance)
        selected = [vector_of(context, each) for each in chosen.values()]
        query = self._query(k, name, away, where or {}, selected)
        go_on = not exact and self._goes_on(side)
        rows = context.queries[side].read(lambda cursor: _ask(cursor, query, k, exact, go_on))
        rows.sort(key=lambda row: row[1])  # an IVFFlat scan that goes on is nearly in order
        distances = np.array([row[1] for row in rows], dtype=np.float32)
        return Hits(
            objects([row[0] for row in rows]),
            distances**2 if distance == "l2" else distances,
            objects([row[2] for row in rows]),
            **{
                each: _matrix(context, [row[place] for row in rows], of)
                for place, (each, of) in enumerate(chosen.items(), 3)
            },
        )

    def _distance(self, vector: Any, name: str, distance: Distance) -> Composed:
        kind = self._context.types[name].split("(")[0]
        return SQL("{} {} {}::{}").format(
            value_of(self._context, name),
            raw(OPERATORS[distance]),
            Literal(str(vector.tolist())),
            raw(kind),
        )

    def _query(
        self,
        k: int,
        name: str,
        away: Composed,
        where: Mapping[str, Any],
        vectors: Sequence[Composable],
    ) -> Composed:
        context = self._context
        conditions = [SQL("{} IS NOT NULL").format(value_of(context, name)), context.in_part]
        conditions += [SQL("{} = {}").format(column(n), Literal(v)) for n, v in where.items()]
        selected = [key(context), away, mark_or_null(context, "generation"), *vectors]
        return SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT {}").format(
            SQL(", ").join(selected),
            source(context),
            SQL(" AND ").join(conditions),
            away,
            Literal(k),
        )

    def _goes_on(self, side: Side) -> bool:
        """Can an index scan go on when filters or dead rows leave it with too few answers?"""
        if self._iterative is None:
            query = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
            rows = self._context.queries[side].rows_of(query)
            version = str(rows[0][0]).split(".") if rows else ["0", "0"]
            self._iterative = (int(version[0]), int(version[1])) >= (0, 8)
        return self._iterative

    # --- indexes -------------------------------------------------------------------------------

    def indexed(self, side: Side) -> bool:
        """Is there a valid HNSW or IVFFlat index on the column?"""
        return bool(_operator_classes(self._context, side))

    def build_index(self, side: Side, distance: Distance) -> None:
        """Build the index concurrently, or rebuild it."""
        context = self._context
        context.look()
        name = context.columns.side(side)
        statement = vector_index(context, side, distance, context.dim(name))
        create_index(context, index_name(context, f"{name}_hnsw"), statement, rebuild=True)

    def optimize(self) -> None:
        """Build the indexes that the work reads by, once, with statistics of the marks."""
        self._context.look()
        if self._context.marked:
            build_missing(self._context)


def _ask(cursor: Cursor, query: Composed, k: int, exact: bool, go_on: bool) -> list[Any]:
    """Ask by the index; where it gives up, by looking at every row."""
    if exact:
        cursor.connection.execute(EXACT)
        return list(cursor.execute(query).fetchall())
    cursor.execute("SELECT set_config('hnsw.ef_search', %s, true)", [str(max(100, k))])
    if go_on:
        cursor.connection.execute(GO_ON)
    rows = list(cursor.execute(query).fetchall())
    if len(rows) < k:
        # Rows that the filter refuses, or dead versions of rows, came first. A scan knows whether
        # there are more.
        cursor.connection.execute(EXACT)
        rows = list(cursor.execute(query).fetchall())
    return rows


def _matrix(context: PostgresContext, values: Sequence[bytes | None], name: str) -> Matrix | None:
    """Vectors of a column; None where there is no such column."""
    if name not in context.types:
        return None
    present = next((value for value in values if value is not None), None)
    return as_matrix(values, context.dim(name) if present is None else dim_of(present))


def index_distance(context: PostgresContext, side: Side) -> Distance | None:
    """The distance of the index on the vectors; None where there is no index."""
    for name in _operator_classes(context, side):
        for distance in OPERATORS:
            if f"_{distance}_" in name:
                return distance
    return None


def _operator_classes(context: PostgresContext, side: Side) -> list[str]:
    table = context.table if side == "old" else context.holder_name
    rows = context.work.rows_of(
        "SELECT o.opcname FROM pg_index i JOIN pg_opclass o ON o.oid = i.indclass[0] "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam "
        "WHERE i.indrelid = to_regclass(%s) AND a.attname = %s AND i.indisvalid "
        "AND m.amname IN ('hnsw', 'ivfflat')",
        [context.regclass(table), context.columns.side(side)],
    )
    return [str(name) for (name,) in rows]
