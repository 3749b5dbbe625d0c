"""What can be read: how a source is written, a matrix in a file, and errors about files.

A source is written `FILE.npy`, `FILE.npz:KEY` or `FILE.parquet`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastfill.errors import FastFillError, FileError
from fastfill.features.values import Array, Matrix, check_finite

Source = str | os.PathLike[str]


def split_source(source: Source) -> tuple[Path, str | None]:
    """`FILE.npz:KEY` into its two parts."""
    text = os.fspath(source)
    if ".npz:" in text:
        file, _, key = text.rpartition(":")
        return Path(file), key
    return Path(text), None


@contextmanager
def file_errors(name: str) -> Iterator[None]:
    """Turn whatever a library raises about a file into one sentence about that file."""
    try:
        yield
    except FastFillError:
        raise
    except FileNotFoundError:
        raise FileError(f"{name}: no such file. Check the path.") from None
    except IsADirectoryError:
        raise FileError(
            f"{name}: is a folder. Name a .npy, .npz or .parquet file; folders of Parquet files "
            "are taken by fastfill transform and order, and with --engine by align, backfill and "
            "curve."
        ) from None
    except PermissionError:
        raise FileError(f"{name}: may not be read by this user.") from None
    except Exception as error:  # zipfile, zlib, struct, NumPy and pyarrow each raise their own
        raise FileError(
            f"{name}: cannot be read, it is truncated or of another format ({error}). "
            "Write it again; .npy, .npz and .parquet are understood."
        ) from None


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
        with file_errors(self.name):
            for block in self._blocks(rows):
                with np.errstate(over="ignore"):
                    matrix = np.ascontiguousarray(block, dtype=np.float32)
                check_finite(matrix, self.name, first_row=start)
                start += len(matrix)
                yield matrix
