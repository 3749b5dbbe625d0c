"""Searching a LanceDB table, and its indexes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastfill.adapters.lance_arrow import literal, quoted
from fastfill.adapters.lance_table import LANCE_METRIC, LanceTable
from fastfill.features import Distance
from fastfill.gallery import Hits, Side, objects


class LanceSearch(LanceTable):
    """The k nearest rows, by an index where there is one."""

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
        conditions = [f"{quoted(column)} IS NOT NULL"]
        conditions += [f"{quoted(n)} = {literal(v)}" for n, v in (where or {}).items()]
        query: Any = self._table.search(
            np.asarray(vector, dtype=np.float32), vector_column_name=column
        )
        query = query.distance_type(LANCE_METRIC[distance])
        query = query.where(" AND ".join(conditions), prefilter=True).select(names).limit(k)
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
