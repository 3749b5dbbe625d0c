"""LanceDB, the embedded default: `lance://PATH#TABLE.COLUMN`.

What the design rests on, in Lance's terms:
- a batch is one `merge_insert`, which commits one new version of the table or nothing at all;
- its condition is the compare-and-set. It can name only columns of the source, so the batch carries
  the owner's vector and input as they were read, and writes them where they are unchanged;
- `merge_insert` does not see two inserts of one key as a conflict, but it does see two updates of
  one row, so a document that does not exist yet is created together with a touch of a lock row;
- a scan reads the version that it began with, so rows that are written meanwhile are not met again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.errors import MissingExtraError, StoreError, some
from fastfill.features import Array, Distance, Matrix
from fastfill.gallery import (
    MARKS,
    Columns,
    Description,
    Document,
    Generation,
    Hits,
    Id,
    Marks,
    Rows,
    Settled,
    Side,
    fingerprints,
    objects,
)

try:
    import lancedb
    import pyarrow as pa
except ImportError as error:
    raise MissingExtraError("lancedb", "lance", "A lance:// URL") from error

T = TypeVar("T")
DOCUMENTS = "fastfill"  # the table of documents, beside the owner's
LOCK = ".lock"
READ_ROWS = 8_192  # of a scan's steps: Lance reads many of them ahead, so they bound the memory
ALL = 2**31 - 1  # LanceDB wants a limit; this is none
PATIENCE = 60.0  # seconds of commit conflicts with other writers before giving up
KEEP_VERSIONS = timedelta(minutes=10)  # a reader may be in the middle of a query on an old version
BATCH_NUMBERS = 1 << 24  # floats in the old vectors of a batch: 64 MiB
LANCE_METRIC: dict[Distance, Literal["l2", "cosine", "dot"]] = {
    "l2": "l2",
    "cosine": "cosine",
    "ip": "dot",
}
DISTANCE_OF: dict[str, Distance] = {metric: distance for distance, metric in LANCE_METRIC.items()}


class LanceStore:
    """One vector column of one LanceDB table."""

    def __init__(self, path: str, table: str, column: str) -> None:
        self.name = f"lance://{path}#{table}.{column}"
        self.column = column
        self._columns: Columns | None = None
        # Every read sees the latest version: other processes write too.
        self._db = lancedb.connect(path, read_consistency_interval=timedelta(0))
        tables = _table_names(self._db)
        if table not in tables:
            raise StoreError(
                f"{path} has no table '{table}', only {some(tables) or 'an empty folder'}."
            )
        self._table = self._db.open_table(table)
        self._documents: Any = None
        self._places: dict[Id, int] = {}  # where the rows last picked were
        self._dim(column)

    # --- what is there -------------------------------------------------------------------------

    @property
    def columns(self) -> Columns:
        """The names in use."""
        if self._columns is None:
            raise StoreError(f"{self.name}: say first which columns hold the id and the input.")
        return self._columns

    def bind(self, columns: Columns) -> None:
        """Say which columns hold what."""
        have = self._table.schema.names
        for name in (columns.id, columns.input):
            if name is not None and name not in have:
                raise StoreError(f"{self.name}: there is no column '{name}', only {some(have)}.")
        self._columns = columns

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        rows = self._table.count_rows()
        names = tuple(self._table.schema.names)
        old = self.column if self.column in names else self.columns.new
        return Description(
            rows=rows,
            old_dim=self._dim(old),
            new_dim=self._dim(self.columns.new) if self.columns.new in names else None,
            distance=self._index_distance(old),
            columns=names,
            # A merge reads the whole table's vectors, so its cost hardly depends on the batch.
            batch=int(np.clip(BATCH_NUMBERS // max(self._dim(old), 1), 4_096, 65_536)),
        )

    def _dim(self, column: str) -> int:
        names = self._table.schema.names
        if column not in names:
            return 0 if self._columns else self._no_column(column, names)
        kind = self._table.schema.field(column).type
        if not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
            raise StoreError(f"{self.name}: column '{column}' holds {kind}, not vectors.")
        return int(kind.list_size)

    def _no_column(self, column: str, names: list[str]) -> int:
        # After `complete --drop-old` the address of the migration is still the old column's.
        if f"{column}_new" in names or self._documents_exist():
            return 0
        raise StoreError(f"{self.name}: there is no column '{column}', only {some(names)}.")

    def _index_distance(self, column: str) -> Distance | None:
        for index in self._table.list_indices():
            if list(index.columns) == [column]:
                stats = self._table.index_stats(index.name)
                return DISTANCE_OF.get(str(getattr(stats, "distance_type", "")).lower())
        return None

    # --- expand and contract -------------------------------------------------------------------

    def expand(self, dim: int) -> None:
        """Add the vector column and the marks, as nulls: a matter of milliseconds."""
        have = set(self._table.schema.names)
        if self.columns.new in have and self._dim(self.columns.new) != dim:
            raise StoreError(
                f"{self.name}: column '{self.columns.new}' has {self._dim(self.columns.new)} "
                f"dimensions, not {dim}. Roll the migration back before another model."
            )
        kinds = [pa.list_(pa.float32(), dim), *_MARK_TYPES]
        fields = [
            pa.field(name, kind)
            for name, kind in zip(self.columns.added, kinds, strict=True)
            if name not in have
        ]
        if fields:
            self._retry(lambda: self._table.add_columns(fields))

    def contract(self) -> None:
        """Drop the added columns."""
        self._drop(self.columns.added)

    def drop_old(self) -> None:
        """Drop the old vectors and the marks."""
        self._drop((self.columns.old, *(self.columns.mark(name) for name in MARKS)))

    def _drop(self, names: Sequence[str]) -> None:
        there = [name for name in names if name in self._table.schema.names]
        if there:
            self._retry(lambda: self._table.drop_columns(there))

    # --- reading -------------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""
        generation, model = (_quoted(self.columns.mark(n)) for n in ("generation", "model"))
        right = [
            f"({generation} IN ({names}) AND {model} = {_literal(tag)})"
            for names, tag in (("'aligned'", settled.aligned), ("'new', 'waiting'", settled.new))
            if tag is not None
        ]
        wrong = f"{generation} IS NULL OR {model} IS NULL OR NOT ({' OR '.join(right)})"
        yield from self._blocks(wrong, batch, new)
        if changed:
            yield from self._changed(f"NOT ({wrong})", batch)

    def _changed(self, where: str, batch: int) -> Iterator[Rows]:
        mark = self.columns.mark("fingerprint")
        for table in self._scan(where, self._names(False, extra=[mark]), batch):
            rows = self._rows(table, False)
            now = fingerprints(rows.seen, ~_missing(rows.seen), rows.inputs)
            stored = table[mark].to_pylist()
            differ = np.array([a != b for a, b in zip(now, stored, strict=True)], dtype=bool)
            if differ.any():
                yield rows.take(differ)

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation, as of the version at the first step."""
        where = None
        if generation is not None:
            where = f"{_quoted(self.columns.mark('generation'))} = {_literal(generation)}"
        yield from self._blocks(where, batch, new)

    def read(self, ids: Sequence[Id], *, new: bool = False) -> Rows:
        """These rows as they are now: by their places where these are known, else by a scan."""
        names = self._names(new)
        tables = [self._table.schema.empty_table().select(names)]
        places = [self._places[key] for key in ids if key in self._places]
        if places:
            taken = self._table.take_row_ids(places).select(names).to_arrow().select(names)
            found = set(taken[self.columns.id].to_pylist())
            tables.append(taken)
            ids = [key for key in ids if key not in found]  # these have moved, or are gone
        if ids:
            tables += self._scan(self._among(ids), names, len(ids))
        return self._rows(pa.concat_tables(tables).cast(tables[0].schema), new)

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> list[Id]:
        """Ids of a generation by falling priority."""
        from lancedb.query import ColumnOrdering

        query = (
            self._table.search()
            .where(f"{_quoted(self.columns.mark('generation'))} = {_literal(generation)}")
            .select([self.columns.id])
            .with_row_id(True)
            .order_by([ColumnOrdering(column_name=self.columns.mark("priority"), ascending=False)])
            .limit(limit + len(exclude))
        )
        found = query.to_arrow()
        ids = found[self.columns.id].to_pylist()
        self._places = dict(zip(ids, found["_rowid"].to_pylist(), strict=True))
        return [key for key in ids if key not in exclude][:limit]

    def sample(self, limit: int, seed: int) -> list[Id]:
        """Random ids of rows that can be paired and are not new."""
        old, content = _quoted(self.columns.old), _quoted(self.columns.input or "")
        where = f"{old} IS NOT NULL AND {content} IS NOT NULL"
        mark = self.columns.mark("generation")
        if mark in self._table.schema.names:
            where += f" AND ({_quoted(mark)} IS NULL OR {_quoted(mark)} <> 'new')"
        ids = [
            key
            for table in self._scan(where, [self.columns.id], 65_536)
            for key in table[self.columns.id].to_pylist()
        ]
        return random.Random(seed).sample(ids, min(limit, len(ids)))

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model)."""
        names = [self.columns.mark("generation"), self.columns.mark("model")]
        if names[0] not in self._table.schema.names:
            return {(None, None): self._table.count_rows()}
        found: dict[tuple[str | None, str | None], int] = {}
        for table in self._scan(None, names, 1 << 20):
            for group in table.group_by(names).aggregate([([], "count_all")]).to_pylist():
                key = (group[names[0]], group[names[1]])
                found[key] = found.get(key, 0) + group["count_all"]
        return found

    def _names(self, new: bool, extra: Sequence[str] = ()) -> list[str]:
        wanted = [self.columns.id, self.columns.old, self.columns.input or ""]
        wanted += [self.columns.mark("generation"), self.columns.mark("model")]
        wanted += [self.columns.new] if new else []
        have = set(self._table.schema.names)
        return [name for name in dict.fromkeys([*wanted, *extra]) if name in have]

    def _scan(self, where: str | None, names: list[str], batch: int) -> Iterator[Any]:
        query = self._table.search().select(names).limit(ALL)
        if where:
            query = query.where(where)
        for block in query.to_batches(min(max(batch, 1), READ_ROWS)):
            if block.num_rows:
                yield pa.Table.from_batches([block]).select(names)

    def _blocks(self, where: str | None, batch: int, new: bool) -> Iterator[Rows]:
        """Blocks of `batch` rows: a scan's own end wherever a fragment does."""
        waiting: list[Any] = []
        for table in self._scan(where, self._names(new), batch):
            waiting.append(table)
            while sum(map(len, waiting)) >= batch:
                merged = pa.concat_tables(waiting)
                yield self._rows(merged.slice(0, batch), new)
                waiting = [merged.slice(batch)]
        rest = pa.concat_tables(waiting) if waiting else ()
        if len(rest):
            yield self._rows(rest, new)

    def _rows(self, table: Any, new: bool) -> Rows:
        columns, empty = self.columns, objects([None] * len(table))

        def values(name: str) -> NDArray[np.object_]:
            there = name in table.column_names
            return objects(table[name].to_pylist()) if there else empty

        seen = _matrix(table, columns.old, self._dim(columns.old))
        return Rows(
            ids=values(columns.id),
            old=np.asarray(seen, dtype=np.float32),
            inputs=values(columns.input or ""),
            generation=values(columns.mark("generation")),
            model=values(columns.mark("model")),
            seen=seen,
            new=_matrix(table, columns.new, self._dim(columns.new)) if new else None,
        )

    def _among(self, ids: Sequence[Id]) -> str:
        return f"{_quoted(self.columns.id)} IN ({', '.join(map(_literal, ids))})"

    # --- writing -------------------------------------------------------------------------------

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """One merge per (generation, model) that was read: in nearly all batches one."""
        written = 0
        # LanceDB turns a vector with a NaN into a null on the way: such rows are left alone.
        whole = np.isfinite(rows.seen).all(axis=1) | _missing(rows.seen)
        keys = list(zip(rows.generation, rows.model, strict=True))
        for key in dict.fromkeys(keys):
            index = np.array([k == key for k in keys], dtype=bool) & whole
            if index.any():
                source = self._source(rows.take(index), vectors, marks, index)
                written += self._merge(source, self._unchanged(*key))
        return written

    def _source(self, rows: Rows, vectors: Matrix | None, marks: Marks, index: Array) -> Any:
        columns, count = self.columns, len(rows)
        schema = self._table.schema
        missing = _missing(rows.seen)
        data = {
            columns.id: pa.array(rows.ids.tolist(), schema.field(columns.id).type),
            columns.old: _lists(rows.seen, missing, schema.field(columns.old).type),
            columns.new: pa.nulls(count, schema.field(columns.new).type)
            if vectors is None
            else _lists(
                vectors if index.all() else vectors[index], None, schema.field(columns.new).type
            ),
        }
        if columns.input is not None:
            kind = schema.field(columns.input).type
            data[columns.input] = pa.array(rows.inputs.tolist(), kind)
        values = (
            [marks.generation] * count,
            [marks.model] * count,
            None if marks.variance is None else marks.variance[index],
            None if marks.priority is None else marks.priority[index],
            fingerprints(rows.seen, ~missing, rows.inputs),
        )
        for name, value, kind in zip(MARKS, values, _MARK_TYPES, strict=True):
            array = pa.nulls(count, kind) if value is None else pa.array(value, kind)
            data[columns.mark(name)] = array
        return pa.table(data)

    def _unchanged(self, generation: str | None, model: str | None) -> str:
        """The compare-and-set: the row in the table is still the one that was read."""
        conditions = []
        for name in (self.columns.old, self.columns.input):
            if name is not None:
                there, here = f"target.{_quoted(name)}", f"source.{_quoted(name)}"
                conditions.append(f"({there} = {here} OR ({there} IS NULL AND {here} IS NULL))")
        for name, value in (("generation", generation), ("model", model)):
            column = f"target.{_quoted(self.columns.mark(name))}"
            conditions.append(
                f"{column} IS NULL" if value is None else f"{column} = {_literal(value)}"
            )
        return " AND ".join(conditions)

    def _merge(self, source: Any, where: str) -> int:
        def merge() -> int:
            builder = self._table.merge_insert(self.columns.id)
            # An index on the id is no help: LanceDB 0.40 cannot evaluate conditions with it.
            builder = builder.use_index(False).when_matched_update_all(where=where)
            return int(builder.execute(source, on_bad_vectors="null").num_updated_rows)

        return self._retry(merge)

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
            self._retry(lambda: self._table.delete(self._among(ids)))

    # --- searching -----------------------------------------------------------------------------

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
        conditions = [f"{_quoted(column)} IS NOT NULL"]
        conditions += [f"{_quoted(n)} = {_literal(v)}" for n, v in (where or {}).items()]
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
        from lancedb.index import HnswSq

        column, config = self.columns.side(side), HnswSq(distance_type=LANCE_METRIC[distance])
        self._retry(lambda: self._table.create_index(column, config=config, replace=True))

    def optimize(self) -> None:
        """Compact fragments, index what is new, clean old versions."""
        self._retry(lambda: self._table.optimize(cleanup_older_than=KEEP_VERSIONS))

    def close(self) -> None:
        """Nothing to let go of: LanceDB keeps no connection."""

    # --- documents -----------------------------------------------------------------------------

    def _documents_exist(self) -> bool:
        return DOCUMENTS in _table_names(self._db)

    def _open_documents(self, create: bool) -> Any:
        if self._documents is None and (create or self._documents_exist()):
            try:
                self._documents = self._db.create_table(DOCUMENTS, _document(LOCK, b"", 0))
            except ValueError:  # it exists, or another process was faster
                self._documents = self._db.open_table(DOCUMENTS)
        return self._documents

    def load(self, name: str) -> Document | None:
        """The document, or None."""
        table = self._open_documents(create=False)
        if table is None:
            return None
        found = table.search().where(f"name = {_literal(self._full(name))}").limit(1).to_arrow()
        if not len(found):
            return None
        return Document(found["value"][0].as_py(), found["version"][0].as_py())

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version`."""
        table = self._open_documents(create=True)
        source = _document(self._full(name), value, version)

        def merge() -> bool:
            builder = table.merge_insert("name").use_index(False)
            if version == 0:  # the touch of the lock row makes two creators conflict
                builder = builder.when_matched_update_all(where=f"target.name = '{LOCK}'")
                both = pa.concat_tables([_document(LOCK, b"", 0), source])
                result = builder.when_not_matched_insert_all().execute(both)
                return bool(result.num_inserted_rows == 1)
            builder = builder.when_matched_update_all(where="target.version = source.before")
            return bool(builder.execute(source).num_updated_rows == 1)

        return self._retry(merge)

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`."""
        table = self._open_documents(create=False)
        if table is None:
            return []
        full = self._full("")
        names = table.search().select(["name"]).limit(ALL).to_arrow()["name"].to_pylist()
        mine = [name[len(full) :] for name in names if name.startswith(full)]
        return sorted(name for name in mine if name.startswith(prefix))

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents."""
        table = self._open_documents(create=False)
        if table is not None and names:
            among = ", ".join(_literal(self._full(name)) for name in names)
            self._retry(lambda: table.delete(f"name IN ({among})"))

    def _full(self, name: str) -> str:
        return f"{self._table.name}.{self.column}/{name}"

    # --- inside --------------------------------------------------------------------------------

    def _retry(self, commit: Callable[[], T]) -> T:
        """LanceDB retries most conflicts with other writers itself; the rest is retried here."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return commit()
            except (RuntimeError, OSError, ValueError) as error:
                text = str(error).lower()
                busy = "conflict" in text or "concurrent" in text
                if not busy or time.monotonic() > deadline:
                    raise StoreError(f"{self.name}: {str(error).splitlines()[0]}") from error
                time.sleep(random.uniform(0.01, 0.1))


_MARK_TYPES = (pa.string(), pa.string(), pa.float32(), pa.float32(), pa.string())


def _table_names(db: Any) -> list[str]:
    names: list[str] = []
    token = None
    while True:
        page = db.list_tables(page_token=token)
        names += page.tables
        token = page.page_token
        if not token:
            return names


def _document(name: str, value: bytes, version: int) -> Any:
    """The row that takes a document from `version` to the next."""
    return pa.table(
        {
            "name": [name],
            "version": [version + 1],
            "before": [version],
            "value": pa.array([value], pa.large_binary()),
        }
    )


def _quoted(name: str) -> str:
    if "`" in name:
        raise StoreError(f"Column {name!r} has a backtick in its name, which LanceDB cannot quote.")
    return f"`{name}`"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | np.integer | np.floating):
        return repr(value.item() if isinstance(value, np.generic) else value)
    return "'" + str(value).replace("'", "''") + "'"


def _matrix(table: Any, name: str, dim: int) -> Array:
    """A column of vectors as (n, d), NaN where there is none."""
    if name not in table.column_names:
        return np.full((len(table), max(dim, 1)), np.nan, dtype=np.float32)
    array = table[name].combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    flat = array.values.slice(array.offset * dim, len(array) * dim)
    matrix = flat.to_numpy(zero_copy_only=False).reshape(len(array), dim)
    if array.null_count:
        matrix = matrix.copy()
        matrix[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return np.asarray(matrix)


def _missing(vectors: Array) -> NDArray[np.bool_]:
    return np.asarray(np.isnan(vectors).all(axis=1))


def _lists(matrix: Array, missing: Array | None, kind: Any) -> Any:
    """(n, d) → a column of vectors of the type `kind`, null where missing."""
    flat = pa.array(np.ascontiguousarray(matrix).ravel()).cast(kind.value_type)
    mask = None if missing is None or not missing.any() else pa.array(missing)
    return pa.FixedSizeListArray.from_arrays(flat, kind.list_size, mask=mask).cast(kind)
