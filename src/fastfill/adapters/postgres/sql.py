"""The SQL of the adapter: expressions on a row `t` of the table, and statements made of them."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from fastfill.adapters.postgres.connection import raw
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.features import Distance
from fastfill.gallery import Marks, Settled, Side

INDEXABLE = 2_000  # dimensions of `vector` that an HNSW index can hold; `halfvec` holds 4,000
MARK_TYPES = ("text", "text", "real", "real", "bytea")

# --- expressions ---------------------------------------------------------------------------------


def column(name: str) -> Composable:
    """A column of the row."""
    return SQL("t.{}").format(Identifier(name))


def value_of(context: PostgresContext, name: str) -> Composable:
    """A column of the row `t`, or of what is kept beside it, `a`."""
    beside = context.beside and name in context.added
    return SQL("a.{}").format(Identifier(name)) if beside else column(name)


def source(context: PostgresContext) -> Composable:
    """The rows `t`, with what is kept beside them, `a`, if that is a table of its own.

    A condition on `a` makes the server begin with that table.
    """
    if not context.beside or not context.marked:
        return SQL("{} t").format(context.target)
    return SQL("{} t LEFT JOIN {} a ON {}").format(context.target, context.side, same_key(context))


def same_key(context: PostgresContext) -> Composable:
    """The condition that `a` is kept beside `t`."""
    return SQL("a.{id} = t.{id}").format(id=Identifier(context.columns.id))


def marked_key(context: PostgresContext) -> Composable:
    """The id, of the table that holds the marks: its indexes are in this order."""
    return SQL("{}.{}").format(SQL("a" if context.beside else "t"), Identifier(context.columns.id))


def mark(context: PostgresContext, name: str) -> Composable:
    """A mark of the row."""
    return value_of(context, context.columns.mark(name))


def mark_or_null(context: PostgresContext, name: str) -> Composable:
    """A mark of the row; null before there are marks."""
    return mark(context, name) if context.marked else SQL("NULL::text")


def key(context: PostgresContext) -> Composable:
    """The id of the row, as a number or a text."""
    return as_key(context, column(context.columns.id))


def as_key(context: PostgresContext, value: Composable) -> Composable:
    """An id as a number or a text."""
    whole = context.types[context.columns.id] in ("smallint", "integer", "bigint")
    return value if whole else as_text(value)


def key_type(context: PostgresContext) -> Composable:
    """The type of the ids."""
    return raw(context.types[context.columns.id].split("(")[0])


def among(context: PostgresContext) -> Composable:
    """The condition that the id is one of those in a parameter."""
    return SQL("{} = ANY(%s::{}[])").format(column(context.columns.id), key_type(context))


def among_part(context: PostgresContext) -> Composable:
    """The same, of the rows that are migrated."""
    return SQL("{} AND {}").format(among(context), in_part_beside_values(context))


def in_part_beside_values(context: PostgresContext) -> Composable:
    """`in_part` for a statement with parameters, where a percent sign must be doubled."""
    return raw(context.in_part.as_string(None).replace("%", "%%"))


def as_text(value: Composable) -> Composable:
    """A value as text."""
    return SQL("{}::text").format(value)


def bytes_of(context: PostgresContext, name: str) -> Composable:
    """A vector of the row in pgvector's binary form; null where there is no such column."""
    if name not in context.types:
        return SQL("NULL::bytea")
    return SQL("vector_send({}::vector)").format(value_of(context, name))


def vector_of(context: PostgresContext, name: str) -> Composable:
    """A vector of the row, which a binary cursor gives as `bytes_of` does.

    Without a function around it the server sorts rows by their distance without unpacking it.
    """
    kind = context.types.get(name, "")
    if not kind:
        return SQL("NULL::bytea")
    value = value_of(context, name)
    return value if kind.startswith("vector") else SQL("{}::vector").format(value)


def input_of(context: PostgresContext) -> Composable:
    """The input of the row: bytes as they are, everything else as text."""
    name = context.columns.input
    if name is None:
        return SQL("NULL::text")
    return column(name) if _is_bytes(context) else as_text(column(name))


def _is_bytes(context: PostgresContext) -> bool:
    return context.types.get(context.columns.input or "") == "bytea"


def fingerprint(context: PostgresContext) -> Composable:
    """Of the bytes of vector and input; a leading byte tells a null from an empty value.

    `binary.fingerprint` computes the same.
    """
    content = input_of(context)
    if not _is_bytes(context):
        content = SQL("convert_to({}, 'UTF8')").format(content)
    one = SQL(r"coalesce('\x01'::bytea || {}, '\x00'::bytea)")
    both = SQL(" || ").join(
        [one.format(bytes_of(context, context.columns.old)), one.format(content)]
    )
    return SQL("substring(sha256({}) FROM 1 FOR 16)").format(both)


def untouched(context: PostgresContext) -> Composable:
    """The condition that nobody has touched the row since it was marked."""
    return SQL("t.xmin = {}").format(value_of(context, context.xid))


def known_fingerprint(context: PostgresContext) -> Composable:
    """The stored fingerprint where nobody has touched the row since, else null."""
    return SQL("CASE WHEN {} THEN {} END").format(untouched(context), mark(context, "fingerprint"))


def other_model(context: PostgresContext, settled: Settled) -> Composable:
    """The condition that a row's model is not that of `settled` for its generation, or is null."""
    generation, model = mark(context, "generation"), mark(context, "model")
    cases = SQL(" ").join(
        SQL("WHEN {} THEN {}").format(Literal(name), Literal(tag))
        for name, tag in settled.models.items()
    )
    return SQL("{} IS DISTINCT FROM (CASE {} {} END)").format(model, generation, cases)


def not_right(context: PostgresContext, settled: Settled, changed: bool) -> Composable:
    """The condition that a row's marks are not those of `settled`, or its content has changed."""
    where = SQL("{} OR {}").format(no_marks(context), other_model(context, settled))
    if changed:
        where += SQL(" OR {}").format(other_content(context))
    return SQL("({})").format(where)


def other_content(context: PostgresContext) -> Composable:
    """The condition that a row's content is not that which its marks were made for."""
    return SQL("({} IS NOT TRUE AND {} IS DISTINCT FROM {})").format(
        untouched(context), mark(context, "fingerprint"), fingerprint(context)
    )


def no_marks(context: PostgresContext) -> Composable:
    """The condition that a row has no marks."""
    return SQL("({} IS NULL OR {} IS NULL)").format(
        mark(context, "generation"), mark(context, "model")
    )


# --- statements ----------------------------------------------------------------------------------


def add_columns(context: PostgresContext, dim: int) -> Composed:
    """All of them nullable, so that no row is rewritten."""
    parts = [
        SQL("ADD COLUMN IF NOT EXISTS {} {}").format(Identifier(name), raw(kind))
        for name, kind in zip(context.added, (vector_type(dim), *MARK_TYPES, "xid"), strict=True)
    ]
    return SQL("ALTER TABLE {} {}").format(context.target, SQL(", ").join(parts))


def vector_type(dim: int) -> str:
    """The type of an added vector.

    >>> vector_type(384), vector_type(3_072)
    ('vector(384)', 'halfvec(3072)')
    """
    return f"{'vector' if dim <= INDEXABLE else 'halfvec'}({dim})"


def add_vector(context: PostgresContext, name: str, kind: str) -> Composed:
    """One more nullable column of vectors."""
    return SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} {}").format(
        context.target, Identifier(name), raw(kind)
    )


def drop_columns(context: PostgresContext, names: Sequence[str]) -> Composed:
    """Their indexes go with them."""
    parts = [SQL("DROP COLUMN IF EXISTS {}").format(Identifier(name)) for name in names]
    return SQL("ALTER TABLE {} {}").format(context.target, SQL(", ").join(parts))


def update(context: PostgresContext, marks: Marks, skip: bool) -> Composed:
    """Compare and set, from the batch; with `skip` without the rows that others have locked.

    A part of a WITH: the marks before of each row that was `written`.
    """
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
        for name, value in zip(context.added, values, strict=True)
    ]
    keys_equal = SQL("{} = s.id::{}").format(column(context.columns.id), key_type(context))
    batch: Composable = SQL("fastfill_batch s")
    if skip:
        batch = SQL(
            "(SELECT s.* FROM fastfill_batch s JOIN {} t ON {} FOR UPDATE OF t SKIP LOCKED) s"
        ).format(context.target, keys_equal)
    query = "written AS (UPDATE {} t SET {} FROM {} WHERE {} RETURNING s.generation, s.model)"
    return SQL(query).format(
        context.target, SQL(", ").join(settings), batch, same_row(context, keys_equal)
    )


def same_row(context: PostgresContext, keys_equal: Composable) -> Composable:
    """The condition that a row is still what was read of it."""
    return SQL(
        "{key} AND {same} "
        "AND {g} IS NOT DISTINCT FROM s.generation AND {m} IS NOT DISTINCT FROM s.model"
    ).format(
        key=keys_equal,
        same=same_content(context),
        g=mark(context, "generation"),
        m=mark(context, "model"),
    )


def same_content(context: PostgresContext) -> Composable:
    """The condition that the owner's row has still the content that was read."""
    return SQL("{} AND (t.xmin = {} OR {} = s.seen)").format(
        context.in_part, _version_read(0), fingerprint(context)
    )


def version(context: PostgresContext) -> Composable:
    """The version of the row, and that of what is kept beside it: the one it was made from."""
    if not (context.beside and context.marked):
        return SQL("t.xmin::text")
    return SQL("concat(t.xmin::text, '/', {}::text)").format(value_of(context, context.xid))


def same_version_beside(context: PostgresContext) -> Composable:
    """The condition that what is kept beside is still made from the version that was read.

    A row whose content has changed and was settled again meanwhile may have the same marks.
    """
    return SQL("{} IS NOT DISTINCT FROM {}").format(
        value_of(context, context.xid), _version_read(1)
    )


def _version_read(part: int) -> Composable:
    return SQL("nullif(split_part(s.version, '/', {}), '')::xid").format(Literal(part + 1))


def index_name(context: PostgresContext, suffix: str) -> str:
    """The name of an index of ours."""
    return f"{context.table}_{suffix}"[-63:]  # PostgreSQL cuts names off at 63 bytes


def order_index_name(context: PostgresContext) -> str:
    """The name of the index that backfilling picks rows by."""
    return index_name(context, f"{context.columns.marks}_order")


def order_index(context: PostgresContext) -> Composed:
    """Of the rows that are yet to be embedded: those that are done leave it."""
    return SQL(
        "CREATE INDEX CONCURRENTLY {} ON {} ({g}, {} DESC NULLS LAST) "
        "WHERE {g} IN ('aligned', 'waiting')"
    ).format(
        Identifier(order_index_name(context)),
        context.holder,
        Identifier(context.columns.mark("priority")),
        g=Identifier(context.columns.mark("generation")),
    )


def vector_index(context: PostgresContext, side: Side, distance: Distance, dim: int) -> Composed:
    """HNSW on the old or the added vectors."""
    name = context.columns.side(side)
    kind = context.types.get(name, "vector" if dim <= INDEXABLE else "halfvec").split("(")[0]
    return SQL("CREATE INDEX CONCURRENTLY {} ON {} USING hnsw ({} {})").format(
        Identifier(index_name(context, f"{name}_hnsw")),
        context.target if side == "old" else context.holder,
        Identifier(name),
        raw(f"{kind}_{distance}_ops"),
    )
