"""Reading vectors and columns from `.npy`, `.npz` and Parquet, whole or block by block.

A source is written `FILE.npy`, `FILE.npz:KEY` or `FILE.parquet` (columns `id`, `vector`, and
optionally `label` and `group`). Nothing that is read here can execute code.
"""

from __future__ import annotations

import numpy as np

from fastfill.errors import ShapeError
from fastfill.features.npy_files import ZipStream, array_names, open_array, window_blocks
from fastfill.features.pairs import Pairs
from fastfill.features.parquet_files import open_parquet, read_parquet, read_parquet_column
from fastfill.features.sources import Source, VectorFile, file_errors, split_source
from fastfill.features.values import Array, Features, Matrix, as_matrix, check_layout

IDS = "ids"  # the array of an .npz that names its rows


def open_vectors(source: Source) -> VectorFile:
    """Open a matrix for reading in blocks; only its shape is read now.

    >>> import tempfile; file = f"{tempfile.mkdtemp()}/a.npy"
    >>> np.save(file, np.ones((5, 3)))
    >>> [block.shape for block in open_vectors(file).blocks(rows=2)]
    [(2, 3), (2, 3), (1, 3)]
    """
    path, key = split_source(source)
    with file_errors(str(source)):
        if path.suffix == ".parquet":
            return open_parquet(path)
        array = open_array(path, key)
        check_layout(array.shape, array.dtype, str(source))
        blocks = array.blocks if isinstance(array, ZipStream) else window_blocks(path, array)
        return VectorFile(str(source), array.shape[0], array.shape[1], blocks)


def read_features(source: Source, labels: Source | None = None) -> Features:
    """Read vectors, and from Parquet also ids, labels and groups, from `.npz` an array `ids`.

    A float32 `.npy` or uncompressed `.npz` is memory-mapped: pages are read when they are used.

    >>> import tempfile; file = f"{tempfile.mkdtemp()}/a.npz"
    >>> np.savez(file, photos=np.ones((5, 3)), cats=np.ones((2, 3)))
    >>> read_features(f"{file}:photos")
    Features(5 × 3)
    """
    path, _ = split_source(source)
    given = None if labels is None else read_column(labels)
    if path.suffix == ".parquet":
        with file_errors(str(source)):
            return read_parquet(path, str(source), given)
    return Features(_read_array(source), _read_ids(source), given, name=str(source))


def _read_ids(source: Source) -> Array | None:
    """The array `ids` of an `.npz`, where there is one beside the vectors."""
    path, key = split_source(source)
    if path.suffix != ".npz" or key == IDS:
        return None
    with file_errors(str(source)):
        return read_column(f"{path}:{IDS}") if IDS in array_names(path) else None


def _read_array(source: Source) -> Array:
    """The whole array of a `.npy` or `.npz`, mapped into memory where that is possible."""
    with file_errors(str(source)):
        array = open_array(*split_source(source))
        return array.read() if isinstance(array, ZipStream) else array


def read_pairs(
    old: Source, new: Source, labels: Source | None = None, side: Source | None = None
) -> Pairs:
    """Read the same items under both models, matched by id where both files have ids.

    Arrays of three dimensions (views, rows, dimensions) hold several views of each item, the same
    view through both models; the first is the plain look (see `Pairs.from_views`).

    >>> import tempfile; folder = tempfile.mkdtemp()
    >>> for name, dim in (("old", 2), ("new", 3)):
    ...     np.save(f"{folder}/{name}.npy", np.ones((5, dim)))
    >>> read_pairs(f"{folder}/old.npy", f"{folder}/new.npy")
    Pairs(5 × 2→3)
    """
    if 3 in (_dimensions(old), _dimensions(new)):
        return _read_views(old, new, labels, side)
    a, b = read_features(old), read_features(new, labels)
    pairs = Pairs.match(a, b) if a.ids_given and b.ids_given else Pairs(a, b)
    return pairs if side is None else Pairs(pairs.old, pairs.new, read_matrix(side))


def _dimensions(source: Source) -> int:
    """2 where a file holds vectors, 3 where it holds views of them."""
    path, key = split_source(source)
    if path.suffix == ".parquet":
        return 2
    with file_errors(str(source)):
        return len(open_array(path, key).shape)


def _read_views(old: Source, new: Source, labels: Source | None, side: Source | None) -> Pairs:
    """Pairs of which there are several views."""
    for here, there in ((old, new), (new, old)):
        if _dimensions(here) == 2:
            raise ShapeError(
                f"{there} holds views (views, rows, dimensions) and {here} holds none: "
                "give the same views under both models."
            )
    extra = None
    if side is not None:
        extra = _read_array(side) if _dimensions(side) == 3 else read_matrix(side)
    given = None if labels is None else read_column(labels)
    names = (str(old), str(new))
    return Pairs.from_views(
        _read_array(old), _read_array(new), labels=given, side=extra, names=names
    )


def read_matrix(source: Source) -> Matrix:
    """Read a matrix alone: a classifier head, side-information."""
    return as_matrix(read_features(source).vectors, str(source))


def read_column(source: Source, column: str = "label") -> Array:
    """Read one entry per row (labels, groups, ids) from `.npy`, `.npz:KEY` or Parquet.

    >>> import tempfile; file = f"{tempfile.mkdtemp()}/labels.npy"
    >>> np.save(file, [7, 9])
    >>> read_column(file).tolist()
    [7, 9]
    """
    path, key = split_source(source)
    with file_errors(str(source)):
        if path.suffix == ".parquet":
            return read_parquet_column(path, column)
        array = open_array(path, key)
        whole = array.read() if isinstance(array, ZipStream) else np.asarray(array)
        if whole.ndim != 1:
            raise ShapeError(f"{source}: expected one entry per row, got shape {whole.shape}.")
        return whole
