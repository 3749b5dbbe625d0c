"""Mapping a file of any size, one block in memory at a time."""

from __future__ import annotations

import itertools
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fastfill.align.alignment import Alignment
from fastfill.align.values import Aligned
from fastfill.errors import FileError, ShapeError
from fastfill.features import Matrix, Source, VectorFile, open_vectors, replacing

ROWS = 16_384  # per block

Tick = Callable[[int, int], None]  # rows done, rows in all


def transform_file(
    alignment: Alignment,
    old: Source,
    output: Source,
    *,
    side: Source | None = None,
    estimates: bool = False,
    tick: Tick | None = None,
) -> int:
    """Write `vectors` and `variance` of a whole file to an `.npz`; returns the number of rows.

    The vectors are those to serve; with `estimates` they are h itself, without the penalty.
    """
    if Path(output).suffix != ".npz":
        raise FileError(f"{output}: the aligned vectors are written as .npz. Name it OUT.npz.")
    source = open_vectors(old)
    extra = None if side is None else open_vectors(side)
    if extra is not None and extra.rows != source.rows:
        raise ShapeError(
            f"{extra.name} has {extra.rows:,} rows and {source.name} has {source.rows:,}: "
            "side-information belongs to the same items in the same order."
        )
    blocks = _aligned(alignment, source, extra)
    parts = ((one.h if estimates else one.vectors, one.variance) for one in blocks)
    with replacing(output) as target:
        beside = target.with_suffix(".variance")  # collected while the vectors are written
        try:
            done = _write(target, beside, parts, (source.rows, alignment.new_dim), tick)
        finally:
            beside.unlink(missing_ok=True)
        if done != source.rows:
            raise FileError(f"{source.name}: changed while it was read. Start again.")
    return source.rows


def _write(
    target: Path,
    beside: Path,
    parts: Iterable[tuple[Matrix, NDArray[np.float32]]],
    shape: tuple[int, int],
    tick: Tick | None,
) -> int:
    """Write vectors and variances block by block; returns the number of rows that there were."""
    done = 0
    with (
        zipfile.ZipFile(target, "w", allowZip64=True) as archive,
        beside.open("w+b") as variances,
    ):
        with archive.open("vectors.npy", "w", force_zip64=True) as file:
            _header(file, shape)
            for vectors, variance in parts:
                file.write(np.ascontiguousarray(vectors).data)
                variances.write(variance.tobytes())
                done += len(vectors)
                if tick is not None:
                    tick(done, shape[0])
        with archive.open("variance.npy", "w", force_zip64=True) as file:
            _header(file, shape[:1])
            variances.seek(0)
            shutil.copyfileobj(variances, file, 1 << 20)
    return done


def _aligned(alignment: Alignment, old: VectorFile, side: VectorFile | None) -> Iterator[Aligned]:
    extras = itertools.repeat(None) if side is None else side.blocks(ROWS)
    done = 0
    for block, extra in zip(old.blocks(ROWS), extras, strict=False):
        yield alignment.mapped(block, extra, old.name, done)
        done += len(block)


def _header(file: IO[bytes], shape: tuple[int, ...]) -> None:
    npy.write_array_header_2_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
