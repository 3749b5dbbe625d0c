"""PostgreSQL with pgvector: `postgresql://…#[SCHEMA.]TABLE.COLUMN`.

What the design rests on, in PostgreSQL's terms:
- the fingerprint is computed by the server from the bytes of the vector and the input, so the
  compare-and-set is a condition of the UPDATE, which READ COMMITTED checks again on the latest
  version of a row that someone else has just changed;
- a row remembers the transaction that marked it: as long as that is its xmin nobody has touched it
  since, so that sweeps and writes need the fingerprint of very few rows;
- a batch goes by binary COPY into a temporary table and from there by one UPDATE, on a connection
  of its own, so that the next batch is read meanwhile;
- the application never loses a deadlock to a batch: a batch waits for a locked row for less than
  `deadlock_timeout`, and then does without the rows that are locked;
- schema changes wait `lock_timeout` and no longer, indexes are built concurrently after the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastfill.errors import MissingExtraError, StoreError, some
from fastfill.features import Distance, Matrix
from fastfill.gallery import (
    MARKS,
    Generation,
    Id,
    Marks,
    Rows,
    Settled,
    objects,
)

try:
    import psycopg
    from psycopg import sql
    from psycopg.sql import SQL, Composable, Identifier, Literal

    from fastfill.adapters.postgres_binary import as_matrix, as_seen, copy_stream
    from fastfill.adapters.postgres_connection import raw
    from fastfill.adapters.postgres_search import INDEXABLE, PostgresSearch
except ImportError as error:
    raise MissingExtraError("psycopg", "postgres", "A postgresql:// URL") from error

WRITE_LOCK = "200ms"  # less than deadlock_timeout (1 s), so it is never the application that loses
MARK_TYPES = ("text", "text", "real", "real", "bytea")


class PostgresStore(PostgresSearch):
    """One vector column of one table."""

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
            SQL("ADD COLUMN IF NOT EXISTS {} {}").format(Identifier(name), raw(kind))
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
        where += SQL(")")
        # Where there is none one pass over the table tells: pages are in the order of the ids,
        # and would be looked for by the index, row by row.
        if self._rows_of(SQL("SELECT 1 FROM {} t WHERE {} LIMIT 1").format(self._target, where)):
            yield from self._pages(where, batch, new)

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

    def read(self, ids: Sequence[Id], *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now; without `old` their old vectors stay where they are."""
        query = SQL("SELECT {} FROM {} t WHERE t.{} = ANY(%s::{}[])").format(
            self._selected(new, old), self._target, Identifier(self.columns.id), self._id_type()
        )
        return self._rows(self._rows_of(query, [list(ids)]) if len(ids) else [], new)

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """One column of these rows."""
        if column not in self._types:
            raise StoreError(
                f"{self.name}: there is no column '{column}', only {some(self._types)}."
            )
        query = SQL("SELECT {}, t.{} FROM {} t WHERE t.{} = ANY(%s::{}[])").format(
            self._id(),
            Identifier(column),
            self._target,
            Identifier(self.columns.id),
            self._id_type(),
        )
        return dict(self._rows_of(query, [list(ids)]))

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

    def _selected(self, new: bool, old: bool = True) -> Composable:
        columns = self.columns
        marked = columns.mark("generation") in self._types
        seen = self._known() if marked else SQL("NULL::bytea")
        if not old:  # nothing is left to compute a fingerprint from here
            seen = SQL("coalesce({}, {})").format(seen, self._fingerprint())
        parts = [
            self._id(),
            self._bytes_of(columns.old) if old else SQL("NULL::bytea"),
            self._input(),
            self._mark("generation") if marked else SQL("NULL::text"),
            self._mark("model") if marked else SQL("NULL::text"),
            seen,
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
            seen=as_seen(column[5], column[6], column[1], column[2]),
            new=as_matrix(column[7], self._dim(self.columns.new)) if new else None,
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
        with self._writing._transaction() as cursor:
            # A hash join would read the whole table for every batch.
            cursor.connection.execute(
                SQL(
                    "SET LOCAL lock_timeout = {}; SET LOCAL enable_hashjoin = off; "
                    "SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off; "
                    "SET LOCAL jit = off; "
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
        slots = [SQL("%s::{}").format(raw(self._types[name])) for name in values]
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


def _parameter(value: Any) -> Any:
    if isinstance(value, list | tuple | np.ndarray):
        return str(np.asarray(value, dtype=np.float32).tolist())
    return value
