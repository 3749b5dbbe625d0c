"""Searching by sqlite-vec's functions: exact, by a look at every row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastfill.adapters.sqlite.context import SqliteContext
from fastfill.adapters.sqlite.sql import quoted
from fastfill.adapters.sqlite.vectors import as_blob, as_matrix
from fastfill.features import Distance
from fastfill.gallery import Hits, Side, objects, wanted_sides

# A vector without a direction has no cosine. sqlite-vec has no inner product: it is the cosine
# times both lengths, and the length is the distance to the origin.
AWAY: dict[Distance, str] = {
    "l2": "vec_distance_L2({v}, :query)",
    "cosine": "coalesce(vec_distance_cosine({v}, :query), 1)",
    "ip": "coalesce(vec_distance_cosine({v}, :query) - 1, 0) * vec_distance_L2({v}, :origin)",
}


class SqliteSearch:
    """The k nearest rows."""

    def __init__(self, context: SqliteContext) -> None:
        self._context = context

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
        """The k nearest rows; a vector of another length is never among them."""
        context, name = self._context, self._context.columns.side(side)
        if name not in context.names:  # as it is where this was opened before the start
            context.look()
            context.require_column(name, context.names)
        asked = np.asarray(vector, dtype=np.float32)
        chosen = {each: context.columns.side(each) for each in wanted_sides(vectors)}
        values = {"query": as_blob(asked), "origin": as_blob(np.zeros_like(asked)), "k": k}
        values |= {f"where{n}": value for n, value in enumerate((where or {}).values())}
        query = self._query(name, distance, where or {}, list(chosen.values()))
        rows = context.queries[side].rows_of(query, values)
        return Hits(
            objects([row[0] for row in rows]),
            _scaled(np.array([row[1] for row in rows], dtype=np.float32), asked, distance),
            objects([row[2] for row in rows]),
            **{
                each: as_matrix([row[place] for row in rows], context.dim(of))
                for place, (each, of) in enumerate(chosen.items(), 3)
                if of in context.names
            },
        )

    def _query(
        self, name: str, distance: Distance, where: Mapping[str, Any], vectors: list[str]
    ) -> str:
        context, value = self._context, self._context.column_of(name)
        away = AWAY[distance].format(v=value)
        conditions = [f"length({value}) = length(:query)", context.in_part]
        for number, column in enumerate(where):
            context.require_column(column, context.names)
            conditions.append(f"{context.column_of(column)} = :where{number}")
        selected = [context.id, away, context.mark("generation"), *map(context.column_of, vectors)]
        return (
            f"SELECT {', '.join(selected)} FROM {context.source} "
            f"WHERE {' AND '.join(conditions)} ORDER BY 2 LIMIT :k"
        )

    # --- indexes -------------------------------------------------------------------------------

    def indexed(self, side: Side) -> bool:
        """sqlite-vec has no approximate index."""
        return False

    def build_index(self, side: Side, distance: Distance) -> None:
        """There is none to build: every search is exact."""

    def optimize(self) -> None:
        """Forget added vectors of rows that the owner has deleted, where they are apart."""
        context = self._context
        context.look()
        if context.side_types:
            query = f'DELETE FROM {quoted(context.side_table)} WHERE "id" NOT IN '
            query += f"(SELECT {context.id} FROM {quoted(context.table)} AS t)"
            context.work.write(lambda cursor: cursor.execute(query))


def _scaled(distances: Any, asked: Any, distance: Distance) -> Any:
    """Squared where it is L2, and times the length of the query where it is the inner product."""
    if distance == "l2":
        return distances**2
    return distances * np.linalg.norm(asked) if distance == "ip" else distances
