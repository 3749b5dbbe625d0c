"""Searching a LanceDB table, and its indexes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from fastfill.adapters.lance_arrow import literal, quoted
from fastfill.adapters.lance_table import DISTANCE_OF, LANCE_METRIC, LanceTable
from fastfill.features import Distance
from fastfill.gallery import Hits, Side, objects

MOST_PARTS = 4  # of an index: each one makes queries a little slower
PATIENT = 10  # times as long as building took must pass before it is built again


class LanceSearch(LanceTable):
    """The k nearest rows, by an index where there is one."""

    _built_at, _building = 0.0, 0.0  # when the index was last built, and for how long

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
        mark = self.columns.mark("generation")
        marked = mark in self._table.schema.names
        names = [self.columns.id, *([mark] if marked else []), "_distance"]
        conditions = [f"{quoted(n)} = {literal(v)}" for n, v in (where or {}).items()]
        query: Any = self._table.search(
            np.asarray(vector, dtype=np.float32), vector_column_name=column
        )
        # Lance leaves rows without a vector out by itself; a condition that says so reads them all.
        query = query.distance_type(LANCE_METRIC[distance]).select(names).limit(k)
        if conditions:
            query = query.where(" AND ".join(conditions), prefilter=True)
        table = (query.bypass_vector_index() if exact else query).to_arrow()
        distances = table["_distance"].to_numpy().astype(np.float32)
        return Hits(
            objects(table[self.columns.id].to_pylist()),
            distances - 1 if distance == "ip" else distances,  # Lance's dot is 1 − q·g
            objects(table[mark].to_pylist() if marked else [None] * len(table)),
        )

    def indexed(self, side: Side) -> bool:
        """Is there an index on the column?"""
        column = self.columns.side(side)
        return any(list(index.columns) == [column] for index in self._table.list_indices())

    def build_index(self, side: Side, distance: Distance) -> None:
        """Build the index from the rows as they are; searches go on with the one before."""
        from lancedb.index import IvfSq

        # A backfill changes every vector: adding one to lists takes microseconds, to a graph
        # milliseconds, and until then queries look at it one by one.
        column, config = self.columns.side(side), IvfSq(distance_type=LANCE_METRIC[distance])
        self._retry(lambda: self._table.create_index(column, config=config, replace=True))

    def _join_parts(self) -> bool:
        """Build our index anew where it has got many parts, unless that was just done.

        Every `optimize` adds a part for the rows written since, and keeps their fragments apart.
        """
        column = self.columns.new
        index = next((i for i in self._table.list_indices() if list(i.columns) == [column]), None)
        stats = index and self._table.index_stats(index.name)
        if stats is None or (stats.num_indices or 1) <= MOST_PARTS:
            return False
        began = time.monotonic()
        distance = DISTANCE_OF.get(str(stats.distance_type).lower())
        ours = "SQ" in str(stats.index_type) and distance is not None
        if not ours or began - self._built_at < PATIENT * self._building:
            return False
        self.build_index("new", cast(Distance, distance))
        self._built_at = time.monotonic()
        self._building = self._built_at - began
        return True
