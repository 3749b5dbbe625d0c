"""What every store needs: the names in use, refusals in the same words, names of documents."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from fastfill.errors import StoreError, some
from fastfill.gallery.store import Columns, Id, Notify, Picked, Settled
from fastfill.gallery.where import Where

RECONNECT_FOR = 120.0  # seconds


def ignore(reason: str, seconds: float) -> None:
    """Wait without a word: what `notify` is until somebody wants to know."""


class StoreContext:
    """What the parts of one store share: its names, and how it tells that it has to wait.

    >>> context = StoreContext("memory", "vector")
    >>> context.use_columns(Columns("id", "text", "vector"), have=["id", "text", "vector"])
    >>> context.columns.new
    'vector_new'
    """

    notify: Notify
    reconnect_for: float
    takes_parts: bool = False  # can some of the rows be migrated, by `Columns.where`?

    def __init__(self, name: str, column: str) -> None:
        self.name = name
        self.column = column
        self.notify = ignore
        self.reconnect_for = RECONNECT_FOR
        self.part = ""
        self._columns: Columns | None = None

    @property
    def key(self) -> str:
        """The column of the ids, which is `id` until another one is named."""
        return "id" if self._columns is None else self._columns.id

    @property
    def columns(self) -> Columns:
        """The names in use."""
        if self._columns is None:
            raise StoreError(f"{self.name}: say first which columns hold the id and the input.")
        return self._columns

    @property
    def where(self) -> Where:
        """The rows that are migrated; all of them until some are named."""
        return () if self._columns is None else self._columns.where

    def use_columns(self, columns: Columns, have: Collection[str]) -> None:
        """Take these names into use; those of the owner must be among those that exist."""
        if columns.where and not self.takes_parts:
            raise StoreError(
                f"{self.name}: this kind of store can only be migrated as a whole. Leave --where "
                "out, or copy these rows into a collection of their own."
            )
        for name in (columns.id, columns.input, *(name for name, _ in columns.where)):
            if name is not None:
                self.require_column(name, have)
        self._columns = columns

    def check_drop_old(self) -> None:
        """Nothing is in the way, in most stores."""

    def close(self) -> None:
        """Let go of connections, where there are any."""

    # --- the cut-over, for stores that have none ------------------------------------------------

    def check_swap(self, columns: Columns) -> None:
        """Refuse."""
        raise StoreError(
            f"{self.name}: this kind of store cannot rename vectors. Complete without --swap, and "
            f"let the application query '{columns.new}'."
        )

    def swap(self, columns: Columns, settled: Settled) -> int:
        """Refuse."""
        self.check_swap(columns)
        return 0

    def swap_back(self, columns: Columns, dim: int) -> None:
        """Refuse."""
        self.check_swap(columns)

    def end_swap(self, columns: Columns, swapped: bool) -> None:
        """Nothing is left over."""

    def require_column(self, column: str, have: Collection[str]) -> None:
        """Refuse a column that does not exist."""
        if column not in have:
            names = some(have) or "none at all"
            raise StoreError(f"{self.name}: there is no column '{column}', only {names}.")

    def require_free(self, column: str, have: Collection[str]) -> None:
        """Refuse a swap whose name for the old vectors is taken."""
        if column in have:
            raise StoreError(
                f"{self.name}: there is already a column '{column}'. Rename it: the old vectors "
                "get that name."
            )

    def require_dim(self, dim: int, have: int | None) -> None:
        """Refuse to expand to `dim` dimensions where the added column has others."""
        if have and have != dim:
            raise StoreError(
                f"{self.name}: column '{self.columns.new}' has {have} dimensions, not {dim}. "
                "Roll the migration back before starting one with another model."
            )


@dataclass(frozen=True)
class DocumentNames:
    """Documents of several migrations in one table: each one's names begin in their own way.

    `part` is the tag of a part of the rows.

    >>> names = DocumentNames("photos.vector/")
    >>> names.full("state")
    'photos.vector/state'
    >>> names.own(["photos.vector/b", "photos.vector/a", "others.vector/a"], prefix="")
    ['a', 'b']
    >>> DocumentNames("photos.vector/", part="3ce325ff").full("state")
    'photos.vector/3ce325ff/state'
    """

    prefix: str
    part: str = ""

    def full(self, name: str) -> str:
        """The name in the table."""
        return f"{self._start}{name}"

    def own(self, names: Iterable[str], prefix: str) -> list[str]:
        """Those of the table's names that are ours and begin with `prefix`, in order."""
        wanted, skip = self.full(prefix), len(self._start)
        return sorted(name[skip:] for name in names if name.startswith(wanted))

    @property
    def _start(self) -> str:
        return f"{self.prefix}{self.part}/" if self.part else self.prefix


def ids_of(rows: Iterable[Id] | Picked) -> list[Id]:
    """The ids of rows that are given by their ids, or as they were picked.

    >>> ids_of([1, 2])
    [1, 2]
    """
    return list(rows.ids) if isinstance(rows, Picked) else list(rows)


def batch_rows(numbers: int, dim: int, least: int, most: int) -> int:
    """Rows whose vectors of `dim` hold about `numbers` floats, within limits.

    >>> batch_rows(1 << 24, 256, least=4_096, most=65_536)
    65536
    """
    return int(np.clip(numbers // max(dim, 1), least, most))


def backoff(first: float, longest: float) -> Iterator[float]:
    """Seconds to wait before one try after another: twice as long each time, with jitter.

    >>> waits = backoff(0.1, 5.0)
    >>> [0.05 * 2**n <= next(waits) <= 0.15 * 2**n for n in range(3)]
    [True, True, True]
    """
    for number in count():
        yield min(first * 2 ** min(number, 30), longest) * random.uniform(0.5, 1.5)
