"""Reading vectors and columns from `.npy`, `.npz` and Parquet, whole or block by block.

A source is written `FILE.npy`, `FILE.npz:KEY` or `FILE.parquet` (columns `id`, `vector`, and
optionally `label` and `group`). Nothing that is read here can execute code.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy

from fastfill.errors import FastFillError, FileError, LabelError, ShapeError, some
from fastfill.features.values import (
    Array,
    Features,
    Matrix,
    Pairs,
    as_matrix,
    check_finite,
    check_layout,
)

Source = str | os.PathLike[str]


@dataclass(frozen=True)
class VectorFile:
    """A matrix in a file, of known shape, that can be read in blocks of bounded memory."""

    name: str
    rows: int
    dim: int
    _blocks: Callable[[int], Iterator[Array]]

    def blocks(self, rows: int = 65_536) -> Iterator[Matrix]:
        """Finite float32 blocks of at most `rows` rows, in the order of the file."""
        start = 0
        with _readable(self.name):
            for block in self._blocks(rows):
                with np.errstate(over="ignore"):
                    matrix = np.ascontiguousarray(block, dtype=np.float32)
                check_finite(matrix, self.name, first_row=start)
                start += len(matrix)
                yield matrix


def open_vectors(source: Source) -> VectorFile:
    """Open a matrix for reading in blocks; only its shape is read now."""
    path, key = _split(source)
    with _readable(str(source)):
        if path.suffix == ".parquet":
            return _open_parquet(path)
        array = _open_array(path, key)
        check_layout(array.shape, array.dtype, str(source))
        blocks = array.blocks if isinstance(array, _ZipStream) else _windows(path, array)
        return VectorFile(str(source), array.shape[0], array.shape[1], blocks)


def read_features(source: Source, labels: Source | None = None) -> Features:
    """Read vectors, and from Parquet also ids, labels and groups.

    A float32 `.npy` or uncompressed `.npz` is memory-mapped: pages are read when they are used.
    """
    path, key = _split(source)
    given = None if labels is None else read_column(labels)
    with _readable(str(source)):
        if path.suffix == ".parquet":
            return _read_parquet(path, str(source), given)
        array = _open_array(path, key)
        whole = array.read() if isinstance(array, _ZipStream) else array
        return Features(whole, labels=given, name=str(source))


def read_pairs(
    old: Source, new: Source, labels: Source | None = None, side: Source | None = None
) -> Pairs:
    """Read the same items under both models; Parquet files with ids are matched by id."""
    a, b = read_features(old), read_features(new, labels)
    by_id = _split(old)[0].suffix == ".parquet" and _split(new)[0].suffix == ".parquet"
    pairs = Pairs.match(a, b) if by_id else Pairs(a, b)
    return pairs if side is None else Pairs(pairs.old, pairs.new, read_matrix(side))


def read_matrix(source: Source) -> Matrix:
    """Read a matrix alone: a classifier head, side-information."""
    return as_matrix(read_features(source).vectors, str(source))


def read_column(source: Source, column: str = "label") -> Array:
    """Read one entry per row (labels, groups, ids) from `.npy`, `.npz:KEY` or Parquet."""
    path, key = _split(source)
    with _readable(str(source)):
        if path.suffix == ".parquet":
            with _parquet(path) as file:
                _check_column(path, file, column)
                return _column(file.read([column])[column], path, column)
        array = _open_array(path, key)
        whole = array.read() if isinstance(array, _ZipStream) else np.asarray(array)
        if whole.ndim != 1:
            raise ShapeError(f"{source}: expected one entry per row, got shape {whole.shape}.")
        return whole


def check_target(path: Source) -> Path:
    """A path that a file can be written to; worth knowing before hours of work."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileError(f"{target}: the folder {target.parent} does not exist. Create it first.")
    if target.is_dir():
        raise FileError(f"{target}: is a folder. Name a file in it.")
    return target


@contextmanager
def replacing(path: Source) -> Iterator[Path]:
    """Write to a temporary neighbour that takes the place of `path` only when all went well.

    >>> import tempfile; target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    target = check_target(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    except OSError as error:
        raise FileError(
            f"{target}: cannot be written ({error.strerror or error}). "
            "Check the disk and its permissions."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


# --- the formats ---------------------------------------------------------------------------


def _split(source: Source) -> tuple[Path, str | None]:
    """`FILE.npz:KEY` into its two parts."""
    text = os.fspath(source)
    if ".npz:" in text:
        file, _, key = text.rpartition(":")
        return Path(file), key
    return Path(text), None


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Turn whatever a library raises about a file into one sentence about that file."""
    try:
        yield
    except FastFillError:
        raise
    except FileNotFoundError:
        raise FileError(f"{name}: no such file. Check the path.") from None
    except IsADirectoryError:
        raise FileError(f"{name}: is a folder. Name a .npy, .npz or .parquet file.") from None
    except PermissionError:
        raise FileError(f"{name}: may not be read by this user.") from None
    except Exception as error:  # zipfile, zlib, struct, NumPy and pyarrow each raise their own
        raise FileError(
            f"{name}: cannot be read, it is truncated or of another format ({error}). "
            "Write it again; .npy, .npz and .parquet are understood."
        ) from None


def _open_array(path: Path, key: str | None) -> np.memmap[Any, Any] | _ZipStream:
    if path.is_dir():
        raise IsADirectoryError(path)
    if path.suffix == ".npy":
        return _open_npy(path)
    if path.suffix == ".npz":
        return _open_npz(path, key)
    if not path.exists():
        raise FileNotFoundError(path)
    raise FileError(f"{path}: unknown format {path.suffix!r}. Use .npy, .npz or .parquet.")


def _windows(path: Path, array: np.memmap[Any, Any]) -> Callable[[int], Iterator[Array]]:
    """Blocks of a mapped file, each mapped for itself: what has been read leaves the memory."""

    def blocks(rows: int) -> Iterator[Array]:
        if not array.flags.c_contiguous:  # stored column by column: a block is scattered
            yield from _slices(array, rows)
            return
        for start in range(0, len(array), rows):
            shape = (min(rows, len(array) - start), *array.shape[1:])
            offset = array.offset + start * array.strides[0]
            yield np.memmap(path, array.dtype, "r", offset, shape)

    return blocks


def _slices(array: Array, rows: int) -> Iterator[Array]:
    for start in range(0, len(array), rows):
        yield array[start : start + rows]


def _open_npy(path: Path) -> np.memmap[Any, Any]:
    with path.open("rb") as file:
        _check_no_objects(_npy_header(file)[2], str(path))
    return npy.open_memmap(path, mode="r")


def _open_npz(path: Path, key: str | None) -> np.memmap[Any, Any] | _ZipStream:
    with zipfile.ZipFile(path) as archive:
        members = archive.namelist()
        names = [name.removesuffix(".npy") for name in members if name.endswith(".npy")]
        if not names:
            raise FileError(f"{path}: holds no arrays. Write it with numpy.savez.")
        if key is None and len(names) == 1:
            key = names[0]
        if key is None or key not in names:
            wrong = "holds several arrays" if key is None else f"has no array '{key}'"
            raise FileError(f"{path}: {wrong}. Name one as {path}:KEY, of {some(names, 20)}.")
        info = archive.getinfo(f"{key}.npy")
        with archive.open(info) as member:
            shape, fortran, dtype = _npy_header(member)
    _check_no_objects(dtype, f"{path}:{key}")
    if info.compress_type == zipfile.ZIP_STORED and shape:
        with path.open("rb") as file:
            file.seek(info.header_offset + 26)
            name_len, extra_len = struct.unpack("<HH", file.read(4))
            file.seek(name_len + extra_len, 1)
            _npy_header(file)
            offset = file.tell()
        kind: Literal["F", "C"] = "F" if fortran else "C"
        return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order=kind)
    return _ZipStream(path, f"{key}.npy", shape, fortran, dtype)


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(file)
    reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return reader(file)


def _check_no_objects(dtype: np.dtype[Any], name: str) -> None:
    if dtype.hasobject:
        raise FileError(f"{name}: holds Python objects, which are not loaded. Save numbers.")


@dataclass(frozen=True)
class _ZipStream:
    """A compressed array inside an `.npz`: read from front to back."""

    path: Path
    member: str
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    def read(self) -> Array:
        with np.load(self.path, allow_pickle=False) as archive:
            return archive[self.member.removesuffix(".npy")]  # type: ignore[no-any-return]

    def blocks(self, rows: int) -> Iterator[Array]:
        if self.fortran:  # stored column by column: cannot be read row by row
            yield from _slices(self.read(), rows)
            return
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
            _npy_header(file)
            for start in range(0, self.shape[0], rows):
                count = min(rows, self.shape[0] - start)
                data = file.read(count * row_bytes)
                yield np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])


def _open_parquet(path: Path) -> VectorFile:
    with _parquet(path) as file:
        _check_column(path, file, "vector")
        rows = file.metadata.num_rows
        first = next(file.iter_batches(batch_size=1, columns=["vector"]), None)
    if first is None or rows == 0:
        raise ShapeError(f"{path}: is empty. Give at least one vector.")
    one = _vectors(first.column(0), path)
    dim = one.shape[1]
    check_layout((rows, dim), one.dtype, str(path))

    def blocks(size: int) -> Iterator[Array]:
        start = 0
        with _parquet(path) as file:
            for batch in file.iter_batches(batch_size=size, columns=["vector"]):
                yield _vectors(batch.column(0), path, start, dim)
                start += len(batch)

    return VectorFile(str(path), rows, dim, blocks)


def _read_parquet(path: Path, name: str, labels: Array | None) -> Features:
    with _parquet(path) as file:
        _check_column(path, file, "vector")
        known = [key for key in ("id", "label", "group") if key in file.schema_arrow.names]
        table = file.read(["vector", *known])
    if table.num_rows == 0:
        raise ShapeError(f"{path}: is empty. Give at least one vector.")
    columns = {key: _column(table[key], path, key) for key in known}
    return Features(
        _vectors(table["vector"].combine_chunks(), path),
        ids=columns.get("id"),
        labels=columns.get("label") if labels is None else labels,
        groups=columns.get("group"),
        name=name,
    )


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


def _vectors(column: Any, path: Path, first_row: int = 0, dim: int | None = None) -> Array:
    """List column → (n, d); every list must be present and of one length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_kind(column.type) for is_kind in lists):
        raise FileError(f"{path}: column 'vector' holds {column.type}, not lists of numbers.")
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    known = lengths[lengths >= 0]
    expected = dim if dim is not None else int(known[0]) if len(known) else 0
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
