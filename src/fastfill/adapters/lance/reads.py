"""Reading rows of a LanceDB table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastfill.adapters.lance.arrow import copyable_columns
from fastfill.adapters.lance.context import LanceContext
from fastfill.adapters.lance.deadline import READ, answered_within
from fastfill.adapters.lance.fragment_sweep import FragmentSweeps, Sweep
from fastfill.adapters.lance.rows import WHERE, HeldRows, as_rows, contents, read_rows
from fastfill.adapters.lance.sql import not_right, of_generation, quoted
from fastfill.gallery import Generation, Id, Picked, Rows, Settled, objects
from fastfill.gallery.base import ids_of
from fastfill.gallery.fingerprint import content_fingerprints

READ_ROWS = 8_192  # of a scan's steps: Lance reads many of them ahead, so they bound the memory
MARK_ROWS = 1 << 17  # of a scan's steps over a few numbers of each row
VALUE_ROWS = 1 << 16  # of a scan's steps over one column of the owner's
Scan = Callable[[str | None, list[str], int], Iterator[Any]]


class LanceReads:
    """Scans see the version at their first step; rows that were picked are read by their ids."""

    def __init__(self, context: LanceContext, sweeps: FragmentSweeps) -> None:
        self._context, self._sweeps = context, sweeps

    # --- many rows -----------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""
        wrong = not_right(self._context.columns, settled)
        sweep = self._sweeps.begin(settled) if changed else Sweep(self._context)
        for table in self._blocks(sweep.scan, wrong, self._whole(new), batch):
            sweep.found(table)
            yield as_rows(self._context, table, new, HeldRows.of(sweep.version, table))
        if changed:
            yield from self._changed(sweep, f"NOT ({wrong})", batch)
            sweep.end()

    def _changed(self, sweep: Sweep, where: str, batch: int) -> Iterator[Rows]:
        context, mark = self._context, self._context.columns.mark("fingerprint")
        names = [*self._content(new=False), "_rowaddr", mark]
        for table in sweep.scan(where, names, min(batch, READ_ROWS)):
            stored = table[mark].cast(pa.binary()).to_numpy(zero_copy_only=False)
            differ = np.asarray(content_fingerprints(*contents(context, table)) != stored)
            if differ.any():
                changed = table.filter(pa.array(differ))
                sweep.found(changed)
                yield as_rows(context, changed, False)

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation, as of the version at the first step."""
        columns = self._context.columns
        where = None if generation is None else of_generation(columns, generation)
        for table in self._blocks(self._context.scan, where, self._content(new), batch):
            yield as_rows(self._context, table, new)

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model)."""
        context, columns = self._context, self._context.columns
        names = [columns.mark("generation"), columns.mark("model")]
        if names[0] not in context.names():
            return {(None, None): context.table.count_rows()}
        counts: dict[tuple[str | None, str | None], int] = {}
        for table in context.scan(None, names, MARK_ROWS):
            for group in table.group_by(names).aggregate([([], "count_all")]).to_pylist():
                key = (group[names[0]], group[names[1]])
                counts[key] = counts.get(key, 0) + group["count_all"]
        return counts

    def estimate(self) -> None:
        """No other way than to count."""

    # --- some rows -----------------------------------------------------------------------------

    def read(self, rows: Sequence[Id] | Picked, *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now: by their row ids where these are known, else by a scan."""
        context = self._context
        row_ids: list[int] = []
        if isinstance(rows, Picked) and rows.places is not None:
            row_ids = rows.places.tolist()
        version = context.table.version
        with context.connection.errors(), answered_within(READ):
            table = read_rows(
                context.table, self._whole(new), context.columns.id, ids_of(rows), row_ids
            )
        return as_rows(context, table, new, HeldRows.of(version, table))

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """One column of these rows, by one scan of it: a long list of ids is slow to filter by."""
        context, key = self._context, self._context.columns.id
        context.require_column(column, context.names())
        wanted, values = set(ids), {}
        for table in context.scan(None, list(dict.fromkeys([key, column])), VALUE_ROWS):
            pairs = zip(table[key].to_pylist(), table[column].to_pylist(), strict=True)
            values.update({name: value for name, value in pairs if name in wanted})
        return values

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> Picked:
        """Rows of a generation by falling priority, by one scan of their marks.

        Lance has no index that rows could be picked by. Ask for many rows at once.
        """
        columns = self._context.columns
        names = [columns.id, columns.mark("priority"), "_rowid"]
        blocks = self._context.scan(of_generation(columns, generation), names, MARK_ROWS)
        best = _highest(blocks, columns.mark("priority"), limit + len(exclude))
        if best is None:
            return Picked(objects([]), np.zeros(0, np.uint64))
        picked = Picked(objects(best[columns.id].to_pylist()), best["_rowid"].to_numpy())
        if exclude:
            picked = picked.take(np.array([key not in exclude for key in picked.ids], dtype=bool))
        return picked.take(slice(limit))

    def sample(self, limit: int, seed: int, *, new: bool = False) -> list[Id]:
        """Random ids of rows that can be paired and are not new, or of those that are `new`."""
        context, columns = self._context, self._context.columns
        where = f"{quoted(columns.old)} IS NOT NULL AND {quoted(columns.input or '')} IS NOT NULL"
        mark = columns.mark("generation")
        if new:
            if mark not in context.names():
                return []
            where = of_generation(columns, "new")
        elif mark in context.names():
            where += f" AND ({quoted(mark)} IS NULL OR {quoted(mark)} <> 'new')"
        blocks = [t["_rowid"].to_numpy() for t in context.scan(where, ["_rowid"], MARK_ROWS)]
        if not blocks:
            return []
        row_ids = np.concatenate(blocks)
        chosen = np.random.default_rng(seed).permutation(len(row_ids))[:limit]
        query = context.table.take_row_ids(row_ids[chosen].tolist()).select([columns.id])
        return list(query.to_arrow()[columns.id].to_pylist())

    # --- columns and blocks --------------------------------------------------------------------

    def _content(self, new: bool) -> list[str]:
        """What rows are made of, where a scan may meet any number of them."""
        columns = self._context.columns
        wanted = [columns.id, columns.old, columns.input or ""]
        wanted += [columns.mark("generation"), columns.mark("model")]
        wanted += [columns.new] if new else []
        have = set(self._context.names())
        return [*(name for name in dict.fromkeys(wanted) if name in have), "_rowid"]

    def _whole(self, new: bool) -> list[str]:
        """Every column that is written back with the row, for rows that are about to be."""
        context = self._context
        but = [name for name in context.replaced if not (new and name == context.columns.new)]
        return [*copyable_columns(context.table.schema, but), *WHERE]

    def _blocks(self, scan: Scan, where: str | None, names: list[str], batch: int) -> Iterator[Any]:
        """Blocks of `batch` rows: a scan's own end wherever a fragment does."""
        waiting: list[Any] = []
        count = 0
        for table in scan(where, names, min(batch, READ_ROWS)):
            waiting.append(table)
            count += len(table)
            while count >= batch:
                merged = pa.concat_tables(waiting)
                waiting, count = [merged.slice(batch)], count - batch
                merged = merged.slice(0, batch).combine_chunks()
                yield merged
        if count:
            yield pa.concat_tables(waiting).combine_chunks()


def _highest(blocks: Iterator[Any], column: str, keep: int) -> Any:
    """The `keep` rows with the highest values, in order; None where there is no row at all.

    It never holds many more rows than it keeps.
    """
    held: list[Any] = []
    count = 0
    for block in blocks:
        held.append(block)
        count += len(block)
        if count > 2 * keep + MARK_ROWS:
            held, count = [_first(held, column, keep)], keep
    return _first(held, column, keep) if held else None


def _first(tables: list[Any], column: str, keep: int) -> Any:
    table = pa.concat_tables(tables)
    order = pc.sort_indices(table, [(column, "descending")])  # nulls last
    return table.take(order.slice(0, keep))
