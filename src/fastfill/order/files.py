"""Orders as Parquet files: columns `id`, `rank` (0 first) and `score`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.errors import FileError, IdError, OrderError, some
from fastfill.features import Array, Source, as_column, replacing
from fastfill.order.values import Order


def write_order(order: Order, path: Source, ids: ArrayLike | None = None) -> None:
    """Write the order, first to be backfilled first; ids are row numbers unless given.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "order.parquet"
    >>> write_order(Order([1, 0], name="mine"), file, ids=["a", "b"])
    >>> read_order(file, ids=["a", "b"])
    Order(2 rows, mine)
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = np.arange(len(order)) if ids is None else as_column(ids, len(order), "ids")
    columns = {"id": pa.array(keys[order.positions]), "rank": pa.array(np.arange(len(order)))}
    if order.scores is not None:
        columns["score"] = pa.array(order.scores[order.positions])
    table = pa.table(columns, metadata={"policy": order.name})
    with replacing(path) as temporary:
        pq.write_table(table, temporary)


def read_order(path: Source, ids: ArrayLike | None = None) -> Order:
    """Read an order for the gallery with these ids; without ids they are its row numbers."""
    table = _read(Path(path))
    policy = (table.schema.metadata or {}).get(b"policy", b"").decode()
    keys = np.asarray(table["id"].to_numpy())
    ranks = np.asarray(table["rank"].to_numpy())
    rows = keys if ids is None else _rows(keys, np.asanyarray(ids), Path(path))
    if ids is not None and len(rows) != len(np.asanyarray(ids)):
        raise OrderError(
            f"{path}: orders {len(rows):,} items and the gallery has {len(np.asanyarray(ids)):,}. "
            "An order names every gallery row exactly once."
        )
    turns = Order(ranks, name=f"{path}: rank").ranks
    positions = Order(rows[turns], name=str(path)).positions
    scores = None
    if "score" in table.column_names:
        scores = np.empty(len(rows))
        scores[rows] = table["score"].to_numpy()
    return Order(positions, scores, policy)


def _read(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise FileError(f"{path}: no such file. Check the path.") from None
    except (OSError, pa.ArrowException) as error:
        raise FileError(f"{path}: cannot be read as Parquet ({error}).") from None
    missing = [name for name in ("id", "rank") if name not in table.column_names]
    if missing:
        raise FileError(
            f"{path}: has no column {some(missing)}, only {some(table.column_names)}. "
            "An order has the columns id, rank and optionally score."
        )
    for name in table.column_names:
        if table[name].null_count:
            raise FileError(f"{path}: column '{name}' has missing values.")
    return table


def _rows(keys: Array, ids: Array, path: Path) -> NDArray[np.int64]:
    """The gallery row of each key."""
    position = {str(key): row for row, key in enumerate(ids.tolist())}
    missing = [key for key in keys.tolist() if str(key) not in position]
    if missing:
        raise IdError(f"{path}: the ids {some(missing)} are not in the gallery.")
    return np.array([position[str(key)] for key in keys.tolist()], dtype=np.int64)
