"""LanceDB's SQL: names, values, and the conditions that the adapter asks for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fastfill.errors import StoreError
from fastfill.gallery import Columns, Generation, Settled


def quoted(name: str) -> str:
    """A column's name.

    >>> quoted("my column")
    '`my column`'
    """
    if "`" in name:
        raise StoreError(f"Column {name!r} has a backtick in its name, which LanceDB cannot quote.")
    return f"`{name}`"


def literal(value: object) -> str:
    """A value.

    >>> literal("it's"), literal(np.int64(3)), literal(True)
    ("'it''s'", '3', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | np.integer | np.floating):
        return repr(value.item() if isinstance(value, np.generic) else value)
    return "'" + str(value).replace("'", "''") + "'"


def equals(name: str, value: object) -> str:
    """The condition that a column has a value.

    >>> equals("album", 3)
    '`album` = 3'
    """
    return f"{quoted(name)} = {literal(value)}"


def one_of(name: str, values: Iterable[object]) -> str:
    """The condition that a column has one of some values.

    >>> one_of("id", ["a", "b"])
    "`id` IN ('a', 'b')"
    """
    return f"{quoted(name)} IN ({', '.join(map(literal, values))})"


def of_generation(columns: Columns, generation: Generation) -> str:
    """The condition that a row's added vector is of a generation."""
    return equals(columns.mark("generation"), generation)


def not_right(columns: Columns, settled: Settled) -> str:
    """The condition that a row's marks are not those of `settled`."""
    generation, model = columns.mark("generation"), columns.mark("model")
    right = " OR ".join(
        f"({equals(generation, name)} AND {equals(model, tag)})"
        for name, tag in settled.models.items()
    )
    return f"{quoted(generation)} IS NULL OR {quoted(model)} IS NULL OR NOT ({right})"
