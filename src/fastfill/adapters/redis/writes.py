"""Writing: a script that compares and sets, and what an application asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.adapters.redis.context import RedisContext
from fastfill.adapters.redis.hashes import as_bytes
from fastfill.adapters.redis.packing import PackedValues
from fastfill.adapters.redis.scripts import SCRIPT_ROWS, write_script
from fastfill.features import Matrix
from fastfill.gallery import MARKS, Id, Marks, Rows


class RedisWrites:
    """Each row is compared and set by a script, which runs alone."""

    def __init__(self, context: RedisContext) -> None:
        self._context = context

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """Write added vectors and marks where the row is still what was read."""
        context, columns = self._context, self._context.columns
        fields = [context.vector.field, columns.input or "", columns.new]
        fields += [columns.mark(name) for name in MARKS]
        script, scripts = write_script(), []
        for first in range(0, len(rows), SCRIPT_ROWS):
            part = slice(first, first + SCRIPT_ROWS)
            keys = rows.ids[part].tolist()
            told: list[Any] = [*fields, marks.generation, marks.model]
            told += [each for values in _values(rows, vectors, marks, part) for each in values]
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


def _values(
    rows: Rows, vectors: Matrix | None, marks: Marks, part: slice
) -> Iterator[tuple[bytes, bytes]]:
    """What the script is told of each row, as sizes and data."""
    count = len(rows.ids[part])
    lists = [list[str | None](each[part]) for each in (rows.seen, rows.generation, rows.model)]
    lists.append([""] * count if marks.variance is None else _texts(marks.variance[part]))
    lists.append(["0.0"] * count if marks.priority is None else _texts(marks.priority[part]))
    packed = [PackedValues.of(each) for each in lists]
    none = PackedValues.of([None] * count)
    packed.insert(3, none if vectors is None else PackedValues.of_vectors(vectors[part]))
    return ((each.sizes, each.data) for each in packed)


def _texts(numbers: NDArray[np.float32]) -> list[str | None]:
    return [str(number) for number in numbers.tolist()]
