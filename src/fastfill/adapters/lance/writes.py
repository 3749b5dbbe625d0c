"""Writing to a LanceDB table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastfill.adapters.lance.arrow import MARK_TYPES, give_memory_back, lists
from fastfill.adapters.lance.compare_and_set import Change, LanceMerge
from fastfill.adapters.lance.context import LanceContext
from fastfill.adapters.lance.rows import as_rows
from fastfill.adapters.lance.sql import one_of
from fastfill.features import Matrix
from fastfill.gallery import Id, Marks, Rows
from fastfill.gallery.fingerprint import content_fingerprints

GIVE_BACK_EVERY = 8  # writes: the system takes its time to hand out what it was given back


class LanceWrites:
    """A batch is one merge of whole rows."""

    def __init__(self, context: LanceContext) -> None:
        self._context = context
        self._merge = LanceMerge(context)
        self._count = 0

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """One merge; what has changed since it was read is left out."""
        if not len(rows):
            return 0
        if rows.held is None:
            prints = content_fingerprints(rows.old, rows.inputs)
        else:
            prints = rows.seen["print"].copy()
        change = Change(
            ids=rows.ids.tolist(),
            row_ids=rows.seen["row"],
            held=rows.held,
            values=self._values(rows, vectors, marks, prints),
            unchanged=lambda table, at: self._unchanged(table, rows, prints, at),
        )
        try:
            return self._context.connection.commit(lambda: self._merge.swap(change))
        finally:
            self._count += 1
            if self._count % GIVE_BACK_EVERY == 0:
                give_memory_back()

    def _unchanged(
        self, table: Any, rows: Rows, prints: NDArray[np.bytes_], at: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """(n,) is a row of the table what the row at its position was when it was read?"""
        now = as_rows(self._context, table, new=False)
        same = content_fingerprints(now.old, now.inputs) == prints[at]
        same &= now.generation == rows.generation[at]
        return np.asarray(same & (now.model == rows.model[at]), dtype=bool)

    def _values(
        self, rows: Rows, vectors: Matrix | None, marks: Marks, prints: NDArray[np.bytes_]
    ) -> Any:
        """The id, the added vector and the marks, row by row."""
        columns, count, schema = self._context.columns, len(rows), self._context.table.schema
        kind = schema.field(columns.new).type
        data = {
            columns.id: pa.array(rows.ids.tolist(), schema.field(columns.id).type),
            columns.new: pa.nulls(count, kind) if vectors is None else lists(vectors, kind),
        }
        values = (
            pa.repeat(marks.generation, count),
            pa.repeat(marks.model, count),
            marks.variance,
            marks.priority,
            prints,
        )
        for name, value, kind in zip(self._context.marks, values, MARK_TYPES, strict=True):
            data[name] = pa.nulls(count, kind) if value is None else pa.array(value).cast(kind)
        return pa.table(data)

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id."""
        context = self._context
        schema = context.table.schema
        data = pa.table({n: pa.array(list(v), schema.field(n).type) for n, v in values.items()})

        def merge() -> None:
            builder = context.table.merge_insert(context.key)
            builder = builder.use_index(False).when_matched_update_all()
            builder.when_not_matched_insert_all().execute(data, on_bad_vectors="null")

        context.connection.commit(merge)

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        context = self._context
        if ids:
            among = one_of(context.columns.id, ids)
            context.connection.commit(lambda: context.table.delete(among))
