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

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fastfill.adapters.lance_arrow import (
    copyable,
    copyable_columns,
    differing,
    one_of,
    quoted,
    whole,
)
from fastfill.adapters.lance_documents import ALL
from fastfill.gallery import Id

WHERE = ["_rowid", "_rowaddr"]  # Lance's names of a row: what `take` wants, and where it lies
PIECE = 1_024  # rows: a merge of many small pieces takes half the time of one of large ones
Unchanged = Callable[[Any, NDArray[np.int64]], NDArray[np.bool_]]


@dataclass(frozen=True)
class Names:
    """The columns of the table that a commit must tell apart."""

    key: str
    place: str  # where the row lay when it was last written: what the condition compares
    new: str
    marks: tuple[str, ...]

    @property
    def added(self) -> tuple[str, ...]:
        """Every column that is not the owner's."""
        return (self.new, *self.marks, self.place)

    @property
    def replaced(self) -> tuple[str, ...]:
        """What a write replaces without a look: all of these but the generation and the model."""
        return (self.new, *self.marks[2:], self.place)


@dataclass(frozen=True)
class Held:
    """Rows with all their columns, as they were at a version."""

    version: int
    sorted: NDArray[np.uint64]  # row ids
    order: NDArray[np.int64]
    rows: Any

    @classmethod
    def of(cls, version: int, rows: Any) -> Held:
        """Rows that were read at a version or later: if all goes well they are not read again."""
        ids = rows["_rowid"].to_numpy()
        order = np.argsort(ids, kind="stable")
        return cls(version, ids[order], order, rows)


class Ledger:
    """One table through a handle that stays at its version until it is told to move on."""

    def __init__(self, open_table: Callable[[], Any]) -> None:
        self._open = open_table
        self._table = open_table()
        self._lock = threading.RLock()  # one merge at a time: two would only conflict
        self._known = -1  # the version that this handle has made last
        self._since = -1  # the version after which no one else has committed until then

    def undisturbed(self, since: int, now: int) -> bool:
        """Has no one else committed between two versions, the second of which is the latest?"""
        return now == since or (now == self._known and self._since <= since)

    def swap(
        self,
        names: Names,
        ids: Sequence[Id],
        row_ids: NDArray[np.uint64],
        held: Held | None,
        changes: Any,
        unchanged: Unchanged,
    ) -> int:
        """Write the columns `changes` of the rows that are the same as when they were read.

        `unchanged(rows, positions)` compares rows of the table with those at `positions`.
        """
        with self._lock:
            self._table.checkout_latest()
            if self._table.version != self._known:
                self._since = self._table.version
            rows = self._trusted(row_ids, held)
            positions = np.arange(len(ids))
            if rows is None:
                rows, positions = self._again(names, ids, row_ids)
                same = unchanged(rows, positions)
                rows, positions = rows.filter(pa.array(same)), positions[same]
            single = _first_of_each(rows[names.key])
            if single is not None:
                rows, positions = rows.take(single), positions[single]
            if not np.array_equal(positions, np.arange(len(changes))):
                changes = changes.take(positions)
            return self._commit(names, rows, changes)

    # --- what is in the table ------------------------------------------------------------------

    def _trusted(self, row_ids: NDArray[np.uint64], held: Held | None) -> Any:
        """The rows as they were held, if that is how they still are."""
        if held is None or held.version < self._since or not len(row_ids):
            return None
        found = np.searchsorted(held.sorted, row_ids)
        found[found == len(held.sorted)] = 0
        if (held.sorted[found] != row_ids).any():
            return None
        positions = held.order[found]
        if len(positions) == len(held.rows) and (np.diff(positions) == 1).all():
            return held.rows
        return held.rows.take(positions)

    def _again(self, names: Names, ids: Sequence[Id], row_ids: Any) -> tuple[Any, Any]:
        """The rows as they are at the pinned version, and which of the ids each of them has."""
        wanted = [*copyable_columns(self._table.schema, names.replaced), *WHERE]
        rows = read_rows(self._table, wanted, names.key, ids, row_ids.tolist())
        place = {key: position for position, key in enumerate(ids)}
        return rows, np.array([place[key] for key in rows[names.key].to_pylist()], dtype=np.int64)

    # --- committing ----------------------------------------------------------------------------

    def _commit(self, names: Names, rows: Any, changes: Any) -> int:
        """Whole rows in one merge; those that the client cannot write back whole in another."""
        schema = self._table.schema
        owners = [n for n in schema.names if n not in changes.column_names and n != names.place]
        good = np.zeros(len(rows), dtype=bool)
        if not self._rewritten_in_place(names.key) and all(
            copyable(schema.field(name)) for name in owners
        ):
            good = whole(rows.select(owners))
        written = 0
        for mask, columns in ((good, owners), (~good, [])):
            if mask.all():
                written += self._merge(names, rows, changes, columns)
            elif mask.any():
                some = pa.array(mask)
                written += self._merge(names, rows.filter(some), changes.filter(some), columns)
        return written

    def _rewritten_in_place(self, key: str) -> bool:
        """Can others change columns of a row without moving it?"""
        return any(list(index.columns) == [key] for index in self._table.list_indices())

    def _merge(self, names: Names, rows: Any, changes: Any, owners: Sequence[str]) -> int:
        if not len(rows):
            return 0
        columns = {name: rows[name] for name in owners}
        columns |= {name: changes[name] for name in changes.column_names}
        columns[names.place] = rows["_rowaddr"]
        schema = self._table.schema
        source = pa.table({name: columns[name] for name in schema.names if name in columns})
        builder = self._table.merge_insert(names.key).use_index(False)
        builder = builder.when_matched_update_all(where=self._unmoved(names))
        version = self._table.version
        pieces = pa.Table.from_batches(source.to_batches(PIECE), source.schema)
        result = builder.execute(pieces, on_bad_vectors="null")
        if result.version == version + 1:
            self._known = result.version
        else:
            self._known = -1
            self._put_back(names, result.version - 1, source, rows["_rowid"].to_pylist())
        return int(result.num_updated_rows)

    @staticmethod
    def _unmoved(names: Names) -> str:
        """The condition of a merge: the row lies where it lay at the pinned version."""
        return f"target._rowaddr = source.{quoted(names.place)}"

    def _put_back(self, names: Names, version: int, source: Any, row_ids: list[int]) -> None:
        """Restore what others have changed in place while `source` was on its way."""
        owners = [n for n in source.column_names if n not in (names.key, *names.added)]
        if not owners:
            return
        ids = source[names.key].to_pylist()
        before = self._open()
        before.checkout(version)
        right = read_rows(before, [names.key, *owners], names.key, ids, row_ids)
        ours = source.take(_places(ids, right[names.key].to_pylist()))
        lost = differing(right, ours, owners)
        if not lost.any():
            return
        right, ours = right.filter(pa.array(lost)), ours.filter(pa.array(lost))
        self._table.checkout_latest()
        ids = right[names.key].to_pylist()
        now = read_rows(self._table, [names.key, *owners, *WHERE], names.key, ids, [])
        places = _places(ids, now[names.key].to_pylist())
        right, ours = right.take(places), ours.take(places)
        stale = pa.array(~differing(now, ours, owners))  # the others have been changed again since
        schema = self._table.schema
        changes = {name: right[name].filter(stale) for name in (names.key, *owners)}
        for name in (names.new, *names.marks):
            changes[name] = pa.nulls(len(changes[names.key]), schema.field(name).type)
        self._merge(names, now.filter(stale), pa.table(changes), [])


def read_rows(
    table: Any, names: Sequence[str], key: str, ids: Sequence[Id], row_ids: Sequence[int]
) -> Any:
    """Rows by the row ids that are known, and by a scan for the ids that are not found there."""
    schema = table.schema
    fields = [pa.field(n, pa.uint64()) if n in WHERE else schema.field(n) for n in names]
    found = [pa.schema(fields).empty_table()]
    left = set(ids)
    if row_ids:
        taken = table.take_row_ids(list(row_ids)).select(list(names)).to_arrow().select(names)
        keys = taken[key].to_pylist()
        here = np.array([k in left for k in keys], dtype=bool)
        found.append(taken if here.all() else taken.filter(pa.array(here)))
        left -= set(keys)  # the others have moved, or are gone
    if left:
        query = table.search().where(one_of(key, left)).select(list(names)).limit(ALL)
        found.append(query.to_arrow().select(names))
    return pa.concat_tables([part.cast(found[0].schema) for part in found]).combine_chunks()


def _places(ids: Sequence[Id], wanted: Sequence[Id]) -> NDArray[np.int64]:
    place = {key: position for position, key in enumerate(ids)}
    return np.array([place[key] for key in wanted], dtype=np.int64)


def _first_of_each(keys: Any) -> NDArray[np.int64] | None:
    """Positions of the first row of each key; None when no key is there twice, as it should be."""
    if pc.count_distinct(keys, "all").as_py() == len(keys):
        return None
    first: dict[Id, int] = {}
    for position, key in enumerate(keys.to_pylist()):
        first.setdefault(key, position)
    return np.array(list(first.values()), dtype=np.int64)
