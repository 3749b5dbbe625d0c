"""Writing: a script that compares and sets, and what an application asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastfill.adapters.redis.context import RedisContext
from fastfill.adapters.redis.hashes import as_bytes, pages_of
from fastfill.adapters.redis.scripts import write_script
from fastfill.features import Matrix
from fastfill.gallery import MARKS, Id, Marks, Rows

SCRIPT_ROWS = 64  # that one script writes: others wait as long as it runs


class RedisWrites:
    """Each row is compared and set by a script, which runs alone."""

    def __init__(self, context: RedisContext) -> None:
        self._context = context

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """Write added vectors and marks where the row is still what was read."""
        context, columns = self._context, self._context.columns
        fields = [context.vector.field, columns.input or "", *columns.added]
        head = [*fields[:3], *(columns.mark(name) for name in MARKS)]
        script, scripts = write_script(), []
        for positions in pages_of(range(len(rows)), SCRIPT_ROWS):
            values = [value for i in positions for value in _values(rows, vectors, marks, int(i))]
            keys = [rows.ids[int(i)] for i in positions]
            told = [*head, marks.generation, marks.model, *values]
            scripts.append(["EVAL", script, len(keys), *keys, *told])
        return sum(context.connection.run_all(scripts, strict=True))

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id; a value that is None is taken off."""
        context, columns = self._context, self._context.columns
        names = {context.column: context.vector.field}
        commands: list[list[Any]] = []
        for row in zip(*values.values(), strict=True):
            named = dict(zip(values, row, strict=True))
            key = named.pop(columns.id)
            fields = {names.get(name, name): value for name, value in named.items()}
            gone = [name for name, value in fields.items() if value is None]
            vectors = {context.vector.field, columns.new}
            kept = [
                part
                for name, value in fields.items()
                if value is not None
                for part in (name, as_bytes(value) if name in vectors else value)
            ]
            commands += [["HSET", key, *kept]] if kept else []
            commands += [["HDEL", key, *gone]] if gone else []
        context.connection.run_all(commands, strict=True)

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        if len(ids):
            self._context.connection.run("DEL", *ids)


def _values(rows: Rows, vectors: Matrix | None, marks: Marks, i: int) -> tuple[Any, ...]:
    """What the script is told of one row."""
    return (
        rows.seen[i],
        rows.generation[i] or "",
        rows.model[i] or "",
        b"" if vectors is None else as_bytes(vectors[i]),
        "" if marks.variance is None else float(marks.variance[i]),
        0.0 if marks.priority is None else float(marks.priority[i]),
    )
