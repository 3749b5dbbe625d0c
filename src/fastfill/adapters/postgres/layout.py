"""Which layout suits a table: what an UPDATE of each of its rows would set going."""

from __future__ import annotations

from fastfill.adapters.postgres.context import PostgresContext
from fastfill.gallery import LayoutChoice

MOST_INDEXES = 3  # every new version of a row is entered into all of them
TRIGGERS = "SELECT count(*) FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal"
INDEXES = "SELECT count(*) FROM pg_index WHERE indrelid = to_regclass(%s)"
PUBLICATIONS = (
    "SELECT string_agg(pubname, ', ' ORDER BY pubname) FROM pg_publication_tables "
    "WHERE schemaname = %s AND tablename = %s"
)


def choose_layout(context: PostgresContext) -> LayoutChoice:
    """`side` where triggers, many indexes or subscribers would hear of every row twice."""
    table, ask = context.regclass(context.table), context.work.rows_of
    triggers, indexes = (int(ask(query, [table])[0][0]) for query in (TRIGGERS, INDEXES))
    published = ask(PUBLICATIONS, [context.schema, context.table])[0][0]
    reasons = [
        (triggers, f"it has {triggers} trigger{'s' * (triggers > 1)}"),
        (indexes > MOST_INDEXES, f"it has {indexes} indexes"),
        (published, f"it is published for replication ({published})"),
    ]
    said = " and ".join(text for there, text in reasons if there)
    if said:
        return LayoutChoice("side", f"because of '{context.table}': {said}")
    why = f"'{context.table}' has no trigger, {indexes} indexes and no subscriber"
    return LayoutChoice("columns", f"because {why}")
