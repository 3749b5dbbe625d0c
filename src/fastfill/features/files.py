"""Reading vectors and columns from `.npy`, `.npz` and Parquet, whole or block by block.

A source is written `FILE.npy`, `FILE.npz:KEY` or `FILE.parquet` (columns `id`, `vector`, and
optionally `label` and `group`). Nothing that is read here can execute code.
"""

from __future__ import annotations

import numpy as np

from fastfill.errors import ShapeError
from fastfill.features.npy_files import ZipStream, array_names, open_array, window_blocks
from fastfill.features.pairs import Pairs, matching_rows
from fastfill.features.parquet_files import open_parquet, read_parquet, read_parquet_column
from fastfill.features.sources import Source, VectorFile, file_errors, split_source
from fastfill.features.values import Array, Features, Matrix, as_matrix, check_layout
from fastfill.features.views import PairViews

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
    view through both models; the first is the plain look (see `Pairs.from_views`). Side-information
    and views are found by id too.

    >>> import tempfile; folder = tempfile.mkdtemp()
    >>> for name, dim in (("old", 2), ("new", 3)):
    ...     np.save(f"{folder}/{name}.npy", np.ones((5, dim)))
    >>> read_pairs(f"{folder}/old.npy", f"{folder}/new.npy")
    Pairs(5 × 2→3)
    """
    if 3 in (_dimensions(old), _dimensions(new)):
        return _read_views(old, new, labels, side)
    pairs = _pair(read_features(old), read_features(new, labels))
    return pairs if side is None else Pairs(pairs.old, pairs.new, _read_side(side, pairs.old))


def _pair(old: Features, new: Features) -> Pairs:
    """By id where both sides name their items, row by row where they do not."""
    return Pairs.match(old, new) if old.ids_given and new.ids_given else Pairs(old, new)


def _read_side(side: Source, items: Features) -> Matrix:
    """Side-information of these items, found by id where both name theirs."""
    read = read_features(side)
    named = read.ids_given and items.ids_given
    return read.vectors[matching_rows(items, read)] if named else read.vectors


def _dimensions(source: Source) -> int:
    """2 where a file holds vectors, 3 where it holds views of them."""
    path, key = split_source(source)
    if path.suffix == ".parquet":
        return 2
    with file_errors(str(source)):
        return len(open_array(path, key).shape)


def _read_views(old: Source, new: Source, labels: Source | None, side: Source | None) -> Pairs:
    """Pairs of which there are several views, whose first is the plain look."""
    for here, there in ((old, new), (new, old)):
        if _dimensions(here) == 2:
            raise ShapeError(
                f"{there} holds views (views, rows, dimensions) and {here} holds none: "
                "give the same views under both models."
            )
    views, plain_old = _read_looks(old)
    new_views, plain_new = _read_looks(new, labels)
    pairs = _pair(plain_old, plain_new)
    new_views = _in_order(new_views, plain_new, pairs.old)
    side_views, plain = None, None
    if side is not None and _dimensions(side) == 3:
        side_views = _in_order(*_read_looks(side), pairs.old)
        plain = side_views[0]
    elif side is not None:
        plain = _read_side(side, pairs.old)
    names = (str(old), str(new), str(side))
    several = PairViews.of_arrays(views, new_views, side_views, names=names)
    return Pairs(pairs.old, pairs.new, plain, several if several.count > 1 else None)


def _read_looks(source: Source, labels: Source | None = None) -> tuple[Array, Features]:
    """All views of a file, and the first with what else is known of its rows."""
    views = _read_array(source)
    if len(views) == 0:
        raise ShapeError(f"{source}: holds no views, its shape is {views.shape}.")
    column = None if labels is None else read_column(labels)
    return views, Features(views[0], _read_ids(source), column, name=str(source))


def _in_order(views: Array, named: Features, items: Features) -> Array:
    """Views with the rows in the order of these items, where both name theirs."""
    if not (named.ids_given and items.ids_given) or np.array_equal(named.ids, items.ids):
        return views
    return views[:, matching_rows(items, named)]


def read_matrix(source: Source) -> Matrix:
    """Read a matrix alone: a classifier head, side-information."""
    return as_matrix(read_features(source).vectors, str(source))


def read_plain_look(source: Source) -> Matrix:
    """Read a matrix, or the first of several views: the vectors as the gallery has them.

    >>> import tempfile; file = f"{tempfile.mkdtemp()}/views.npy"
    >>> np.save(file, np.ones((20, 5, 3)))
    >>> read_plain_look(file).shape
    (5, 3)
    """
    views = _dimensions(source) == 3
    return _read_looks(source)[1].vectors if views else read_matrix(source)


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
