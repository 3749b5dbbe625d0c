"""Searching either side, from an index or by reading all vectors."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.adapters.redis.context import RedisContext
from fastfill.adapters.redis.hashes import PAGE, as_bytes, as_text, pages_of
from fastfill.adapters.redis.index import IndexField, RedisIndex
from fastfill.adapters.redis.packing import as_matrix
from fastfill.features import Distance, pairwise
from fastfill.gallery import Hits, Id, Side, objects, wanted_sides

TIMEOUT = 30_000  # milliseconds; after half a second Redis would give a part of the answer
SCORE = "fastfill_score"  # the name of the distance in an answer
Nearest = list[tuple[Id, float]]  # ids and distances


class RedisSearch:
    """Redis adds vectors to its indexes as they are written."""

    def __init__(self, context: RedisContext) -> None:
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
        """The k nearest hashes."""
        context = self._context
        index = context.owner if side == "old" else context.added
        field = None if index is None else index.find(context.columns.side(side))
        nearest: Nearest = []
        if index is not None and field is not None:
            asked = np.asarray(vector, dtype=np.float32)
            query = RedisQuery(context, index, field, asked, distance, dict(where or {}))
            nearest = query.scan(k) if exact or not query.indexed else query.ask(k)
        ids = [key for key, _ in nearest]
        return Hits(
            objects(ids),
            np.array([far for _, far in nearest], dtype=np.float32),
            self._generations(ids),
            **{each: self._vectors(ids, each) for each in wanted_sides(vectors)},
        )

    def _generations(self, ids: list[Id]) -> NDArray[np.object_]:
        values = self._context.hashes.values(ids, [self._context.columns.mark("generation")])
        return objects([as_text(values[key][0]) if key in values else None for key in ids])

    def _vectors(self, ids: list[Id], side: Side) -> NDArray[np.float32] | None:
        context = self._context
        dim = context.vector.dim if side == "old" else context.new_dim
        if not dim:
            return None
        values = context.hashes.values(ids, [context.field(side)])
        return as_matrix([values[key][0] if key in values else None for key in ids], dim)

    def indexed(self, side: Side) -> bool:
        """Is the index approximate?"""
        return self._context.vector.settings.get("algorithm", "HNSW").upper() != "FLAT"

    def build_index(self, side: Side, distance: Distance) -> None:
        """Wait for the index that the server builds by itself."""
        while (index := self._context.look()) is not None and index.indexing:
            self._context.notify("Redis is indexing", 0.5)
            time.sleep(0.5)

    def optimize(self) -> None:
        """Nothing to do: Redis looks after its indexes by itself."""


@dataclass(frozen=True, eq=False)
class RedisQuery:
    """What is asked of one index."""

    context: RedisContext
    index: RedisIndex
    field: IndexField
    vector: NDArray[np.float32]
    distance: Distance
    where: dict[str, Any]

    @property
    def indexed(self) -> bool:
        """Can the index answer it, distance and conditions?"""
        return self.distance == self.field.distance and self._filter() is not None

    def _filter(self) -> str | None:
        """The conditions in the language of queries, None where it has no words for them."""
        parts = []
        for name, value in self.where.items():
            field = self.index.find(name)
            kind = "" if field is None else field.kind
            if kind == "NUMERIC" and isinstance(value, int | float | np.number):
                parts.append(f"@{name}:[{value} {value}]")
            elif kind == "TAG" and isinstance(value, str) and value:
                parts.append(f"@{name}:{{{_escaped(value)}}}")
            else:
                return None
        return f"({' '.join(parts)})" if parts else "*"

    def ask(self, k: int) -> Nearest:
        """From the index."""
        answer = self.context.connection.run(
            *("FT.SEARCH", self.index.name),
            f"{self._filter()}=>[KNN {k} @{self.field.name} $vector AS {SCORE}]",
            *("PARAMS", 2, "vector", as_bytes(self.vector)),
            *("RETURN", 1, SCORE, "SORTBY", SCORE, "LIMIT", 0, k),
            *("TIMEOUT", TIMEOUT, "DIALECT", 2),
        )
        # Redis gives 1 - product where we have -product; the other two are the same.
        shift = 1.0 if self.distance == "ip" else 0.0
        pairs = zip(answer[1::2], answer[2::2], strict=True)
        return [(key.decode(), float(values[1]) - shift) for key, values in pairs]

    def scan(self, k: int) -> Nearest:
        """Exact, by reading all vectors."""
        best: Nearest = []
        hashes, names = self.context.hashes, list(self.where)
        for page in pages_of(hashes.keys(), PAGE):
            rows = hashes.values(page, [self.field.field, *names])
            chosen = {key: row[0] for key, row in rows.items() if row[0] and self._fits(row[1:])}
            if not chosen:
                continue
            matrix = as_matrix(list(chosen.values()), len(self.vector))
            away = pairwise(self.vector[None, :], matrix, self.distance)[0]
            best += list(zip(chosen, map(float, away), strict=True))
            best = sorted(best, key=lambda hit: hit[1])[:k]
        return best

    def _fits(self, values: list[bytes | None]) -> bool:
        return all(
            _equal(value, wanted) for value, wanted in zip(values, self.where.values(), strict=True)
        )


def number(value: bytes) -> int | float:
    """A numeric field's value: whole numbers as such.

    >>> number(b"3"), number(b"0.5")
    (3, 0.5)
    """
    return int(value) if re.fullmatch(rb"-?\d+", value) else float(value)


def _escaped(tag: str) -> str:
    """A tag in the language of queries.

    >>> print(_escaped("it's 1"))
    it\\'s\\ 1
    """
    return re.sub(r"([^A-Za-z0-9_])", r"\\\1", tag)


def _equal(value: bytes | None, wanted: Any) -> bool:
    if value is None or wanted is None:
        return value is None and wanted is None
    if isinstance(wanted, int | float | np.number):
        try:
            return bool(number(value) == wanted)
        except ValueError:
            return False
    return bool(as_text(value) == wanted)
