"""The indexes of a migration: what is repeated reads the rows that it needs, not the whole table.

| index     | rows in it                          | serves                                       |
| --------- | ----------------------------------- | -------------------------------------------- |
| `order`   | yet to be embedded                  | the pick of the next rows                    |
| `marks`   | with marks, by generation and model | scans of a generation, rows of another model |
| `changed` | not as their marks say, mostly none | the sweep for what others have written       |

They are on the table that holds the marks. Beside the owner's table (`side_table`) `changed` can
only tell rows without marks, and the rest is `side_sweep`'s.

PostgreSQL keeps them up to date in every transaction, the application's too, so the sweep needs
neither a trigger nor a look at every row. Where `marks` and `changed` are not there, because the
table is small or the work has just begun, the same is read row by row, which then costs less.

Names of columns are not qualified here: an index knows no other table.
"""

from __future__ import annotations

import time
from contextlib import suppress

import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from fastfill.adapters.postgres.connection import Connection
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.sql import index_name, no_marks, order_index, other_model
from fastfill.gallery import Settled

ORDER, OF_MARKS, CHANGED = "order", "marks", "changed"
LARGE = 256 << 20  # bytes of tables at whose rows it takes long to look again and again
# Seconds of a process at work from which on `marks` and `changed` are built: one that ends sooner
# hardly sweeps. To build `changed` computes each row's fingerprint twice, and each later write once
# more, the application's too; to keep `marks` costs a write about as much.
AT_WORK = 300.0
# Of 3,000 rows, by which most plans are made: the marks have few values, or falling ones.
STATISTICS = "SET LOCAL default_statistics_target = 10; ANALYZE {} ({})"
LOCK = 0x66617374  # the class of the advisory locks of those who build
# What an index may compute must not depend on settings: other types are swept row by row.
VECTORS = ("vector", "halfvec")
INPUTS = ("text", "character varying", "bytea", "uuid", "smallint", "integer", "bigint")

# --- conditions ----------------------------------------------------------------------------------


def has_marks(context: PostgresContext) -> Composed:
    """The condition of the index of marks."""
    return SQL("({} IS NOT NULL AND {} IS NOT NULL)").format(
        Identifier(context.columns.mark("generation")), Identifier(context.columns.mark("model"))
    )


def needs_look(context: PostgresContext) -> Composed:
    """The condition of the index of changed rows: no marks, or marks of other content.

    Of a part: rows outside it have no marks either. A table beside the owner's knows no content,
    and has rows of the part alone.
    """
    if context.beside:
        return SQL("NOT {}").format(has_marks(context))
    generation, model, known = (
        Identifier(context.columns.mark(name)) for name in ("generation", "model", "fingerprint")
    )
    where = SQL("({} IS NULL OR {} IS NULL OR {} IS DISTINCT FROM {})").format(
        generation, model, known, _fingerprint(context)
    )
    part = [SQL("{} = {}").format(Identifier(n), Literal(v)) for n, v in context.where]
    return SQL(" AND ").join([*part, where])


def _fingerprint(context: PostgresContext) -> Composed:
    """What `sql.fingerprint` says, of functions that an index may use.

    The bytes of a text are those of the server's encoding, which `indexable` has seen to be UTF-8:
    `convert_to` may not be in an index, and a cast takes nothing but a backslash for itself.
    """
    columns, one = context.columns, SQL(r"coalesce('\x01'::bytea || {}, '\x00'::bytea)")
    vector = SQL("vector_send({}::vector)").format(Identifier(columns.old))
    content: Composable = SQL("NULL::bytea")
    if columns.input is not None:
        content = Identifier(columns.input)
        if context.types[columns.input] != "bytea":
            content = SQL(r"replace({}::text, '\', '\\')::bytea").format(content)
    both = SQL(" || ").join([one.format(vector), one.format(content)])
    return SQL("substring(sha256({}) FROM 1 FOR 16)").format(both)


def indexable(context: PostgresContext) -> bool:
    """Can the server keep an index of changed rows, whatever the application writes?"""
    columns, types = context.columns, context.types
    old, content = (
        types.get(name or "", "").split("(")[0] for name in (columns.old, columns.input)
    )
    if old not in VECTORS or (columns.input is not None and content not in INPUTS):
        return False
    return bool(context.work.rows_of("SHOW server_encoding")[0][0] == "UTF8")


# --- reading by the indexes ----------------------------------------------------------------------


def can_sweep(context: PostgresContext) -> bool:
    """Are the indexes there that a sweep reads by?"""
    return valid(context, OF_MARKS) and valid(context, CHANGED)


def to_look_at(context: PostgresContext, settled: Settled) -> Composed:
    """The condition that a row has no marks, or those of `settled` and other content."""
    return SQL("{} AND ({} OR NOT {})").format(
        needs_look(context), no_marks(context), other_model(context, settled)
    )


def of_marks(context: PostgresContext, generation: str, model: str) -> Composed:
    """The condition that a row has these marks."""
    return SQL("{} = {} AND {} = {}").format(
        Identifier(context.columns.mark("generation")),
        Literal(generation),
        Identifier(context.columns.mark("model")),
        Literal(model),
    )


def marks_in_use(context: PostgresContext) -> Composed:
    """The pairs of generation and model that rows have, from each to the next in the index."""
    generation, model = (Identifier(context.columns.mark(n)) for n in ("generation", "model"))
    first = SQL("SELECT {g} AS g, {m} AS m FROM {t} WHERE {w} ORDER BY {g}, {m} LIMIT 1")
    after = SQL("{w} AND ({g}, {m}) > (p.g, p.m)")
    return SQL(
        "WITH RECURSIVE p AS (({}) UNION ALL SELECT n.g, n.m FROM p CROSS JOIN LATERAL ({}) n) "
        "SELECT g, m FROM p"
    ).format(
        first.format(g=generation, m=model, t=context.holder, w=has_marks(context)),
        first.format(
            g=generation,
            m=model,
            t=context.holder,
            w=after.format(g=generation, m=model, w=has_marks(context)),
        ),
    )


# --- building ------------------------------------------------------------------------------------


def statements(context: PostgresContext, *, waited_for: bool = False) -> dict[str, Composed]:
    """What builds each of the indexes that this table can and should have by now.

    Where others wait for a look at every row (`waited_for`) they pay at once.
    """
    wanted = {ORDER: order_index(context)}
    pays = waited_for or time.monotonic() - context.opened >= AT_WORK
    if not pays or not is_large(context):
        return wanted
    create = SQL("CREATE INDEX CONCURRENTLY {} ON {} ({}) WHERE {}")
    keys = [context.columns.mark("generation"), context.columns.mark("model"), context.columns.id]
    wanted[OF_MARKS] = create.format(
        Identifier(_name(context, OF_MARKS)),
        context.holder,
        SQL(", ").join(map(Identifier, keys)),
        has_marks(context),
    )
    if context.beside or indexable(context):
        wanted[CHANGED] = create.format(
            Identifier(_name(context, CHANGED)),
            context.holder,
            Identifier(context.columns.id),
            needs_look(context),
        )
    return wanted


def is_large(context: PostgresContext) -> bool:
    """Would a look at every row, of what is beside the table too, take long?"""
    size = "SELECT coalesce(sum(pg_table_size(to_regclass(name))), 0)::bigint "
    size += "FROM unnest(%s::text[]) name"
    tables = {context.regclass(name) for name in (context.table, context.holder_name)}
    return int(context.work.rows_of(size, [list(tables)])[0][0]) >= LARGE


def build_missing(context: PostgresContext, *, waited_for: bool = False) -> None:
    """Build what is missing, unless another worker is at it.

    Statistics of the marks come first: of each row that is drawn for them the server looks at the
    conditions of all indexes, and that of `changed` takes longest. Later ones are autovacuum's.
    """
    wanted = statements(context, waited_for=waited_for)
    missing = {end: step for end, step in wanted.items() if not valid(context, end)}
    if not missing:
        return
    marks = [context.columns.mark(name) for name in ("generation", "model", "priority")]
    names = SQL(", ").join(map(Identifier, marks))
    statistics = SQL(STATISTICS).format(context.holder, names)

    def build(connection: Connection) -> None:
        key = [LOCK, context.regclass(context.table)]
        row = connection.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", key).fetchone()
        if row is None or not row[0]:
            return
        try:
            connection.execute(statistics)
            for end, step in missing.items():
                create_index(context, _name(context, end), step, rebuild=False)
        finally:
            with suppress(psycopg.Error):  # a connection that was lost has let go of it
                connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", key)

    context.work.repeat(build)


def valid(context: PostgresContext, end: str) -> bool:
    """Is the index there, and complete?"""
    return bool(_validity(context, _name(context, end)))


def create_index(context: PostgresContext, name: str, statement: Composed, rebuild: bool) -> None:
    """Build an index concurrently.

    CREATE INDEX CONCURRENTLY leaves an invalid index behind when it is interrupted.
    """

    def steps() -> list[Composed]:
        there = _validity(context, name)
        if there and not rebuild:  # built, although the answer was lost
            return []
        index = Identifier(context.schema, name)
        drop = [] if there is None else [SQL("DROP INDEX CONCURRENTLY {}").format(index)]
        return [*drop, statement]

    context.work.change_beside_writers(steps)


def _validity(context: PostgresContext, name: str) -> bool | None:
    """None where there is no such index."""
    rows = context.work.rows_of(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)",
        [context.regclass(name)],
    )
    return bool(rows[0][0]) if rows else None


def _name(context: PostgresContext, end: str) -> str:
    return index_name(context, f"{context.columns.marks}_{end}")
