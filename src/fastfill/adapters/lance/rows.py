"""Rows of a LanceDB table: as Arrow holds them, and as the migration sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastfill.adapters.lance.arrow import as_objects, matrix
from fastfill.adapters.lance.context import ALL, LanceContext
from fastfill.adapters.lance.sql import one_of
from fastfill.features import Matrix
from fastfill.gallery import Id, Rows
from fastfill.gallery.fingerprint import content_fingerprints

WHERE = ["_rowid", "_rowaddr"]  # Lance's names of a row: what `take` wants, and where it lies
SEEN = np.dtype([("row", np.uint64), ("print", "S32")])  # a row id, and what the row is made of


@dataclass(frozen=True)
class HeldRows:
    """Rows with all their columns, as they were at a version."""

    version: int
    sorted: NDArray[np.uint64]  # row ids
    order: NDArray[np.int64]
    rows: Any

    @classmethod
    def of(cls, version: int, rows: Any) -> HeldRows:
        """Rows that were read at a version or later: if all goes well they are not read again."""
        ids = rows["_rowid"].to_numpy()
        order = np.argsort(ids, kind="stable")
        return cls(version, ids[order], order, rows)

    def take(self, row_ids: NDArray[np.uint64]) -> Any:
        """The rows of these row ids as an Arrow table; None where one is missing."""
        place = np.searchsorted(self.sorted, row_ids)
        place[place == len(self.sorted)] = 0
        if (self.sorted[place] != row_ids).any():
            return None
        positions = self.order[place]
        if len(positions) == len(self.rows) and (np.diff(positions) == 1).all():
            return self.rows
        return self.rows.take(positions)


def as_rows(context: LanceContext, table: Any, new: bool, held: HeldRows | None = None) -> Rows:
    """An Arrow table as `Rows`; those that are `held` are about to be written."""
    columns, (old, inputs) = context.columns, contents(context, table)
    seen = np.zeros(len(table), dtype=SEEN)
    seen["row"] = table["_rowid"].to_numpy()
    if held is not None:
        seen["print"] = content_fingerprints(old, inputs)
    return Rows(
        ids=as_objects(table, columns.id),
        old=old,
        inputs=inputs,
        generation=as_objects(table, columns.mark("generation")),
        model=as_objects(table, columns.mark("model")),
        seen=seen,
        new=matrix(table, columns.new, context.dim(columns.new)) if new else None,
        held=held,
    )


def contents(context: LanceContext, table: Any) -> tuple[Matrix, NDArray[np.object_]]:
    """What the fingerprint is of: old vectors (n, d) and inputs."""
    columns = context.columns
    old = matrix(table, columns.old, context.dim(columns.old))
    return np.asarray(old, dtype=np.float32), as_objects(table, columns.input or "")


def read_rows(
    table: Any, names: Sequence[str], key: str, ids: Sequence[Id], row_ids: Sequence[int]
) -> Any:
    """Rows by the row ids that are known, and by a scan for the ids that are not found there."""
    schema = table.schema
    fields = [pa.field(n, pa.uint64()) if n in WHERE else schema.field(n) for n in names]
    parts = [pa.schema(fields).empty_table()]
    left = set(ids)
    if row_ids:
        taken = table.take_row_ids(list(row_ids)).select(list(names)).to_arrow().select(names)
        keys = taken[key].to_pylist()
        wanted = np.array([k in left for k in keys], dtype=bool)
        parts.append(taken if wanted.all() else taken.filter(pa.array(wanted)))
        left -= set(keys)  # the others have moved, or are gone
    if left:
        query = table.search().where(one_of(key, left)).select(list(names)).limit(ALL)
        parts.append(query.to_arrow().select(names))
    return pa.concat_tables([part.cast(parts[0].schema) for part in parts]).combine_chunks()
