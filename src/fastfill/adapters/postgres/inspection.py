"""A PostgreSQL table before a migration: indexes, sizes, and what the user may do."""

from __future__ import annotations

from typing import Any

from psycopg.sql import SQL, Composable, Literal

from fastfill.adapters.postgres.connection import raw
from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.documents import DOCUMENTS
from fastfill.adapters.postgres.layout import choose_layout
from fastfill.adapters.postgres.search import OPERATORS
from fastfill.adapters.postgres.sql import among, as_text, column, key
from fastfill.features import Distance
from fastfill.gallery import Id, Inspection, VectorIndex

SPARE = 4.0  # a table of so many times the sample is not read to its end


def inspect_table(context: PostgresContext, sample: int, seed: int) -> Inspection:
    """Look at the vector column and draw random rows; changes nothing.

    The server does not tell an ordinary user how much of its disk is free.
    """
    context.look()
    ids = _random_ids(context, sample, seed)
    return Inspection(
        kind=context.types.get(context.columns.old, ""),
        ids=ids,
        dims=_dims(context, ids),
        indexes=_indexes(context),
        stored_bytes=int(_of_table(context, "SELECT pg_total_relation_size(to_regclass(%s))")),
        missing_permissions=_missing_permissions(context),
        software=_software(context),
    )


def _random_ids(context: PostgresContext, sample: int, seed: int) -> list[Id]:
    """Of a huge table from random pages alone, so that it is not read to its end."""
    estimate = float(
        _of_table(context, "SELECT reltuples FROM pg_class WHERE oid = to_regclass(%s)")
    )
    pages: Composable = SQL("")
    if estimate > SPARE * sample:
        percent = 100 * SPARE * sample / estimate
        pages = SQL("TABLESAMPLE SYSTEM ({}) REPEATABLE ({})").format(
            Literal(percent), Literal(seed)
        )
    query = SQL("SELECT {} FROM {} t {} ORDER BY md5({} || {}) LIMIT {}").format(
        key(context),
        context.target,
        pages,
        as_text(key(context)),
        Literal(str(seed)),
        Literal(sample),
    )
    return [row[0] for row in context.work.rows_of(query)]


def _dims(context: PostgresContext, ids: list[Id]) -> dict[int, int]:
    if context.columns.old not in context.types:
        return {}
    context.dim(context.columns.old)  # refuses a column that holds no vectors
    query = SQL(
        "SELECT vector_dims({c}), count(*) FROM {} t WHERE {} AND {c} IS NOT NULL GROUP BY 1"
    ).format(context.target, among(context), c=column(context.columns.old))
    return {int(dim): int(count) for dim, count in context.work.rows_of(query, [ids])}


def _indexes(context: PostgresContext) -> tuple[VectorIndex, ...]:
    rows = context.work.rows_of(
        "SELECT c.relname, m.amname, o.opcname, i.indisvalid AND i.indisready "
        "FROM pg_index i JOIN pg_opclass o ON o.oid = i.indclass[0] "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam "
        "WHERE i.indrelid = to_regclass(%s) AND a.attname = %s "
        "AND m.amname IN ('hnsw', 'ivfflat') ORDER BY 1",
        [context.regclass(context.table), context.columns.old],
    )
    return tuple(
        VectorIndex(str(name), str(kind), _distance(str(operators)), bool(valid))
        for name, kind, operators, valid in rows
    )


def _distance(operators: str) -> Distance | None:
    return next((distance for distance in OPERATORS if f"_{distance}_" in operators), None)


def _missing_permissions(context: PostgresContext) -> tuple[str, ...]:
    """What `start` does as this user: read, make its table of documents; write and add columns,
    or make a table beside the owner's."""
    table, schema = context.regclass(context.table), context.schema
    beside = context.beside or choose_layout(context).layout == "side"
    needs: list[tuple[str, str, list[Any]]] = [
        ("read the table (SELECT)", "has_table_privilege(%s, 'SELECT')", [table]),
        ("write at all: the server is a standby", "NOT pg_is_in_recovery()", []),
    ]
    if not beside:
        owner = "(SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(%s))"
        needs += [
            ("change its rows (UPDATE)", "has_table_privilege(%s, 'UPDATE')", [table]),
            ("add columns to it (be its owner)", owner, [table]),
        ]
    if beside or not context.columns_of(DOCUMENTS):
        create = f"create a table (such as {DOCUMENTS}) in the schema {schema}"
        needs.append((create, "has_schema_privilege(%s, 'CREATE')", [schema]))
    query = SQL("SELECT ") + SQL(", ").join(raw(condition) for _, condition, _ in needs)
    row = context.work.rows_of(query, [value for *_, values in needs for value in values])[0]
    return tuple(words for (words, *_), allowed in zip(needs, row, strict=True) if not allowed)


def _software(context: PostgresContext) -> tuple[str, ...]:
    """The server and its extension: those of the database, not of this machine."""
    [(server, extension)] = context.work.rows_of(
        "SELECT current_setting('server_version'), "
        "(SELECT extversion FROM pg_extension WHERE extname = 'vector')"
    )
    return f"PostgreSQL {server}", f"pgvector {extension}"


def _of_table(context: PostgresContext, query: str) -> Any:
    """The one value that a query about the table gives."""
    return context.work.rows_of(query, [context.regclass(context.table)])[0][0]
