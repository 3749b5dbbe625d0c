"""Which layout suits a table: what an UPDATE of each of its rows would set going; if any."""

from __future__ import annotations

from fastfill.adapters.postgres.context import PostgresContext
from fastfill.errors import StoreError
from fastfill.gallery import LayoutChoice

MOST_INDEXES = 3  # every new version of a row is entered into all of them
TRIGGERS = "SELECT count(*) FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal"
KIND = (
    "SELECT relkind::text, relispartition, EXISTS (SELECT FROM pg_inherits WHERE inhparent = oid) "
    "FROM pg_class WHERE oid = to_regclass(%s)"
)
OTHER_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
INDEXES = "SELECT count(*) FROM pg_index WHERE indrelid = to_regclass(%s)"
PUBLICATIONS = (
    "SELECT string_agg(pubname, ', ' ORDER BY pubname) FROM pg_publication_tables "
    "WHERE schemaname = %s AND tablename = %s"
)


def choose_layout(context: PostgresContext) -> LayoutChoice:
    """`side` where triggers, many indexes or subscribers would hear of every row twice."""
    table, ask = context.regclass(context.table), context.work.rows_of
    partition = check_kind(context)
    triggers, indexes = (int(ask(query, [table])[0][0]) for query in (TRIGGERS, INDEXES))
    published = ask(PUBLICATIONS, [context.schema, context.table])[0][0]
    reasons = [
        (partition, "it is a partition, to which no column can be added"),
        (triggers, f"it has {triggers} trigger{'s' * (triggers > 1)}"),
        (indexes > MOST_INDEXES, f"it has {indexes} indexes"),
        (published, f"it is published for replication ({published})"),
    ]
    said = " and ".join(text for there, text in reasons if there)
    if said:
        return LayoutChoice("side", f"because of '{context.table}': {said}")
    why = f"'{context.table}' has no trigger, {indexes} indexes and no subscriber"
    return LayoutChoice("columns", f"because {why}")


def check_kind(context: PostgresContext) -> bool:
    """Is it a partition? Views, and tables that keep their rows in others, are refused."""
    found = context.work.rows_of(KIND, [context.regclass(context.table)])
    kind, partition, has_children = found[0]
    if kind in OTHER_KINDS:
        raise StoreError(
            f"{context.name}: '{context.table}' is {OTHER_KINDS[kind]}. Give the URL of the table "
            "that its rows are kept in."
        )
    if kind == "p" or has_children:
        raise StoreError(
            f"{context.name}: '{context.table}' keeps its rows in partitions, which PostgreSQL "
            "neither indexes nor scans like one table. Give the URL of one partition after the "
            "other: each can be migrated by itself, in the layout 'side'."
        )
    return bool(partition)
