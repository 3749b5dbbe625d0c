"""Vectors and columns of Parquet files: `vector`, and if present `id`, `label` and `group`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fastfill.errors import FileError, LabelError, ShapeError, some
from fastfill.features.sources import VectorFile
from fastfill.features.values import Array, Features, check_layout


def open_parquet(path: Path) -> VectorFile:
    """The column `vector`, to be read in blocks; only its shape is read now."""
    with _parquet(path) as file:
        _check_column(path, file, "vector")
        rows = file.metadata.num_rows
        first = next(file.iter_batches(batch_size=1, columns=["vector"]), None)
    if first is None or rows == 0:
        raise ShapeError(f"{path}: is empty. Give at least one vector.")
    one = list_matrix(first.column(0), path)
    dim = one.shape[1]
    check_layout((rows, dim), one.dtype, str(path))

    def blocks(size: int) -> Iterator[Array]:
        start = 0
        with _parquet(path) as file:
            for batch in file.iter_batches(batch_size=size, columns=["vector"]):
                yield list_matrix(batch.column(0), path, start, dim)
                start += len(batch)

    return VectorFile(str(path), rows, dim, blocks)


def read_parquet(path: Path, name: str, labels: Array | None) -> Features:
    """Vectors, ids, labels and groups; `labels` take the place of those in the file."""
    with _parquet(path) as file:
        _check_column(path, file, "vector")
        others = [key for key in ("id", "label", "group") if key in file.schema_arrow.names]
        table = file.read(["vector", *others])
    if table.num_rows == 0:
        raise ShapeError(f"{path}: is empty. Give at least one vector.")
    columns = {key: _column(table[key], path, key) for key in others}
    return Features(
        list_matrix(table["vector"].combine_chunks(), path),
        ids=columns.get("id"),
        labels=columns.get("label") if labels is None else labels,
        groups=columns.get("group"),
        name=name,
    )


def read_parquet_column(path: Path, column: str) -> Array:
    """One entry per row."""
    with _parquet(path) as file:
        _check_column(path, file, column)
        return _column(file.read([column])[column], path, column)


def _parquet(path: Path) -> Any:
    """An open `pyarrow.parquet.ParquetFile`, read piece by piece.

    By default pyarrow fetches whole row groups ahead: as much memory as the file is long.
    """
    import pyarrow.parquet as pq

    if path.is_dir():
        raise IsADirectoryError(path)
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)


def _check_column(path: Path, file: Any, column: str) -> None:
    names = file.schema_arrow.names
    if column not in names:
        raise FileError(f"{path}: has no column '{column}', only {some(names)}. Rename the column.")


def _column(chunked: Any, path: Path, name: str) -> Array:
    if chunked.null_count:
        rows = [row for row, value in enumerate(chunked) if not value.is_valid]
        raise LabelError(
            f"{path}: column '{name}' has nothing in rows {some(rows)}. Fill or remove those rows."
        )
    return np.asarray(chunked.to_numpy())


def list_matrix(
    column: Any,
    path: Path | str,
    first_row: int = 0,
    dim: int | None = None,
    column_name: str = "vector",
) -> Array:
    """List column → (n, d); every list must be present and of one length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_kind(column.type) for is_kind in lists):
        raise FileError(
            f"{path}: column '{column_name}' holds {column.type}, not lists of numbers."
        )
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    present = lengths[lengths >= 0]
    expected = dim if dim is not None else int(present[0]) if len(present) else 0
    wrong = np.flatnonzero(lengths != expected)
    if len(wrong):
        rows = some(wrong + first_row)
        length = f" or not {expected} long" if expected else ""
        raise ShapeError(
            f"{path}: vectors of rows {rows} are missing{length}. "
            "Remove those rows or embed their items again."
        )
    flat = column.flatten()
    if flat.null_count:
        holes = np.unique(np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False)) // expected)
        raise ShapeError(
            f"{path}: numbers are missing inside the vectors of rows {some(holes + first_row)}. "
            "Remove those rows or embed their items again."
        )
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), expected)
