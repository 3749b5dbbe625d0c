"""Tables of SQLite as their owner would make them, with the SQLite that FastFill uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fastfill.adapters.sqlite.connection import open_file

PLAIN = "CREATE TABLE photos (id TEXT PRIMARY KEY, text TEXT, album INTEGER, vector BLOB)"
VEC0 = (
    "CREATE VIRTUAL TABLE photos USING vec0("
    "id TEXT PRIMARY KEY, +text TEXT, album INTEGER, vector float[{dim}])"
)


@contextmanager
def owner_of(path: Path) -> Iterator[Any]:
    """The owner's connection to a file, which is made where there is none."""
    path.touch()
    connection = open_file(str(path), timeout=30.0)
    try:
        yield connection
    finally:
        connection.close()


def fill(path: Path, values: Mapping[str, Sequence[Any]], table: str = PLAIN) -> None:
    """A table `photos` with these rows."""
    with owner_of(path) as owner:
        owner.execute(table)
        insert(owner, values)


def insert(owner: Any, values: Mapping[str, Sequence[Any]], table: str = "photos") -> None:
    """Rows, in one transaction."""
    slots = ", ".join("?" * len(values))
    owner.execute("BEGIN")
    owner.executemany(
        f"INSERT INTO {table} ({', '.join(values)}) VALUES ({slots})",
        [tuple(map(_blob, row)) for row in zip(*values.values(), strict=True)],
    )
    owner.execute("COMMIT")


def _blob(value: Any) -> Any:
    is_vector = isinstance(value, list | np.ndarray)
    return np.asarray(value, dtype=np.float32).tobytes() if is_vector else value


def everything(path: Path, columns: str = "*") -> list[Any]:
    """All rows of the owner's table."""
    with owner_of(path) as owner:
        return list(owner.execute(f"SELECT {columns} FROM photos ORDER BY id"))
