"""Writing to a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastfill.adapters.sqlite import sql
from fastfill.adapters.sqlite.context import SqliteContext
from fastfill.adapters.sqlite.sql import by_ids, quoted
from fastfill.adapters.sqlite.vectors import as_blob, as_blobs, ids_as_json
from fastfill.features import Matrix
from fastfill.gallery import Id, Marks, Rows

PIECE = 4_096  # rows of a transaction, for which other writers wait


class SqliteWrites:
    """A batch is a few short transactions, on a connection of its own."""

    def __init__(self, context: SqliteContext) -> None:
        self._context = context

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """Write added vectors and marks where the row is still what was read."""
        query, written = sql.write_row(self._context, sql.NUMBERED), 0
        for first in range(0, len(rows), PIECE):
            part = slice(first, first + PIECE)
            written += self._write_piece(query, list(_values(rows, vectors, marks, part)))
        return written

    def _write_piece(self, query: str, values: list[tuple[Any, ...]]) -> int:
        writing = self._context.writing
        return writing.write(lambda cursor: int(cursor.executemany(query, values).rowcount))

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id."""
        context = self._context
        context.look()
        for name in values:
            context.require_column(name, (*context.names, context.key))
        rows = [
            dict(zip(values, map(_parameter, row), strict=True))
            for row in zip(*values.values(), strict=True)
        ]

        def put(cursor: Any) -> None:
            for row in rows:
                self._put(cursor, row)

        context.work.write(put)

    def _put(self, cursor: Any, row: dict[str, Any]) -> None:
        context, key = self._context, row[self._context.key]
        apart = {name: value for name, value in row.items() if name in context.side_types}
        owners = {name: value for name, value in row.items() if name not in apart}
        _put_row(cursor, context.table, context.key, owners, context.in_part)
        if apart:
            _put_row(cursor, context.side_table, "id", {"id": key, **apart}, "TRUE")

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        context = self._context
        find = f"SELECT {context.id} {by_ids(context)}"
        query = f"DELETE FROM {quoted(context.table)} WHERE {quoted(context.key)} = ?"

        def delete(cursor: Any) -> None:
            found = cursor.execute(find, {"ids": ids_as_json(ids)}).fetchall()
            cursor.executemany(query, found)

        context.work.write(delete)


def _put_row(cursor: Any, table: str, key: str, row: dict[str, Any], part: str) -> None:
    """Update the row of this id, if it is of the part, or insert it.

    Names have no alias here, which triggers of a view would not know.
    """
    target, same = quoted(table), f"{quoted(key)} = ?"
    found = cursor.execute(f"SELECT {part} FROM {target} AS t WHERE t.{same}", [row[key]])
    is_mine = found.fetchone()
    changes = {name: value for name, value in row.items() if name != key}
    if is_mine is None:
        names, slots = ", ".join(map(quoted, row)), ", ".join("?" * len(row))
        cursor.execute(f"INSERT INTO {target} ({names}) VALUES ({slots})", list(row.values()))
    elif is_mine[0] and changes:
        settings = ", ".join(f"{quoted(name)} = ?" for name in changes)
        values = [*changes.values(), row[key]]
        cursor.execute(f"UPDATE {target} SET {settings} WHERE {same}", values)


def _values(
    rows: Rows, vectors: Matrix | None, marks: Marks, part: slice
) -> Iterator[tuple[Any, ...]]:
    """What the statement is told of each row, in the order of `sql.NUMBERED`."""
    count = len(rows.ids[part])
    none = [None] * count
    read = [map(_parameter, rows.ids[part]), rows.seen[part, 0], rows.seen[part, 1]]
    read += [rows.generation[part], rows.model[part]]
    written = [
        none if vectors is None else as_blobs(vectors[part]),
        [marks.generation] * count,
        [marks.model] * count,
        none if marks.variance is None else marks.variance[part].tolist(),
        none if marks.priority is None else marks.priority[part].tolist(),
        rows.seen[part, 2],
    ]
    return zip(*read, *written, strict=True)


def _parameter(value: Any) -> Any:
    if isinstance(value, list | tuple | np.ndarray):
        return as_blob(value)
    return value.item() if isinstance(value, np.generic) else value
