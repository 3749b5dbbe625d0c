"""LanceDB, the embedded default: `lance://PATH#TABLE.COLUMN`.

What the design rests on, in Lance's terms:
- a batch is one `merge_insert`, which commits one new version of the table or nothing at all;
- the compare-and-set is that of `lance_ledger`: rows are at the address at which they were read;
- a scan reads the version that it began with, so rows that are written meanwhile are not met again.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import MissingExtraError, StoreError, some
from fastfill.features import Matrix
from fastfill.gallery import (
    MARKS,
    Generation,
    Id,
    Marks,
    Rows,
    Settled,
    fingerprints,
)

try:
    import lancedb
    import pyarrow as pa

    from fastfill.adapters.lance_arrow import (
        MARK_TYPES,
        as_objects,
        copyable_columns,
        give_memory_back,
        lists,
        literal,
        matrix,
        missing,
        one_of,
        quoted,
    )
    from fastfill.adapters.lance_documents import ALL
    from fastfill.adapters.lance_ledger import WHERE, Held, Ledger, Names, read_rows
    from fastfill.adapters.lance_queue import Queue
    from fastfill.adapters.lance_search import LanceSearch
except ImportError as error:
    raise MissingExtraError("lancedb", "lance", "A lance:// URL") from error

READ_ROWS = 8_192  # of a scan's steps: Lance reads many of them ahead, so they bound the memory
MARK_ROWS = 1 << 17  # of a scan's steps over a few numbers of each row
GIVE_BACK_EVERY = 8  # writes: the system takes its time to hand out what it was given back
KEEP_VERSIONS = timedelta(minutes=10)  # a reader may be in the middle of a query on an old version
SEEN = np.dtype([("row", np.uint64), ("print", "S32")])  # a row id, and what the row is made of


class LanceStore(LanceSearch):
    """One vector column of one LanceDB table."""

    def __init__(self, path: str, table: str, column: str) -> None:
        super().__init__(path, table, column)
        self._ledger = Ledger(lambda: lancedb.connect(path).open_table(table))
        self._queue = Queue()
        self._writes = 0
        self._picked = threading.local()  # a worker's own: ids to row ids, by generation

    # --- expand and contract -------------------------------------------------------------------

    @property
    def _names(self) -> Names:
        columns = self.columns
        marks = tuple(columns.mark(name) for name in MARKS)
        return Names(columns.id, columns.mark("place"), columns.new, marks)

    def expand(self, dim: int) -> None:
        """Add the vector column and the marks, as nulls: a matter of milliseconds."""
        have = set(self._table.schema.names)
        if self.columns.new in have and self._dim(self.columns.new) != dim:
            raise StoreError(
                f"{self.name}: column '{self.columns.new}' has {self._dim(self.columns.new)} "
                f"dimensions, not {dim}. Roll the migration back before another model."
            )
        kinds = [pa.list_(pa.float32(), dim), *MARK_TYPES, pa.uint64()]
        fields = [
            pa.field(name, kind)
            for name, kind in zip(self._names.added, kinds, strict=True)
            if name not in have
        ]
        if fields:
            self._retry(lambda: self._table.add_columns(fields))

    def contract(self) -> None:
        """Drop the added columns."""
        self._drop(self._names.added)

    def drop_old(self) -> None:
        """Drop the old vectors and the marks."""
        self._drop((self.columns.old, *self._names.marks, self._names.place))

    def _drop(self, names: Sequence[str]) -> None:
        there = [name for name in names if name in self._table.schema.names]
        if there:
            self._retry(lambda: self._table.drop_columns(there))

    # --- reading -------------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""
        generation, model = (quoted(self.columns.mark(n)) for n in ("generation", "model"))
        right = [
            f"({generation} IN ({names}) AND {model} = {literal(tag)})"
            for names, tag in (("'aligned'", settled.aligned), ("'new', 'waiting'", settled.new))
            if tag is not None
        ]
        wrong = f"{generation} IS NULL OR {model} IS NULL OR NOT ({' OR '.join(right)})"
        version = self._table.version
        for table in self._blocks(wrong, self._whole(new), batch):
            yield self._rows(table, new, Held.of(version, table))
        if changed:
            yield from self._changed(f"NOT ({wrong})", batch)

    def _changed(self, where: str, batch: int) -> Iterator[Rows]:
        mark = self.columns.mark("fingerprint")
        for table in self._scan(where, [*self._content(False), mark], min(batch, READ_ROWS)):
            stored = table[mark].cast(pa.binary()).to_numpy(zero_copy_only=False)
            differ = np.asarray(_fingerprints(*self._contents(table)) != stored)
            if differ.any():
                yield self._rows(table.filter(pa.array(differ)), False)

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation, as of the version at the first step."""
        where = None
        if generation is not None:
            where = f"{quoted(self.columns.mark('generation'))} = {literal(generation)}"
        for table in self._blocks(where, self._content(new), batch):
            yield self._rows(table, new)

    def read(self, ids: Sequence[Id], *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now: by their row ids where these are known, else by a scan."""
        version = self._table.version
        places: dict[Id, int] = {}
        for picked in vars(self._picked).values():
            places |= picked
        row_ids = [places[key] for key in ids if key in places]
        table = read_rows(self._table, self._whole(new), self.columns.id, ids, row_ids)
        return self._rows(table, new, Held.of(version, table))

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """One column of these rows, by one scan of it: a long list of ids is slow to filter by."""
        have = self._table.schema.names
        if column not in have:
            raise StoreError(f"{self.name}: there is no column '{column}', only {some(have)}.")
        wanted, found, key = set(ids), {}, self.columns.id
        for table in self._scan(None, list(dict.fromkeys([key, column])), 65_536):
            pairs = zip(table[key].to_pylist(), table[column].to_pylist(), strict=True)
            found.update({name: value for name, value in pairs if name in wanted})
        return found

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> list[Id]:
        """Ids of a generation by falling priority."""
        key, most, version = self.columns.id, limit + len(exclude), self._table.version
        best = self._queue.first(
            generation, most, lambda since: self._ledger.undisturbed(since, version)
        )
        if best is None:
            priority = self.columns.mark("priority")
            where = f"{quoted(self.columns.mark('generation'))} = {literal(generation)}"
            blocks = self._scan(where, [key, priority, "_rowid"], MARK_ROWS)
            best = self._queue.fill(generation, version, blocks, priority, most)
        ids = best[key].to_pylist() if len(best) else []
        wanted = [n for n, name in enumerate(ids) if name not in exclude][:limit]
        ids, row_ids = [ids[n] for n in wanted], best["_rowid"].to_numpy()[wanted].tolist()
        vars(self._picked)[generation] = dict(zip(ids, row_ids, strict=True))
        return ids

    def sample(self, limit: int, seed: int) -> list[Id]:
        """Random ids of rows that can be paired and are not new."""
        old, content = quoted(self.columns.old), quoted(self.columns.input or "")
        where = f"{old} IS NOT NULL AND {content} IS NOT NULL"
        mark = self.columns.mark("generation")
        if mark in self._table.schema.names:
            where += f" AND ({quoted(mark)} IS NULL OR {quoted(mark)} <> 'new')"
        found = [t["_rowid"].to_numpy() for t in self._scan(where, ["_rowid"], MARK_ROWS)]
        if not found:
            return []
        row_ids = np.concatenate(found)
        chosen = np.random.default_rng(seed).permutation(len(row_ids))[:limit]
        query = self._table.take_row_ids(row_ids[chosen].tolist()).select([self.columns.id])
        return list(query.to_arrow()[self.columns.id].to_pylist())

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model)."""
        names = [self.columns.mark("generation"), self.columns.mark("model")]
        if names[0] not in self._table.schema.names:
            return {(None, None): self._table.count_rows()}
        found: dict[tuple[str | None, str | None], int] = {}
        for table in self._scan(None, names, MARK_ROWS):
            for group in table.group_by(names).aggregate([([], "count_all")]).to_pylist():
                key = (group[names[0]], group[names[1]])
                found[key] = found.get(key, 0) + group["count_all"]
        return found

    def _content(self, new: bool) -> list[str]:
        """What rows are made of, where a scan may meet any number of them."""
        wanted = [self.columns.id, self.columns.old, self.columns.input or ""]
        wanted += [self.columns.mark("generation"), self.columns.mark("model")]
        wanted += [self.columns.new] if new else []
        have = set(self._table.schema.names)
        return [*(name for name in dict.fromkeys(wanted) if name in have), "_rowid"]

    def _whole(self, new: bool) -> list[str]:
        """Every column that is written back with the row, for rows that are about to be."""
        but = [name for name in self._names.replaced if not (new and name == self.columns.new)]
        return [*copyable_columns(self._table.schema, but), *WHERE]

    def _scan(self, where: str | None, names: list[str], rows: int) -> Iterator[Any]:
        query = self._table.search().select(names).limit(ALL)
        if where:
            query = query.where(where)
        for block in query.to_batches(max(rows, 1)):
            if block.num_rows:
                yield pa.Table.from_batches([block]).select(names)

    def _blocks(self, where: str | None, names: list[str], batch: int) -> Iterator[Any]:
        """Blocks of `batch` rows: a scan's own end wherever a fragment does."""
        waiting: list[Any] = []
        count = 0
        for table in self._scan(where, names, min(batch, READ_ROWS)):
            waiting.append(table)
            count += len(table)
            while count >= batch:
                merged = pa.concat_tables(waiting)
                waiting, count = [merged.slice(batch)], count - batch
                merged = merged.slice(0, batch).combine_chunks()
                yield merged
        if count:
            yield pa.concat_tables(waiting).combine_chunks()

    def _rows(self, table: Any, new: bool, held: Held | None = None) -> Rows:
        columns, (old, inputs) = self.columns, self._contents(table)
        seen = np.zeros(len(table), dtype=SEEN)
        seen["row"] = table["_rowid"].to_numpy()
        if held is not None:  # rows that are about to be written
            seen["print"] = _fingerprints(old, inputs)
        return Rows(
            ids=as_objects(table, columns.id),
            old=old,
            inputs=inputs,
            generation=as_objects(table, columns.mark("generation")),
            model=as_objects(table, columns.mark("model")),
            seen=seen,
            new=matrix(table, columns.new, self._dim(columns.new)) if new else None,
            held=held,
        )

    def _contents(self, table: Any) -> tuple[Matrix, NDArray[np.object_]]:
        """What the fingerprint is of: old vectors (n, d) and inputs."""
        old = matrix(table, self.columns.old, self._dim(self.columns.old))
        return np.asarray(old, dtype=np.float32), as_objects(table, self.columns.input or "")

    # --- writing -------------------------------------------------------------------------------

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """One merge of whole rows; what has changed since it was read is left out."""
        if not len(rows):
            return 0
        known = rows.held is not None
        prints = rows.seen["print"].copy() if known else _fingerprints(rows.old, rows.inputs)
        changes = self._changes(rows, vectors, marks, prints)

        def unchanged(table: Any, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
            now = self._rows(table, False)
            same = _fingerprints(now.old, now.inputs) == prints[positions]
            same &= now.generation == rows.generation[positions]
            return np.asarray(same & (now.model == rows.model[positions]), dtype=bool)

        ids, row_ids, names = rows.ids.tolist(), rows.seen["row"], self._names
        written = -1
        try:
            written = self._retry(
                lambda: self._ledger.swap(names, ids, row_ids, rows.held, changes, unchanged)
            )
        finally:
            if marks.generation == "new" and written == len(rows):
                self._queue.done(row_ids)
            else:
                self._queue.forget()
            self._writes += 1
            if self._writes % GIVE_BACK_EVERY == 0:
                give_memory_back()
        return written

    def _changes(
        self, rows: Rows, vectors: Matrix | None, marks: Marks, prints: NDArray[np.bytes_]
    ) -> Any:
        """The id, the added vector and the marks, row by row."""
        columns, count, schema = self.columns, len(rows), self._table.schema
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
        for name, value, kind in zip(MARKS, values, MARK_TYPES, strict=True):
            array = pa.nulls(count, kind) if value is None else pa.array(value).cast(kind)
            data[columns.mark(name)] = array
        return pa.table(data)

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id."""
        schema = self._table.schema
        data = pa.table({n: pa.array(list(v), schema.field(n).type) for n, v in values.items()})

        def merge() -> None:
            builder = self._table.merge_insert(self._columns.id if self._columns else "id")
            builder = builder.use_index(False).when_matched_update_all()
            builder.when_not_matched_insert_all().execute(data, on_bad_vectors="null")

        self._retry(merge)

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        if ids:
            self._retry(lambda: self._table.delete(one_of(self.columns.id, ids)))

    def optimize(self) -> None:
        """Compact fragments, index what is new, clean old versions."""
        self._retry(lambda: self._table.optimize(cleanup_older_than=KEEP_VERSIONS))
        if self._join_parts():
            self._retry(lambda: self._table.optimize(cleanup_older_than=KEEP_VERSIONS))

    def close(self) -> None:
        """Nothing to let go of: LanceDB keeps no connection."""


def _fingerprints(old: Matrix, inputs: NDArray[np.object_]) -> NDArray[np.bytes_]:
    return fingerprints(old, ~missing(old), inputs)
