"""The SQL of the adapter: names, values, conditions on a row, and the write of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastfill.gallery import MARKS, Settled

if TYPE_CHECKING:
    from fastfill.adapters.sqlite.context import SqliteContext

MARK_TYPES = ("TEXT", "TEXT", "REAL", "REAL", "TEXT")
# The ids come first: a virtual table is asked for one row after the other, not for all of them.
BY_IDS = "FROM json_each(:ids) AS j CROSS JOIN {source} WHERE {id} = j.value AND {part}"


def quoted(name: str) -> str:
    """The name of a table or a column.

    >>> quoted('my "best" photos')
    '"my ""best"" photos"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


# --- conditions ----------------------------------------------------------------------------------


def by_ids(context: SqliteContext) -> str:
    """The rows of the ids in the parameter `ids`, a list as JSON."""
    return BY_IDS.format(source=context.source, id=context.id, part=context.in_part)


def not_right(context: SqliteContext, settled: Settled) -> str:
    """The condition that a row's marks are not those of `settled`."""
    generation, model = context.mark("generation"), context.mark("model")
    right = " OR ".join(
        f"({generation} = {literal(name)} AND {model} = {literal(tag)})"
        for name, tag in settled.models.items()
    )
    return f"({generation} IS NULL OR {model} IS NULL OR NOT ({right}))"


def same_row(context: SqliteContext) -> str:
    """The condition that a row is still what was read of it, byte by byte."""
    columns = context.columns
    return " AND ".join(
        [
            f"{context.id} = :id",
            f"{context.column_of(columns.old)} IS :old",
            f"{context.column_of(columns.input or '')} IS :input",
            f"{context.mark('generation')} IS :was_generation",
            f"{context.mark('model')} IS :was_model",
            context.in_part,
        ]
    )


# --- statements ----------------------------------------------------------------------------------


def write_row(context: SqliteContext) -> str:
    """Compare and set one row."""
    slots = dict(zip(context.columns.added, (":vector", *(f":{n}" for n in MARKS)), strict=True))
    if not context.beside:
        settings = ", ".join(f"{quoted(name)} = {slot}" for name, slot in slots.items())
        return f"UPDATE {quoted(context.table)} AS t SET {settings} WHERE {same_row(context)}"
    names = ", ".join(['"id"', *map(quoted, slots)])
    settings = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in slots)
    return (
        f"INSERT INTO {quoted(context.home)} ({names}) SELECT :id, {', '.join(slots.values())} "
        f'FROM {context.source} WHERE {same_row(context)} ON CONFLICT ("id") DO UPDATE '
        f"SET {settings}"
    )


def add_columns(context: SqliteContext, dim: int) -> list[str]:
    """What is missing of the added columns and of their index."""
    columns, home = context.columns, quoted(context.home)
    kinds = dict(zip(columns.added, (f"float[{dim}]", *MARK_TYPES), strict=True))
    if context.beside:
        fields = ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())
        steps = [f'CREATE TABLE IF NOT EXISTS {home} ("id" PRIMARY KEY NOT NULL, {fields})']
    else:
        steps = [
            f"ALTER TABLE {home} ADD COLUMN {quoted(name)} {kind}"
            for name, kind in kinds.items()
            if name not in context.types
        ]
    order = ", ".join(quoted(columns.mark(name)) for name in ("generation", "priority", "model"))
    return [
        *steps,
        f"CREATE INDEX IF NOT EXISTS {index_name(context, context.home)} ON {home} ({order})",
    ]


def index_name(context: SqliteContext, table: str) -> str:
    """The index of the marks in a table, quoted."""
    return quoted(f"{table}_{context.columns.marks}_order")


def drop_columns(context: SqliteContext, table: str, names: Sequence[str]) -> list[str]:
    """Of these columns those that exist, each by a statement that rewrites the table."""
    have = context.columns_of(table)
    return [
        f"ALTER TABLE {quoted(table)} DROP COLUMN {quoted(name)}" for name in names if name in have
    ]


def rename_column(context: SqliteContext, name: str, other: str) -> str:
    """Another name for a column of the owner's table."""
    return f"ALTER TABLE {quoted(context.table)} RENAME COLUMN {quoted(name)} TO {quoted(other)}"
