"""The LanceDB table to be migrated: its columns and what LanceDB says about them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Literal, TypeVar

import lancedb
import numpy as np
import pyarrow as pa

from fastfill.adapters.lance_documents import LanceDocuments, table_names
from fastfill.errors import StoreError, some
from fastfill.features import Distance
from fastfill.gallery import Columns, Description

T = TypeVar("T")
PATIENCE = 60.0  # seconds of commit conflicts with other writers before giving up
BATCH_NUMBERS = 1 << 24  # floats in the old vectors of a batch: 64 MiB
LANCE_METRIC: dict[Distance, Literal["l2", "cosine", "dot"]] = {
    "l2": "l2",
    "cosine": "cosine",
    "ip": "dot",
}
DISTANCE_OF: dict[str, Distance] = {metric: distance for distance, metric in LANCE_METRIC.items()}


class LanceTable(LanceDocuments):
    """One vector column of one table, and the way to commit to it."""

    def __init__(self, path: str, table: str, column: str) -> None:
        self.name = f"lance://{path}#{table}.{column}"
        self.column = column
        self._columns: Columns | None = None
        # Every read sees the latest version: other processes write too.
        self._db = lancedb.connect(path, read_consistency_interval=timedelta(0))
        tables = table_names(self._db)
        if table not in tables:
            raise StoreError(
                f"{path} has no table '{table}', only {some(tables) or 'an empty folder'}."
            )
        self._table = self._db.open_table(table)
        self._dim(column)

    @property
    def columns(self) -> Columns:
        """The names in use."""
        if self._columns is None:
            raise StoreError(f"{self.name}: say first which columns hold the id and the input.")
        return self._columns

    def bind(self, columns: Columns) -> None:
        """Say which columns hold what."""
        have = self._table.schema.names
        for name in (columns.id, columns.input):
            if name is not None and name not in have:
                raise StoreError(f"{self.name}: there is no column '{name}', only {some(have)}.")
        self._columns = columns

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        names = tuple(self._table.schema.names)
        old = self.column if self.column in names else self.columns.new
        return Description(
            count=self._table.count_rows,
            old_dim=self._dim(old),
            new_dim=self._dim(self.columns.new) if self.columns.new in names else None,
            distance=self._index_distance(old),
            columns=names,
            # A merge reads all the ids of the table, so that few large ones are cheaper.
            batch=int(np.clip(BATCH_NUMBERS // max(self._dim(old), 1), 4_096, 65_536)),
            beside=False,  # both are this process's own work, on all of its cores
        )

    def _dim(self, column: str) -> int:
        names = self._table.schema.names
        if column not in names:
            return 0 if self._columns else self._no_column(column, names)
        kind = self._table.schema.field(column).type
        if not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
            raise StoreError(f"{self.name}: column '{column}' holds {kind}, not vectors.")
        return int(kind.list_size)

    def _no_column(self, column: str, names: list[str]) -> int:
        # After `complete --drop-old` the address of the migration is still the old column's.
        if f"{column}_new" in names or self._documents_exist():
            return 0
        raise StoreError(f"{self.name}: there is no column '{column}', only {some(names)}.")

    def _index_distance(self, column: str) -> Distance | None:
        for index in self._table.list_indices():
            if list(index.columns) == [column]:
                stats = self._table.index_stats(index.name)
                return DISTANCE_OF.get(str(getattr(stats, "distance_type", "")).lower())
        return None

    def _retry(self, commit: Callable[[], T]) -> T:
        """LanceDB retries most conflicts with other writers itself; the rest is retried here."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return commit()
            except (RuntimeError, OSError, ValueError) as error:
                text = str(error).lower()
                busy = "conflict" in text or "concurrent" in text
                if not busy or time.monotonic() > deadline:
                    raise StoreError(f"{self.name}: {str(error).splitlines()[0]}") from error
                time.sleep(random.uniform(0.01, 0.1))
