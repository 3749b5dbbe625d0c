"""The layout `side`: added vectors and marks in a table of FastFill's own, beside the owner's.

| column              | what                                                                  |
| ------------------- | --------------------------------------------------------------------- |
| the owner's id      | of the row, the primary key                                           |
| the added vector    | and the five marks, named as they would be in the owner's table       |
| `…_xid`             | the version (`xmin`) of the owner's row that the vector was made from |

The owner's table is read, and nothing else: it gets no column, no index, no new version of a row,
and not even a lock on one, and no trigger unless its owner allows one (`write_notes`). A row
carries the version of the owner's row that it was made from, and a statement writes it only if that
is the version which it sees, and if the row beside was not made anew since it was read. Whoever
changes the owner's row at the same moment makes another version, which the next sweep tells from
this one: it is as if the two had happened one after the other.
"""

from __future__ import annotations

from collections.abc import Collection

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from fastfill.adapters.postgres.connection import raw
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.sql import (
    INDEXABLE,
    MARK_TYPES,
    column,
    key_type,
    same_content,
    same_key,
    same_row,
    same_version_beside,
    vector_type,
)
from fastfill.errors import StoreError
from fastfill.gallery import Marks

PAGE, ROW_BYTES = 8_168, 120  # bytes of a block for rows, and of a row but for its vector
INLINE = 2_000  # bytes of a row above which PostgreSQL keeps the vector in another place
LEAST, MOST = 50, 90  # percent

# A backfill changes what indexes hold, the vector and the priority, so no update of it is "HOT".
# What helps is room for one more row on each page: the next version of a row is often written
# there, and a dead one makes room for the next, without waiting for VACUUM.


def fillfactor(dim: int) -> int:
    """How full pages are made, in percent, so that one more row fits on each.

    >>> fillfactor(128), fillfactor(384), fillfactor(1_024)
    (90, 75, 90)
    """
    vector = (4 if dim <= INDEXABLE else 2) * dim
    row = ROW_BYTES + (vector if vector + ROW_BYTES < INLINE else 0)
    rows = max(PAGE // row, 1)
    return min(max(100 * (rows - 1) // rows, LEAST), MOST)


def create_table(context: PostgresContext, dim: int) -> Composed:
    """Empty: no row of the owner's is read for it."""
    kinds = (vector_type(dim), *MARK_TYPES, "xid")
    parts = [
        SQL("{} {} {} PRIMARY KEY").format(
            Identifier(context.columns.id), raw(context.types[context.columns.id]), _order(context)
        ),
        *(
            SQL("{} {}").format(Identifier(name), raw(kind))
            for name, kind in zip(context.added, kinds, strict=True)
        ),
    ]
    return SQL("CREATE TABLE IF NOT EXISTS {} ({}) WITH (fillfactor = {})").format(
        context.side, SQL(", ").join(parts), Literal(fillfactor(dim))
    )


def _order(context: PostgresContext) -> Composable:
    """The collation of the owner's ids: texts of two collations cannot be compared."""
    rows = context.work.rows_of(
        "SELECT n.nspname, c.collname FROM pg_attribute a JOIN pg_collation c "
        "ON c.oid = a.attcollation JOIN pg_namespace n ON n.oid = c.collnamespace "
        "WHERE a.attrelid = to_regclass(%s) AND a.attname = %s AND c.collname <> 'default'",
        [context.regclass(context.table), context.columns.id],
    )
    return SQL("COLLATE {}").format(Identifier(*rows[0])) if rows else SQL("")


def drop_table(context: PostgresContext) -> Composed:
    """With its indexes."""
    return SQL("DROP TABLE IF EXISTS {}").format(context.side)


def refuse_ending(context: PostgresContext) -> None:
    """Refuse an end that would change the owner's table, which this layout never does."""
    if not context.beside:
        return
    move = SQL("ALTER TABLE {t} ADD COLUMN {n} {}; UPDATE {t} t SET {n} = a.{n} FROM {} a WHERE {}")
    statements = move.format(
        raw(context.types.get(context.columns.new, "vector")),
        context.side,
        same_key(context),
        t=context.target,
        n=Identifier(context.columns.new),
    ).as_string(None)
    raise StoreError(
        f"{context.name}: --swap and --drop-old change the table '{context.table}', which the "
        f"layout 'side' never does. Complete without them, and let the application join "
        f"'{context.side_name}'; or move the vectors yourself, after that: {statements}."
    )


# --- compare and set -----------------------------------------------------------------------------


def write_marks(context: PostgresContext, marks: Marks, skip: bool) -> Composed:
    """As `sql.update`, here: with `skip` without the rows of this table that others have locked."""
    return SQL(
        "updated AS ({} RETURNING s.generation, s.model), "
        "inserted AS ({} RETURNING NULL::text AS generation, NULL::text AS model), "
        "written AS (SELECT * FROM updated UNION ALL SELECT * FROM inserted)"
    ).format(_update(context, marks, skip), _insert(context, marks))


def _update(context: PostgresContext, marks: Marks, skip: bool) -> Composed:
    """Of rows that have marks."""
    settings = [
        SQL("{} = {}").format(Identifier(name), value)
        for name, value in zip(context.added, _values(marks), strict=True)
    ]
    key = SQL("a.{} = s.id::{}").format(Identifier(context.columns.id), key_type(context))
    batch: Composable = SQL("fastfill_batch s")
    if skip:
        batch = SQL(
            "(SELECT s.* FROM fastfill_batch s JOIN {} a ON {} FOR UPDATE OF a SKIP LOCKED) s"
        ).format(context.side, key)
    return SQL("UPDATE {} a SET {} FROM {} JOIN {} t ON {} WHERE {} AND {} AND NOT ({})").format(
        context.side,
        SQL(", ").join(settings),
        batch,
        context.target,
        _of_batch(context),
        same_row(context, key),
        same_version_beside(context),
        _UNMARKED,
    )


def _insert(context: PostgresContext, marks: Marks) -> Composed:
    """Of rows that have none, whether or not the application has left a vector of its own here."""
    names = (context.columns.id, *context.added)
    return SQL(
        "INSERT INTO {} AS a ({}) SELECT {} FROM fastfill_batch s JOIN {} t ON {} "
        "WHERE {} AND {} ON CONFLICT ({}) DO UPDATE SET {} WHERE {} IS NULL AND {} IS NULL"
    ).format(
        context.side,
        SQL(", ").join(map(Identifier, names)),
        SQL(", ").join([column(context.columns.id), *_values(marks)]),
        context.target,
        _of_batch(context),
        _UNMARKED,
        same_content(context),
        Identifier(context.columns.id),
        replaced(context.added),
        *(SQL("a.{}").format(Identifier(context.columns.mark(n))) for n in ("generation", "model")),
    )


_UNMARKED = SQL("s.generation IS NULL AND s.model IS NULL")


def _of_batch(context: PostgresContext) -> Composable:
    return SQL("{} = s.id::{}").format(column(context.columns.id), key_type(context))


def _values(marks: Marks) -> tuple[Composable, ...]:
    """What is written, and the version of the owner's row that is seen then."""
    return (
        SQL("s.vector"),
        Literal(marks.generation),
        Literal(marks.model),
        SQL("s.variance"),
        SQL("s.priority"),
        SQL("s.seen"),
        SQL("t.xmin"),
    )


def replaced(names: Collection[str]) -> Composable:
    """The values of a row that was to be inserted, over those of the row that is there."""
    return SQL(", ").join(SQL("{n} = excluded.{n}").format(n=Identifier(name)) for name in names)
