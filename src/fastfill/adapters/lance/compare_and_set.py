"""Compare-and-set on the rows of a LanceDB table, at the price of the batch and not of the table.

Lance updates rows by moving them: what a commit changes lies at a new address afterwards. A merge
that brings whole rows and asks only for their address reads nothing of the table but its ids, where
one that leaves columns out, or compares them, holds all of these columns of all rows in memory.

What is written back must then be what is in the table, and this is how it is known to be:
- the merge begins at a version that this handle is pinned to, and the rows are those of that
  version: either no one else has committed since they were read, or they are read again and
  compared with what was seen;
- Lance commits what began at a version only if the rows it touches are still the same; otherwise it
  tries again at a later version, and the condition turns rows down that have moved;
- columns that someone rewrote in place, which Lance does where an index on the key allows it, do
  not move their rows. So where there is such an index the owner's columns are left out of the
  merge, whatever it costs; and if others have committed during a merge of whole rows (they may have
  built an index meanwhile) the owner's values are compared with those of the version before it, and
  put back where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastfill.adapters.lance.arrow import copyable, copyable_columns, differing, whole
from fastfill.adapters.lance.context import LanceContext
from fastfill.adapters.lance.rows import WHERE, HeldRows, read_rows
from fastfill.adapters.lance.sql import quoted
from fastfill.gallery import Id

PIECE = 1_024  # rows: a merge of many small pieces takes half the time of one of large ones
Unchanged = Callable[[Any, NDArray[np.int64]], NDArray[np.bool_]]


@dataclass(frozen=True)
class Change:
    """New values of some columns for rows that were read."""

    ids: Sequence[Id]
    row_ids: NDArray[np.uint64]
    held: HeldRows | None  # the rows as they were read
    values: Any  # Arrow table with the key, row by row
    unchanged: Unchanged  # compares rows of the table with those that were read, at some positions


class LanceMerge:
    """One table through a handle that stays at its version until it is told to move on."""

    def __init__(self, context: LanceContext) -> None:
        self._context = context
        self._table = context.connection.open_pinned(context.table_name)
        self._latest = -1  # the version that this handle has made last
        self._since = -1  # the version after which no one else has committed until then

    def swap(self, change: Change) -> int:
        """Write the values of the rows that are the same as when they were read."""
        with self._context.connection.turn:
            self._table.checkout_latest()
            if self._table.version != self._latest:
                self._since = self._table.version
            rows, positions = self._trusted(change), np.arange(len(change.ids))
            if rows is None:
                rows, positions = self._again(change)
                same = change.unchanged(rows, positions)
                rows, positions = rows.filter(pa.array(same)), positions[same]
            single = _first_of_each(rows[self._key])
            if single is not None:
                rows, positions = rows.take(single), positions[single]
            values = change.values
            if not np.array_equal(positions, np.arange(len(values))):
                values = values.take(positions)
            return self._commit(rows, values)

    @property
    def _key(self) -> str:
        return self._context.columns.id

    # --- what is in the table ------------------------------------------------------------------

    def _trusted(self, change: Change) -> Any:
        """The rows as they were held, if that is how they still are."""
        held = change.held
        if held is None or held.version < self._since or not len(change.row_ids):
            return None
        return held.take(change.row_ids)

    def _again(self, change: Change) -> tuple[Any, NDArray[np.int64]]:
        """The rows as they are at the pinned version, and which of the ids each of them has."""
        wanted = [*copyable_columns(self._table.schema, self._context.replaced), *WHERE]
        rows = read_rows(self._table, wanted, self._key, change.ids, change.row_ids.tolist())
        return rows, _positions(change.ids, rows[self._key].to_pylist())

    # --- committing ----------------------------------------------------------------------------

    def _commit(self, rows: Any, values: Any) -> int:
        """Whole rows in one merge; those that the client cannot write back whole in another."""
        schema, place = self._table.schema, self._context.place
        owners = [n for n in schema.names if n not in values.column_names and n != place]
        good = np.zeros(len(rows), dtype=bool)
        if not self._rewritten_in_place() and all(copyable(schema.field(n)) for n in owners):
            good = whole(rows.select(owners))
        written = 0
        for mask, columns in ((good, owners), (~good, [])):
            if mask.all():
                written += self._merge(rows, values, columns)
            elif mask.any():
                part = pa.array(mask)
                written += self._merge(rows.filter(part), values.filter(part), columns)
        return written

    def _rewritten_in_place(self) -> bool:
        """Can others change columns of a row without moving it?"""
        return any(list(index.columns) == [self._key] for index in self._table.list_indices())

    def _merge(self, rows: Any, values: Any, owners: Sequence[str]) -> int:
        if not len(rows):
            return 0
        columns = {name: rows[name] for name in owners}
        columns |= {name: values[name] for name in values.column_names}
        columns[self._context.place] = rows["_rowaddr"]
        schema = self._table.schema
        source = pa.table({name: columns[name] for name in schema.names if name in columns})
        builder = self._table.merge_insert(self._key).use_index(False)
        builder = builder.when_matched_update_all(where=self._unmoved())
        version = self._table.version
        pieces = pa.Table.from_batches(source.to_batches(PIECE), source.schema)
        result = builder.execute(pieces, on_bad_vectors="null")
        if result.version == version + 1:
            self._latest = result.version
        else:
            self._latest = -1
            self._put_back(result.version - 1, source, rows["_rowid"].to_pylist())
        return int(result.num_updated_rows)

    def _unmoved(self) -> str:
        """The condition of a merge: the row lies where it lay at the pinned version."""
        return f"target._rowaddr = source.{quoted(self._context.place)}"

    # --- what others have changed in place -----------------------------------------------------

    def _put_back(self, version: int, source: Any, row_ids: list[int]) -> None:
        """Restore what others have changed in place while `source` was on its way."""
        ours = (self._key, *self._context.added)
        owners = [name for name in source.column_names if name not in ours]
        if not owners:
            return
        right, sent = self._overwritten(version, source, row_ids, owners)
        if not len(right):
            return
        self._table.checkout_latest()
        ids = right[self._key].to_pylist()
        now = read_rows(self._table, [self._key, *owners, *WHERE], self._key, ids, [])
        positions = _positions(ids, now[self._key].to_pylist())
        right, sent = right.take(positions), sent.take(positions)
        stale = pa.array(~differing(now, sent, owners))  # the others have been changed again since
        values = {name: right[name].filter(stale) for name in (self._key, *owners)}
        for name in (self._context.columns.new, *self._context.marks):
            kind = self._table.schema.field(name).type
            values[name] = pa.nulls(len(values[self._key]), kind)
        self._merge(now.filter(stale), pa.table(values), [])

    def _overwritten(
        self, version: int, source: Any, row_ids: list[int], owners: Sequence[str]
    ) -> tuple[Any, Any]:
        """Rows of `version` whose owner's values were others than those of `source`; and these."""
        ids = source[self._key].to_pylist()
        before = self._context.connection.open_pinned(self._context.table_name)
        before.checkout(version)
        right = read_rows(before, [self._key, *owners], self._key, ids, row_ids)
        sent = source.take(_positions(ids, right[self._key].to_pylist()))
        lost = pa.array(differing(right, sent, owners))
        return right.filter(lost), sent.filter(lost)


def _positions(ids: Sequence[Id], wanted: Sequence[Id]) -> NDArray[np.int64]:
    position = {key: number for number, key in enumerate(ids)}
    return np.array([position[key] for key in wanted], dtype=np.int64)


def _first_of_each(keys: Any) -> NDArray[np.int64] | None:
    """Positions of the first row of each key; None when no key is there twice, as it should be."""
    if pc.count_distinct(keys, "all").as_py() == len(keys):
        return None
    first: dict[Id, int] = {}
    for position, key in enumerate(keys.to_pylist()):
        first.setdefault(key, position)
    return np.array(list(first.values()), dtype=np.int64)
