"""Searching a LanceDB table, its indexes, and its housekeeping."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from fastfill.adapters.lance.arrow import matrix
from fastfill.adapters.lance.context import LanceContext
from fastfill.adapters.lance.deadline import READ, answered_within
from fastfill.adapters.lance.sql import equals
from fastfill.features import Distance, Matrix
from fastfill.gallery import Hits, Side, objects, wanted_sides

LANCE_METRIC: dict[Distance, Literal["l2", "cosine", "dot"]] = {
    "l2": "l2",
    "cosine": "cosine",
    "ip": "dot",
}
DISTANCE_OF: dict[str, Distance] = {metric: distance for distance, metric in LANCE_METRIC.items()}
KEEP_VERSIONS = timedelta(minutes=10)  # a reader may be in the middle of a query on an old version
MOST_PARTS = 4  # of an index: each one makes queries a little slower
REST = 10  # times as long as building an index took must pass before it is built again


class LanceSearch:
    """The k nearest rows, by an index where there is one."""

    def __init__(self, context: LanceContext) -> None:
        self._context = context
        self._built_at, self._building = 0.0, 0.0  # when we last built an index, and for how long

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
        context, columns = self._context, self._context.columns
        mark, names = columns.mark("generation"), context.names()
        marked = mark in names
        wanted = [columns.id, *([mark] if marked else []), "_distance"]
        chosen = {each: columns.side(each) for each in wanted_sides(vectors)}
        wanted += [name for name in chosen.values() if name in names]
        with context.connection.errors(), answered_within(READ):
            query: Any = context.table.search(
                np.asarray(vector, dtype=np.float32), vector_column_name=columns.side(side)
            )
            # Lance leaves rows without a vector out; a condition that says so reads them all.
            query = query.distance_type(LANCE_METRIC[distance]).limit(k)
            query = query.select(wanted)
            if where:
                conditions = [equals(name, value) for name, value in where.items()]
                query = query.where(" AND ".join(conditions), prefilter=True)
            table = (query.bypass_vector_index() if exact else query).to_arrow()
        distances = table["_distance"].to_numpy().astype(np.float32)
        return Hits(
            objects(table[columns.id].to_pylist()),
            distances - 1 if distance == "ip" else distances,  # Lance's dot is 1 − q·g
            objects(table[mark].to_pylist() if marked else [None] * len(table)),
            **{each: _vectors(table, name) for each, name in chosen.items()},
        )

    # --- indexes -------------------------------------------------------------------------------

    def indexed(self, side: Side) -> bool:
        """Is there an index on the column?"""
        return _index_on(self._context.table, self._context.columns.side(side)) is not None

    def build_index(self, side: Side, distance: Distance) -> None:
        """Build the index from the rows as they are; searches go on with the one before."""
        self._context.connection.commit(lambda: self._build(side, distance))

    def _build(self, side: Side, distance: Distance) -> None:
        from lancedb.index import IvfSq

        # A backfill changes every vector: adding one to lists takes microseconds, to a graph
        # milliseconds, and until then queries look at it one by one.
        config = IvfSq(distance_type=LANCE_METRIC[distance])
        column = self._context.columns.side(side)
        self._context.table.create_index(column, config=config, replace=True)

    # --- housekeeping --------------------------------------------------------------------------

    def optimize(self) -> None:
        """Compact fragments, index what is new, clean old versions; where writers let us."""
        if self._compact() and self._join_parts():
            self._compact()

    def _compact(self) -> bool:
        table = self._context.table
        return self._context.connection.tidy(
            lambda: table.optimize(cleanup_older_than=KEEP_VERSIONS)
        )

    def _join_parts(self) -> bool:
        """Build our index anew where it has got many parts, unless that was just done.

        Every `optimize` adds a part for the rows written since, and keeps their fragments apart.
        """
        index = _index_on(self._context.table, self._context.columns.new)
        stats = index and self._context.table.index_stats(index.name)
        if stats is None or (stats.num_indices or 1) <= MOST_PARTS:
            return False
        began = time.monotonic()
        distance = DISTANCE_OF.get(str(stats.distance_type).lower())
        ours = "SQ" in str(stats.index_type) and distance is not None
        if not ours or began - self._built_at < REST * self._building:
            return False
        built = self._context.connection.tidy(lambda: self._build("new", cast(Distance, distance)))
        self._built_at = time.monotonic()
        self._building = self._built_at - began
        return built


def _vectors(table: Any, name: str) -> Matrix | None:
    """A column of vectors, if it is among what was asked for."""
    if name not in table.column_names:
        return None
    dim = table.schema.field(name).type.list_size
    return np.asarray(matrix(table, name, dim), dtype=np.float32)


def index_distance(table: Any, column: str) -> Distance | None:
    """The distance of the index on a column; None where there is no index."""
    index = _index_on(table, column)
    stats = index and table.index_stats(index.name)
    return DISTANCE_OF.get(str(getattr(stats, "distance_type", "")).lower())


def indexed_columns(table: Any) -> set[str]:
    """The columns that have an index of their own."""
    return {index.columns[0] for index in table.list_indices() if len(index.columns) == 1}


def _index_on(table: Any, column: str) -> Any:
    return next((i for i in table.list_indices() if list(i.columns) == [column]), None)
