"""The SQL of the adapter: names, values, conditions on a row, and the write of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fastfill.gallery import MARKS, Settled

if TYPE_CHECKING:
    from fastfill.adapters.sqlite.context import SqliteContext

MARK_TYPES = ("TEXT", "TEXT", "REAL", "REAL", "TEXT")
# The ids come first: a virtual table is asked for one row after the other, not for all of them.
BY_IDS = "FROM json_each(:ids) AS j CROSS JOIN {source} WHERE {id} = j.value AND {part}"

# What the write of a row is told: what was read of it, and what is written.
READ, WRITTEN = ("id", "old", "input", "was_generation", "was_model"), ("vector", *MARKS)
NAMED = {name: f":{name}" for name in (*READ, *WRITTEN)}  # as people read it
NUMBERED = {name: f"?{n}" for n, name in enumerate((*READ, *WRITTEN), 1)}  # SQLite finds it sooner


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


def same_row(context: SqliteContext, slots: Mapping[str, str]) -> str:
    """The condition that a row is still what was read of it, byte by byte."""
    columns = context.columns
    return " AND ".join(
        [
            f"{context.id} = {slots['id']}",
            f"{context.column_of(columns.old)} IS {slots['old']}",
            f"{context.column_of(columns.input or '')} IS {slots['input']}",
            f"{context.mark('generation')} IS {slots['was_generation']}",
            f"{context.mark('model')} IS {slots['was_model']}",
            context.in_part,
        ]
    )


# --- statements ----------------------------------------------------------------------------------


def write_row(context: SqliteContext, slots: Mapping[str, str] = NAMED) -> str:
    """Compare and set one row."""
    added = {name: slots[told] for name, told in zip(context.columns.added, WRITTEN, strict=True)}
    same = same_row(context, slots)
    if not context.beside:
        settings = ", ".join(f"{quoted(name)} = {slot}" for name, slot in added.items())
        return f"UPDATE {quoted(context.table)} AS t SET {settings} WHERE {same}"
    names = ", ".join(['"id"', *map(quoted, added)])
    settings = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in added)
    return (
        f"INSERT INTO {quoted(context.home)} ({names}) "
        f"SELECT {slots['id']}, {', '.join(added.values())} FROM {context.source} WHERE {same} "
        f'ON CONFLICT ("id") DO UPDATE SET {settings}'
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
