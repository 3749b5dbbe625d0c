"""Arrays in `.npy` and `.npz` files, mapped into memory or read from front to back.

Nothing that is read here can execute code: arrays of Python objects are refused.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy

from fastfill.errors import FileError, some
from fastfill.features.values import Array


def open_array(path: Path, key: str | None) -> np.memmap[Any, Any] | ZipStream:
    """An array of a file, of an `.npz` the one named `key`: mapped, or a stream if compressed."""
    if path.is_dir():
        raise IsADirectoryError(path)
    if path.suffix == ".npy":
        return _open_npy(path)
    if path.suffix == ".npz":
        return _open_npz(path, key)
    if not path.exists():
        raise FileNotFoundError(path)
    raise FileError(f"{path}: unknown format {path.suffix!r}. Use .npy, .npz or .parquet.")


def window_blocks(path: Path, array: np.memmap[Any, Any]) -> Callable[[int], Iterator[Array]]:
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


def array_names(path: Path) -> list[str]:
    """What the arrays of an `.npz` are called."""
    with zipfile.ZipFile(path) as archive:
        members = archive.namelist()
    return [name.removesuffix(".npy") for name in members if name.endswith(".npy")]


def _open_npz(path: Path, key: str | None) -> np.memmap[Any, Any] | ZipStream:
    names = array_names(path)
    if not names:
        raise FileError(f"{path}: holds no arrays. Write it with numpy.savez.")
    with zipfile.ZipFile(path) as archive:
        vectors = [name for name in names if name != "ids"] or names
        if key is None and len(vectors) == 1:
            key = vectors[0]
        if key is None or key not in names:
            wrong = "holds several arrays" if key is None else f"has no array '{key}'"
            raise FileError(f"{path}: {wrong}. Name one as {path}:KEY, of {some(names, 20)}.")
        info = archive.getinfo(f"{key}.npy")
        with archive.open(info) as member:
            shape, fortran, dtype = _npy_header(member)
    _check_no_objects(dtype, f"{path}:{key}")
    if info.compress_type == zipfile.ZIP_STORED and shape:
        kind: Literal["F", "C"] = "F" if fortran else "C"
        offset = _data_offset(path, info)
        return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order=kind)
    return ZipStream(path, f"{key}.npy", shape, fortran, dtype)


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where the numbers of an uncompressed member begin in the archive."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        name_len, extra_len = struct.unpack("<HH", file.read(4))
        file.seek(name_len + extra_len, 1)
        _npy_header(file)
        return file.tell()


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(file)
    reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return reader(file)


def _check_no_objects(dtype: np.dtype[Any], name: str) -> None:
    if dtype.hasobject:
        raise FileError(f"{name}: holds Python objects, which are not loaded. Save numbers.")


@dataclass(frozen=True)
class ZipStream:
    """A compressed array inside an `.npz`: read from front to back."""

    path: Path
    member: str
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    def read(self) -> Array:
        """The whole array."""
        with np.load(self.path, allow_pickle=False) as archive:
            return archive[self.member.removesuffix(".npy")]  # type: ignore[no-any-return]

    def blocks(self, rows: int) -> Iterator[Array]:
        """The array in blocks of at most `rows` rows."""
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
