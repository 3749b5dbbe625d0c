"""A table of SQLite before a migration: its vectors, the disk under it, the rights on its file."""

from __future__ import annotations

import os
import random
import shutil

from fastfill.adapters.sqlite.context import SqliteContext
from fastfill.adapters.sqlite.sql import by_ids, quoted
from fastfill.adapters.sqlite.vectors import ids_as_json
from fastfill.gallery import Id, Inspection, RepeatedIds
from fastfill.gallery.repeated_ids import NAMED

KINDS = {"table": "BLOB", "view": "column of a view", "virtual": "column of a virtual table"}


def inspect_table(context: SqliteContext, sample: int, seed: int) -> Inspection:
    """Look at the vector column and draw random rows; changes nothing."""
    context.look()
    there = context.columns.old in context.types
    ids = _random_ids(context, sample, seed)
    return Inspection(
        kind=(context.types[context.columns.old] or KINDS[context.kind]) if there else "",
        ids=ids,
        dims=_dims(context, ids) if there else {},
        stored_bytes=context.path.stat().st_size,
        free_bytes=shutil.disk_usage(context.path.parent).free,
        missing_permissions=_missing_permissions(context),
        software=_software(context),
    )


def _random_ids(context: SqliteContext, sample: int, seed: int) -> list[Id]:
    query = f"SELECT {context.id} FROM {quoted(context.table)} AS t WHERE {context.in_part}"
    ids = [key for (key,) in context.work.rows_of(query)]
    return random.Random(seed).sample(ids, min(sample, len(ids)))


def repeated_ids(context: SqliteContext) -> RepeatedIds:
    """Of a view or a virtual table; the index of a table lets no id be there twice."""
    if context.kind == "table":
        return RepeatedIds()
    rows = f"FROM {quoted(context.table)} AS t WHERE {context.in_part}"
    several = context.work.rows_of(
        f"SELECT {context.id} {rows} AND {context.id} IS NOT NULL GROUP BY 1 HAVING count(*) > 1"
    )
    ((missing,),) = context.work.rows_of(f"SELECT count(*) {rows} AND {context.id} IS NULL")
    return RepeatedIds(len(several), tuple(key for (key,) in several[:NAMED]), missing)


def _dims(context: SqliteContext, ids: list[Id]) -> dict[int, int]:
    context.dim(context.columns.old)  # refuses a column that holds no vectors
    value = context.column_of(context.columns.old)
    query = f"SELECT length({value}) / 4, count(*) {by_ids(context)} AND {value} IS NOT NULL "
    rows = context.work.rows_of(f"{query} GROUP BY 1", {"ids": ids_as_json(ids)})
    return {int(dim): int(count) for dim, count in rows}


def _software(context: SqliteContext) -> tuple[str, ...]:
    """The SQLite that has opened the file, and its extension."""
    [(library, extension)] = context.work.rows_of("SELECT sqlite_version(), vec_version()")
    return f"SQLite {library}", f"sqlite-vec {extension.removeprefix('v')}"


def _missing_permissions(context: SqliteContext) -> tuple[str, ...]:
    """A journal is written beside the file."""
    needs = {f"write to {context.path}": context.path}
    needs[f"make files in {context.path.parent.absolute()}"] = context.path.parent
    return tuple(words for words, path in needs.items() if not os.access(path, os.W_OK))
