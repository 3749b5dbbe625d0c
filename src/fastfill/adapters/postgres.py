"""PostgreSQL with pgvector: `postgresql://…#[SCHEMA.]TABLE.COLUMN`.

What the design rests on, in PostgreSQL's terms:
- the fingerprint is computed by the server from the bytes of the vector and the input, so the
  compare-and-set is a condition of the UPDATE, which READ COMMITTED checks again on the latest
  version of a row that someone else has just changed;
- a row remembers the transaction that marked it: as long as that is its xmin nobody has touched it
  since, so that sweeps and writes need the fingerprint of very few rows;
- a batch goes by binary COPY into a temporary table and from there by one UPDATE;
- the application never loses a deadlock to a batch: a batch waits for a locked row for less than
  `deadlock_timeout`, and then does without the rows that are locked;
- schema changes wait `lock_timeout` and no longer, indexes are built concurrently after the rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from fastfill.errors import MissingExtraError, StoreError, some
from fastfill.features import Distance, Matrix
from fastfill.gallery import (
    MARKS,
    Columns,
    Description,
    Generation,
    Hits,
    Id,
    Marks,
    Rows,
    Settled,
    Side,
    objects,
)

try:
    import psycopg
    from psycopg import sql
    from psycopg.sql import SQL, Composable, Identifier, Literal

    from fastfill.adapters.postgres_binary import as_matrix, as_seen, copy_stream
    from fastfill.adapters.postgres_documents import PostgresDocuments
except ImportError as error:
    raise MissingExtraError("psycopg", "postgres", "A postgresql:// URL") from error

SCHEMA_LOCK = "3s"  # how long a schema change may queue in front of the application's statements
WRITE_LOCK = "200ms"  # less than deadlock_timeout (1 s), so it is never the application that loses
SCHEMA_TRIES = 10
INDEXABLE = 2_000  # dimensions of `vector` that an HNSW index can hold; `halfvec` holds 4,000
EXACT = "SET LOCAL enable_indexscan = off; SET LOCAL enable_seqscan = on"
OPERATORS: dict[Distance, str] = {"l2": "<->", "cosine": "<=>", "ip": "<#>"}
MARK_TYPES = ("text", "text", "real", "real", "bytea")


class PostgresStore(PostgresDocuments):
    """One vector column of one table."""

    def __init__(self, conninfo: str, table: str, column: str, schema: str | None = None) -> None:
        self.column = column
        self._conninfo = conninfo
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None
        self._columns: Columns | None = None
        self._types: dict[str, str] = {}
        self._iterative: bool | None = None
        found = self._rows_of(
            "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.oid = to_regclass(%s)",
            [f'"{schema}"."{table}"' if schema else f'"{table}"'],
        )
        if not found:
            raise StoreError(f"The database has no table '{table}' that this user can see.")
        self._schema, self._table = str(found[0][0]), table
        self._target = Identifier(self._schema, table)
        info = self._connect().info
        self.name = f"postgresql://{info.host}/{info.dbname}#{self._schema}.{table}.{column}"
        self._look()
        if column not in self._types and not self._documents_exist():
            raise StoreError(
                f"{self.name}: there is no column '{column}', only {some(self._types)}."
            )

    # --- the connection ------------------------------------------------------------------------

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = psycopg.connect(self._conninfo, autocommit=True)
            except psycopg.OperationalError as error:
                raise StoreError(f"PostgreSQL cannot be reached: {_first_line(error)}") from error
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Cursor[Any]]:
        with self._errors(), self._lock, self._connect().transaction():
            yield self._connect().cursor(binary=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.LockNotAvailable:
            raise
        except psycopg.Error as error:
            where = getattr(self, "name", "PostgreSQL")
            raise StoreError(f"{where}: {_first_line(error)}") from error

    def _rows_of(self, query: str | Composable, values: Sequence[Any] = ()) -> list[Any]:
        with self._errors(), self._lock:
            cursor = self._connect().cursor(binary=True)
            cursor.execute(cast(Any, query), values or None)
            return cursor.fetchall() if cursor.description else []

    def _change_schema(self, statements: Sequence[Composable]) -> None:
        """Run schema changes one by one, never queueing for long in front of the application."""
        with self._errors(), self._lock:
            connection = self._connect()
            connection.execute(SQL("SET lock_timeout = {}").format(Literal(SCHEMA_LOCK)))
            for statement in statements:
                self._try_for_a_while(connection, statement)
            connection.execute("RESET lock_timeout")
        self._look()

    def _try_for_a_while(self, connection: Any, statement: Composable) -> None:
        for attempt in range(1, SCHEMA_TRIES + 1):
            try:
                connection.execute(statement)
                return
            except psycopg.errors.LockNotAvailable as error:
                if attempt == SCHEMA_TRIES:
                    raise StoreError(
                        f"{self.name}: the table stayed locked by others for {SCHEMA_TRIES} tries "
                        f"of {SCHEMA_LOCK}. Run the command again when it is less busy."
                    ) from error
                time.sleep(0.2 * attempt)

    # --- what is there -------------------------------------------------------------------------

    def _look(self) -> None:
        found = self._rows_of(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [f'"{self._schema}"."{self._table}"'],
        )
        self._types = {str(name): str(kind) for name, kind in found}

    @property
    def columns(self) -> Columns:
        """The names in use."""
        if self._columns is None:
            raise StoreError(f"{self.name}: say first which columns hold the id and the input.")
        return self._columns

    def bind(self, columns: Columns) -> None:
        """Say which columns hold what; the id must be unique and indexed."""
        for name in (columns.id, columns.input):
            if name is not None and name not in self._types:
                raise StoreError(
                    f"{self.name}: there is no column '{name}', only {some(self._types)}."
                )
        unique = self._rows_of(
            "SELECT 1 FROM pg_index i JOIN pg_attribute a "
            "ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
            "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indnkeyatts = 1 "
            "AND i.indpred IS NULL AND a.attname = %s",
            [f'"{self._schema}"."{self._table}"', columns.id],
        )
        if not unique:
            raise StoreError(
                f"{self.name}: column '{columns.id}' has no unique index. Name the primary key "
                "with --id, or run CREATE UNIQUE INDEX CONCURRENTLY on it."
            )
        self._columns = columns

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        self._look()
        rows = self._rows_of(SQL("SELECT count(*) FROM {}").format(self._target))[0][0]
        there = self.columns.new in self._types
        return Description(
            rows=int(rows),
            old_dim=self._dim(self.column),
            new_dim=self._dim(self.columns.new) if there else None,
            distance=self._index_distance(self.column),
            columns=tuple(self._types),
            batch=4_096,
        )

    def _dim(self, column: str) -> int:
        kind = self._types.get(column, "")
        if not kind:
            return 0
        if "vec" not in kind:
            raise StoreError(f"{self.name}: column '{column}' holds {kind}, not vectors.")
        if "(" in kind:
            return int(kind[kind.index("(") + 1 : -1])
        query = SQL("SELECT vector_dims({c}) FROM {t} WHERE {c} IS NOT NULL LIMIT 1")
        found = self._rows_of(query.format(c=Identifier(column), t=self._target))
        return int(found[0][0]) if found else 0

    def _index_distance(self, column: str) -> Distance | None:
        for name in self._operator_classes(column):
            for distance in OPERATORS:
                if f"_{distance}_" in name:
                    return distance
        return None

    def _operator_classes(self, column: str) -> list[str]:
        found = self._rows_of(
            "SELECT o.opcname FROM pg_index i JOIN pg_opclass o ON o.oid = i.indclass[0] "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
            "JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam "
            "WHERE i.indrelid = to_regclass(%s) AND a.attname = %s AND i.indisvalid "
            "AND m.amname IN ('hnsw', 'ivfflat')",
            [f'"{self._schema}"."{self._table}"', column],
        )
        return [str(name) for (name,) in found]

    # --- expand and contract -------------------------------------------------------------------

    def expand(self, dim: int) -> None:
        """Add the vector column and the marks: nullable, so no row is rewritten."""
        self._look()
        have = self._dim(self.columns.new)
        if have and have != dim:
            raise StoreError(
                f"{self.name}: column '{self.columns.new}' has {have} dimensions, not {dim}. "
                "Roll the migration back before another model."
            )
        self._change_schema(self._expanding(dim))

    def contract(self) -> None:
        """Drop the added columns; their indexes go with them."""
        self._change_schema([self._dropping((*self.columns.added, self._xid))])

    def drop_old(self) -> None:
        """Drop the old vectors and the marks."""
        marks = [self.columns.mark(name) for name in MARKS]
        self._change_schema([self._dropping((self.columns.old, *marks, self._xid))])

    def _expanding(self, dim: int) -> list[Composable]:
        vector = f"{'vector' if dim <= INDEXABLE else 'halfvec'}({dim})"
        kinds = (vector, *MARK_TYPES, "xid")
        parts = [
            SQL("ADD COLUMN IF NOT EXISTS {} {}").format(Identifier(name), _raw(kind))
            for name, kind in zip((*self.columns.added, self._xid), kinds, strict=True)
        ]
        return [SQL("ALTER TABLE {} {}").format(self._target, SQL(", ").join(parts))]

    def _dropping(self, names: Sequence[str]) -> Composable:
        parts = [SQL("DROP COLUMN IF EXISTS {}").format(Identifier(name)) for name in names]
        return SQL("ALTER TABLE {} {}").format(self._target, SQL(", ").join(parts))

    def statements(self, dim: int, distance: Distance) -> list[str]:
        """The statements that a whole migration runs, for people to read first."""
        self._look()
        update = self._update(Marks("aligned", "MODEL"), skip=False)
        steps = [
            *self._expanding(dim),
            update,
            self._ordering(),
            self._indexing("new", distance, dim),
            self._dropping((*self.columns.added, self._xid)),
        ]
        return [step.as_string(self._connect()) for step in steps]

    # --- reading -------------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""
        generation, model, mark = (
            self._mark(name) for name in ("generation", "model", "fingerprint")
        )
        where = SQL(
            "({g} IS NULL OR {m} IS DISTINCT FROM (CASE {g} WHEN 'aligned' THEN {a} ELSE {n} END)"
        ).format(g=generation, m=model, a=Literal(settled.aligned), n=Literal(settled.new))
        if changed:
            where += SQL(" OR ({} IS NOT TRUE AND {} IS DISTINCT FROM {})").format(
                self._untouched(), mark, self._fingerprint()
            )
        yield from self._pages(where + SQL(")"), batch, new)

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation, in the order of their ids."""
        where: Composable = SQL("true")
        if generation is not None:
            where = SQL("{} = {}").format(self._mark("generation"), Literal(generation))
        yield from self._pages(where, batch, new)

    def _pages(self, where: Composable, batch: int, new: bool) -> Iterator[Rows]:
        """Keyset pagination: no long transaction that would hold back VACUUM."""
        query = SQL("SELECT {} FROM {} t WHERE {} AND {} ORDER BY t.{} LIMIT {}")
        after: Composable = SQL("true")
        key = Identifier(self.columns.id)
        while True:
            step = query.format(
                self._selected(new), self._target, where, after, key, Literal(batch)
            )
            found = self._rows_of(step)
            if found:
                yield self._rows(found, new)
            if len(found) < batch:
                return
            after = SQL("t.{} > {}::{}").format(key, Literal(found[-1][0]), self._id_type())

    def read(self, ids: Sequence[Id], *, new: bool = False) -> Rows:
        """These rows as they are now."""
        query = SQL("SELECT {} FROM {} t WHERE t.{} = ANY(%s::{}[])").format(
            self._selected(new), self._target, Identifier(self.columns.id), self._id_type()
        )
        return self._rows(self._rows_of(query, [list(ids)]) if len(ids) else [], new)

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> list[Id]:
        """Ids of a generation by falling priority."""
        query = SQL(
            "SELECT {} FROM {} t WHERE {} = %s AND NOT (t.{} = ANY(%s::{}[])) "
            "ORDER BY {} DESC NULLS LAST LIMIT %s"
        ).format(
            self._id(),
            self._target,
            self._mark("generation"),
            Identifier(self.columns.id),
            self._id_type(),
            self._mark("priority"),
        )
        return [row[0] for row in self._rows_of(query, [generation, list(exclude), limit])]

    def sample(self, limit: int, seed: int) -> list[Id]:
        """Random ids of rows that can be paired and are not new."""
        where = SQL("t.{} IS NOT NULL AND t.{} IS NOT NULL").format(
            Identifier(self.columns.old), Identifier(self.columns.input or "")
        )
        if self.columns.new in self._types:
            where += SQL(" AND {} IS DISTINCT FROM 'new'").format(self._mark("generation"))
        query = SQL("SELECT {} FROM {} t WHERE {} ORDER BY md5({}::text || {}) LIMIT {}").format(
            self._id(),
            self._target,
            where,
            self._id(),
            Literal(str(seed)),
            Literal(limit),
        )
        return [row[0] for row in self._rows_of(query)]

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model)."""
        self._look()
        if self.columns.mark("generation") not in self._types:
            rows = self._rows_of(SQL("SELECT count(*) FROM {}").format(self._target))
            return {(None, None): int(rows[0][0])}
        query = SQL("SELECT {g}, {m}, count(*) FROM {t} t GROUP BY 1, 2").format(
            g=self._mark("generation"), m=self._mark("model"), t=self._target
        )
        return {(row[0], row[1]): int(row[2]) for row in self._rows_of(query)}

    def _selected(self, new: bool) -> Composable:
        columns = self.columns
        marked = columns.mark("generation") in self._types
        parts = [
            self._id(),
            self._bytes_of(columns.old),
            self._input(),
            self._mark("generation") if marked else SQL("NULL::text"),
            self._mark("model") if marked else SQL("NULL::text"),
            self._seen() if marked else self._fingerprint(),
            SQL("t.xmin::text"),
        ]
        if new:
            parts.append(self._bytes_of(columns.new))
        return SQL(", ").join(parts)

    def _rows(self, found: Sequence[Any], new: bool) -> Rows:
        column: list[Any] = list(zip(*found, strict=True)) if found else [[]] * 8
        return Rows(
            ids=objects(column[0]),
            old=as_matrix(column[1], self._dim(self.columns.old)),
            inputs=objects(column[2]),
            generation=objects(column[3]),
            model=objects(column[4]),
            seen=as_seen(column[5], column[6]),
            new=as_matrix(column[7], self._dim(self.columns.new)) if new else None,
        )

    # --- pieces of SQL -------------------------------------------------------------------------

    def _id(self) -> Composable:
        whole = self._types[self.columns.id] in ("smallint", "integer", "bigint")
        return SQL("t.{}" if whole else "t.{}::text").format(Identifier(self.columns.id))

    def _id_type(self) -> Composable:
        kind = self._types[self.columns.id].split("(")[0]
        return _raw(kind)

    def _mark(self, name: str) -> Composable:
        return SQL("t.{}").format(Identifier(self.columns.mark(name)))

    def _bytes_of(self, column: str) -> Composable:
        if column not in self._types:
            return SQL("NULL::bytea")
        return SQL("vector_send(t.{}::vector)").format(Identifier(column))

    def _input(self) -> Composable:
        name = self.columns.input
        if name is None:
            return SQL("NULL::text")
        kind = "t.{}" if self._types[name] == "bytea" else "t.{}::text"
        return SQL(kind).format(Identifier(name))

    def _fingerprint(self) -> Composable:
        """Of the bytes of vector and input; a leading byte tells a null from an empty value."""
        raw = self.columns.input is not None and self._types[self.columns.input] == "bytea"
        content = self._input() if raw else SQL("convert_to({}, 'UTF8')").format(self._input())
        one = SQL(r"coalesce('\x01'::bytea || {}, '\x00'::bytea)")
        both = SQL(" || ").join([one.format(self._bytes_of(self.columns.old)), one.format(content)])
        return SQL("substring(sha256({}) FROM 1 FOR 16)").format(both)

    @property
    def _xid(self) -> str:
        """The column of the transaction that has marked the row."""
        return self.columns.mark("xid")

    def _untouched(self) -> Composable:
        return SQL("t.xmin = t.{}").format(Identifier(self._xid))

    def _seen(self) -> Composable:
        """The fingerprint of the present content; the stored one where nobody touched the row."""
        return SQL("CASE WHEN {} THEN {} ELSE {} END").format(
            self._untouched(), self._mark("fingerprint"), self._fingerprint()
        )

    # --- writing -------------------------------------------------------------------------------

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """Binary COPY into a temporary table, then one UPDATE that compares and sets."""
        if not len(rows):
            return 0
        data = copy_stream(rows, vectors, marks)
        try:
            return self._write(data, marks, skip=False)
        except psycopg.errors.LockNotAvailable:
            return self._write(data, marks, skip=True)

    def _write(self, data: bytes, marks: Marks, skip: bool) -> int:
        with self._transaction() as cursor:
            # A hash join would read the whole table for every batch.
            cursor.connection.execute(
                SQL(
                    "SET LOCAL lock_timeout = {}; SET LOCAL enable_hashjoin = off; "
                    "SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off; "
                    "CREATE TEMPORARY TABLE IF NOT EXISTS fastfill_batch (id text, seen bytea, "
                    "version text, generation text, model text, vector vector, variance real, "
                    "priority real) ON COMMIT DELETE ROWS"
                ).format(Literal(WRITE_LOCK))
            )
            with cursor.copy("COPY fastfill_batch FROM STDIN (FORMAT BINARY)") as copy:
                copy.write(data)
            cursor.execute(self._update(marks, skip))
            return cursor.rowcount

    def _update(self, marks: Marks, skip: bool) -> sql.Composed:
        values = (
            SQL("s.vector"),
            Literal(marks.generation),
            Literal(marks.model),
            SQL("s.variance"),
            SQL("s.priority"),
            SQL("s.seen"),
            SQL("pg_current_xact_id()::xid"),
        )
        settings = [
            SQL("{} = {}").format(Identifier(name), value)
            for name, value in zip((*self.columns.added, self._xid), values, strict=True)
        ]
        same = SQL(
            "t.{id} = s.id::{kind} AND (t.xmin = s.version::xid OR {f} = s.seen) "
            "AND {g} IS NOT DISTINCT FROM s.generation AND {m} IS NOT DISTINCT FROM s.model"
        ).format(
            id=Identifier(self.columns.id),
            kind=self._id_type(),
            f=self._fingerprint(),
            g=self._mark("generation"),
            m=self._mark("model"),
        )
        source: Composable = SQL("fastfill_batch s")
        if skip:
            source = SQL(
                "(SELECT s.* FROM fastfill_batch s JOIN {} t ON t.{} = s.id::{} "
                "FOR UPDATE OF t SKIP LOCKED) s"
            ).format(self._target, Identifier(self.columns.id), self._id_type())
        return SQL("UPDATE {} t SET {} FROM {} WHERE {}").format(
            self._target, SQL(", ").join(settings), source, same
        )

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id."""
        self._look()
        key = self._columns.id if self._columns else "id"
        names = [Identifier(name) for name in values]
        slots = [SQL("%s::{}").format(_raw(self._types[name])) for name in values]
        changes = [SQL("{n} = excluded.{n}").format(n=Identifier(n)) for n in values if n != key]
        query = SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO {}").format(
            self._target,
            SQL(", ").join(names),
            SQL(", ").join(slots),
            Identifier(key),
            SQL("UPDATE SET ") + SQL(", ").join(changes) if changes else SQL("NOTHING"),
        )
        rows = [tuple(map(_parameter, row)) for row in zip(*values.values(), strict=True)]
        with self._transaction() as cursor:
            cursor.executemany(query, rows)

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        query = SQL("DELETE FROM {} WHERE {} = ANY(%s::{}[])").format(
            self._target, Identifier(self.columns.id), self._id_type()
        )
        self._rows_of(query, [list(ids)])

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
        kind = self._types[column].split("(")[0]
        marked = self.columns.mark("generation") in self._types
        away = SQL("t.{} {} {}::{}").format(
            Identifier(column),
            _raw(OPERATORS[distance]),
            Literal(str(np.asarray(vector, dtype=np.float32).tolist())),
            _raw(kind),
        )
        conditions = [SQL("t.{} IS NOT NULL").format(Identifier(column))]
        conditions += [
            SQL("t.{} = {}").format(Identifier(n), Literal(v)) for n, v in (where or {}).items()
        ]
        query = SQL("SELECT {}, {}, {} FROM {} t WHERE {} ORDER BY {} LIMIT {}").format(
            self._id(),
            away,
            self._mark("generation") if marked else SQL("NULL::text"),
            self._target,
            SQL(" AND ").join(conditions),
            away,
            Literal(k),
        )
        with self._transaction() as cursor:
            if exact:
                cursor.connection.execute(EXACT)
            else:
                cursor.execute("SELECT set_config('hnsw.ef_search', %s, true)", [str(max(100, k))])
                if self._goes_on():
                    cursor.execute("SET LOCAL hnsw.iterative_scan = strict_order")
            found = cursor.execute(query).fetchall()
            if len(found) < k and not where and not exact:  # an index full of dead versions of rows
                cursor.connection.execute(EXACT)
                found = cursor.execute(query).fetchall()
        distances = np.array([row[1] for row in found], dtype=np.float32)
        return Hits(
            objects([row[0] for row in found]),
            distances**2 if distance == "l2" else distances,
            objects([row[2] for row in found]),
        )

    def _goes_on(self) -> bool:
        """Can an index scan go on when filters or dead rows leave it with too few answers?"""
        if self._iterative is None:
            query = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
            found = self._rows_of(query)
            version = str(found[0][0]).split(".") if found else ["0", "0"]
            self._iterative = (int(version[0]), int(version[1])) >= (0, 8)
        return self._iterative

    def indexed(self, side: Side) -> bool:
        """Is there a valid HNSW or IVFFlat index on the column?"""
        return bool(self._operator_classes(self.columns.side(side)))

    def build_index(self, side: Side, distance: Distance) -> None:
        """Build the index concurrently, or rebuild it."""
        self._look()
        column = self.columns.side(side)
        self._index(self._indexing(side, distance, self._dim(column)), f"{column}_hnsw", True)

    def optimize(self) -> None:
        """Build the index that backfilling picks rows by, once; refresh the statistics."""
        self._look()
        if self.columns.mark("priority") in self._types:
            self._index(self._ordering(), f"ff_{self.column}_order", False)
        self._rows_of(SQL("ANALYZE {}").format(self._target))

    def _index_name(self, suffix: str) -> str:
        return f"{self._table}_{suffix}"[-63:]  # PostgreSQL cuts names off at 63 bytes

    def _ordering(self) -> Composable:
        return SQL("CREATE INDEX CONCURRENTLY {} ON {} ({}, {} DESC NULLS LAST)").format(
            Identifier(self._index_name(f"ff_{self.column}_order")),
            self._target,
            Identifier(self.columns.mark("generation")),
            Identifier(self.columns.mark("priority")),
        )

    def _indexing(self, side: Side, distance: Distance, dim: int) -> Composable:
        column = self.columns.side(side)
        kind = self._types.get(column, "vector" if dim <= INDEXABLE else "halfvec").split("(")[0]
        return SQL("CREATE INDEX CONCURRENTLY {} ON {} USING hnsw ({} {})").format(
            Identifier(self._index_name(f"{column}_hnsw")),
            self._target,
            Identifier(column),
            _raw(f"{kind}_{distance}_ops"),
        )

    def _index(self, statement: Composable, suffix: str, rebuild: bool) -> None:
        """CREATE INDEX CONCURRENTLY leaves an invalid index behind when it is interrupted."""
        name = self._index_name(suffix)
        found = self._rows_of(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)",
            [f'"{self._schema}"."{name}"'],
        )
        if found and found[0][0] and not rebuild:
            return
        steps = [statement]
        if found:
            drop = SQL("DROP INDEX CONCURRENTLY {}").format(Identifier(self._schema, name))
            steps.insert(0, drop)
        self._change_schema(steps)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def _raw(text: str) -> sql.SQL:
    """SQL from the catalogue or from this file, never from a user."""
    return SQL(cast(Any, text))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _parameter(value: Any) -> Any:
    if isinstance(value, list | tuple | np.ndarray):
        return str(np.asarray(value, dtype=np.float32).tolist())
    return value
