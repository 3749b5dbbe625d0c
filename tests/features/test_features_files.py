"""Reading vectors from files: formats, memory-mapping, blocks, and every way a file can be bad."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastfill.errors import (
    FastFillError,
    FileError,
    IdError,
    LabelError,
    NonFiniteError,
    ShapeError,
)
from fastfill.features import (
    open_vectors,
    read_column,
    read_features,
    read_matrix,
    read_pairs,
)

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3) + 1


def write_npy(folder: Path, values: Any = VECTORS) -> str:
    np.save(folder / "a.npy", values)
    return str(folder / "a.npy")


def write_npz(folder: Path, values: Any = VECTORS) -> str:
    np.savez(folder / "a.npz", vectors=values, other=np.zeros(3))
    return str(folder / "a.npz:vectors")


def write_npz_compressed(folder: Path, values: Any = VECTORS) -> str:
    np.savez_compressed(folder / "c.npz", vectors=values)
    return str(folder / "c.npz:vectors")


def write_parquet(folder: Path, values: Any = VECTORS, **columns: Any) -> str:
    """Lists of one length, `values` being an array or an Arrow array."""
    if not isinstance(values, pa.Array):
        flat = pa.array(np.ascontiguousarray(values).ravel())
        values = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    pq.write_table(pa.table({"vector": values, **columns}), folder / "a.parquet", row_group_size=5)
    return str(folder / "a.parquet")


WRITERS = {
    "npy": write_npy,
    "npz": write_npz,
    "npz compressed": write_npz_compressed,
    "parquet": write_parquet,
}
every_format = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())


def drain(source: str) -> np.ndarray:
    """All blocks of a file, in small portions."""
    return np.concatenate([block.copy() for block in open_vectors(source).blocks(2)])


both_ways = pytest.mark.parametrize(
    "read", [read_features, drain, read_matrix], ids=["whole", "blocks", "matrix"]
)


# --- good files -----------------------------------------------------------------------------


@every_format
@both_ways
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_every_format_and_precision_gives_the_same_float32(
    write: Callable[..., str], read: Callable[..., Any], dtype: str, tmp_path: Path
) -> None:
    """float16, float32 and float64 come out as float32, whole or in blocks, from every format."""
    found = read(write(tmp_path, VECTORS.astype(dtype)))
    vectors = getattr(found, "vectors", found)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, VECTORS)


@given(
    rows=st.integers(1, 23),
    dim=st.integers(1, 4),
    size=st.integers(1, 30),
    kind=st.sampled_from(sorted(WRITERS)),
    dtype=st.sampled_from(["f2", "f4", "f8", ">f4", "i4"]),
    order=st.sampled_from("CF"),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_blocks_together_are_the_whole(
    tmp_path: Path, rows: int, dim: int, size: int, kind: str, dtype: str, order: Any
) -> None:
    """Blocks of any size, put together, are what reading the whole file gives."""
    native = dtype if kind != "parquet" else dtype.lstrip(">")
    values = np.random.default_rng(rows).integers(-99, 99, (rows, dim)).astype(native, order=order)
    source = WRITERS[kind](tmp_path, values)
    opened = open_vectors(source)
    blocks = [block.copy() for block in opened.blocks(size)]
    assert (opened.rows, opened.dim) == (rows, dim)
    assert all(block.dtype == np.float32 for block in blocks)
    assert [len(block) for block in blocks[:-1]] == [size] * (len(blocks) - 1)
    np.testing.assert_array_equal(np.concatenate(blocks), read_features(source).vectors)
    np.testing.assert_array_equal(np.concatenate(blocks), values)


@pytest.mark.parametrize("write", [write_npy, write_npz], ids=["npy", "npz"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_float32_files_are_memory_mapped(
    write: Callable[..., str], order: Any, tmp_path: Path
) -> None:
    """A float32 .npy and an uncompressed .npz member are views of the file, in either order."""
    vectors = read_features(write(tmp_path, np.asarray(VECTORS, order=order))).vectors
    assert isinstance(vectors, np.memmap)
    assert not vectors.flags.writeable
    np.testing.assert_array_equal(vectors, VECTORS)


def test_the_only_array_of_an_npz_needs_no_key(tmp_path: Path) -> None:
    """FILE.npz alone is enough where it holds one array."""
    np.savez(tmp_path / "one.npz", anything=VECTORS)
    np.testing.assert_array_equal(read_features(tmp_path / "one.npz").vectors, VECTORS)


def test_parquet_brings_ids_labels_and_groups(tmp_path: Path) -> None:
    """Columns id, label and group become ids, labels and groups; others are not looked at."""
    source = write_parquet(
        tmp_path,
        id=pa.array(["a", "b", "c", "d"]),
        label=pa.array([1, 2, 1, 2]),
        group=pa.array(["x", "x", "y", "y"]).dictionary_encode(),
        remark=pa.array([None, "free", "text", None]),
    )
    features = read_features(source)
    assert features.ids.tolist() == ["a", "b", "c", "d"]
    assert features.labels is not None
    assert features.labels.tolist() == [1, 2, 1, 2]
    assert features.groups is not None
    assert features.groups.tolist() == ["x", "x", "y", "y"]
    assert read_column(source, "group").tolist() == ["x", "x", "y", "y"]


def test_labels_from_a_file_of_their_own(tmp_path: Path) -> None:
    """Labels may come from .npy, .npz:KEY or Parquet, and win over the Parquet's own."""
    source = write_parquet(tmp_path, label=pa.array([0, 0, 0, 0]))
    np.save(tmp_path / "y.npy", [1, 2, 3, 4])
    np.savez_compressed(tmp_path / "y.npz", train=[1, 2, 3, 4], test=[9])
    pq.write_table(pa.table({"label": [1, 2, 3, 4]}), tmp_path / "y.parquet")
    for labels in ("y.npy", "y.npz:train", "y.parquet"):
        found = read_features(source, tmp_path / labels).labels
        assert found is not None
        assert found.tolist() == [1, 2, 3, 4]


def test_parquet_pairs_are_matched_by_id(tmp_path: Path) -> None:
    """Two Parquet files are paired by id, two arrays by row; labels stay with their vectors."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old = write_parquet(tmp_path / "old", id=pa.array([1, 2, 3, 4]))
    new = write_parquet(tmp_path / "new", VECTORS[::-1], id=pa.array([4, 3, 2, 1]))
    np.save(tmp_path / "y.npy", [40, 30, 20, 10])
    pairs = read_pairs(old, new, tmp_path / "y.npy")
    np.testing.assert_array_equal(pairs.new.vectors, VECTORS)
    assert pairs.labels is not None
    assert pairs.labels.tolist() == [10, 20, 30, 40]
    by_row = read_pairs(write_npy(tmp_path / "old"), write_npy(tmp_path / "new", VECTORS[::-1]))
    np.testing.assert_array_equal(by_row.new.vectors, VECTORS[::-1])


def test_side_information_is_read_along(tmp_path: Path) -> None:
    """Pairs carry the side-information of a third file."""
    source = write_npy(tmp_path)
    pairs = read_pairs(source, source, side=source)
    assert pairs.side is not None
    np.testing.assert_array_equal(pairs.side, VECTORS)


# --- bad files ------------------------------------------------------------------------------


def refused(read: Callable[..., Any], source: Any, kind: type[Exception], *said: str) -> None:
    """The file is refused with this class, in words that name it and the parts given."""
    with pytest.raises(FastFillError) as caught:
        read(source)
    message = str(caught.value)
    assert type(caught.value) is kind, message
    for part in (str(source).split(":")[0], *said):
        assert part in message
    assert message.endswith("."), message


@every_format
@both_ways
def test_truncated_files_are_refused(
    write: Callable[..., str], read: Callable[..., Any], tmp_path: Path
) -> None:
    """A file cut off anywhere is a FileError that names it and says to write it again."""
    source = write(tmp_path, np.ones((50, 8), dtype=np.float32))
    path = Path(source.removesuffix(":vectors"))
    whole = path.read_bytes()
    for keep in (0, 4, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:keep])
        refused(read, source, FileError, "truncated or of another format", "Write it again")


@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
@both_ways
def test_foreign_files_are_refused(read: Callable[..., Any], suffix: str, tmp_path: Path) -> None:
    """A text under another name is a FileError, and nobody is told to load it unsafely."""
    source = tmp_path / f"text.{suffix}"
    source.write_text("id,vector\n1,0.5 0.5\n" * 9)
    refused(read, source, FileError, "of another format", "Write it again")
    with pytest.raises(FileError) as caught:
        read(source)
    assert "pickle" not in str(caught.value)


@both_ways
def test_an_npz_named_npy_is_refused(read: Callable[..., Any], tmp_path: Path) -> None:
    """An archive under the name of an array is of another format."""
    np.savez(tmp_path / "a.npz", vectors=VECTORS)
    source = (tmp_path / "a.npz").rename(tmp_path / "b.npy")
    refused(read, source, FileError, "of another format")


class Bomb:
    """Unpickling it makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (self.target,)


@both_ways
def test_pickled_objects_are_never_executed(read: Callable[..., Any], tmp_path: Path) -> None:
    """An array of Python objects is refused with a clear sentence, and its pickle does not run."""
    bomb = np.array([[Bomb(tmp_path / "exploded")]], dtype=object)
    np.save(tmp_path / "a.npy", bomb, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=bomb)
    np.savez_compressed(tmp_path / "c.npz", x=bomb)
    for name in ("a.npy", "a.npz", "c.npz"):
        refused(read, tmp_path / name, FileError, "holds Python objects, which are not loaded")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("name", ["no.npy", "no.npz", "no.npz:key", "no.parquet", "no.csv"])
@both_ways
def test_missing_files_are_named(read: Callable[..., Any], name: str, tmp_path: Path) -> None:
    """A path that leads nowhere is a FileError that says so."""
    refused(read, tmp_path / name, FileError, "no such file", "Check the path")


@pytest.mark.parametrize("name", ["f", "f.npy", "f.npz", "f.parquet"])
@both_ways
def test_a_folder_is_not_a_file(read: Callable[..., Any], name: str, tmp_path: Path) -> None:
    """A folder in the place of a file is a FileError that says what to name instead."""
    (tmp_path / name).mkdir()
    refused(
        read, tmp_path / name, FileError, "is a folder", "Name a .npy, .npz or .parquet file",
        "folders of Parquet files are taken by fastfill transform and order",
    )  # fmt: skip


@both_ways
def test_unknown_formats_are_named(read: Callable[..., Any], tmp_path: Path) -> None:
    """A file of another suffix is a FileError that lists the formats."""
    (tmp_path / "a.csv").write_text("1,2")
    refused(read, tmp_path / "a.csv", FileError, "unknown format '.csv'", ".npy, .npz or .parquet")


@both_ways
def test_an_npz_key_must_exist_and_be_clear(read: Callable[..., Any], tmp_path: Path) -> None:
    """A missing or ambiguous key names the file, the way to write it and the keys there are."""
    write_npz(tmp_path)
    source = tmp_path / "a.npz"
    refused(read, source, FileError, "holds several arrays", f"{source}:KEY, of vectors, other")
    refused(read, f"{source}:old", FileError, "has no array 'old'", "of vectors, other")
    with zipfile.ZipFile(tmp_path / "z.npz", "w") as archive:
        archive.writestr("readme.txt", "no arrays here")
    refused(read, tmp_path / "z.npz", FileError, "holds no arrays", "numpy.savez")


@every_format
@both_ways
def test_non_finite_rows_of_a_file_are_named(
    write: Callable[..., str], read: Callable[..., Any], tmp_path: Path
) -> None:
    """NaN and numbers beyond float32 are found in every format, with their row in the file."""
    values = np.ones((9, 3))
    values[5, 1], values[8, 0] = np.nan, 1e300
    source = write(tmp_path, values)
    first = "rows 5" if read is drain else "rows 5, 8"
    refused(read, source, NonFiniteError, first, "embed their items again")


@pytest.mark.parametrize("write", [write_npy, write_npz, write_npz_compressed])
@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.ones(5, dtype=np.float32), "got shape (5,)"),
        (np.ones((2, 2, 2), dtype=np.float32), "got shape (2, 2, 2)"),
        (np.ones((0, 3), dtype=np.float32), "is empty, shape (0, 3)"),
        (np.array([["1", "2"]]), "got dtype <U1"),
        (np.ones((2, 2), dtype=np.complex64), "got dtype complex64"),
    ],
    ids=["1d", "3d", "empty", "texts", "complex"],
)
@both_ways
def test_arrays_that_are_no_matrix_are_refused(
    write: Callable[..., str], read: Callable[..., Any], values: Any, said: str, tmp_path: Path
) -> None:
    """Shape and dtype are checked the same way, whole or in blocks."""
    refused(read, write(tmp_path, values), ShapeError, said)


LISTS = pa.list_(pa.float32())


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        (pa.array([[1.0], [1.0], [1.0], [1.0, 2.0]], LISTS), ShapeError, "rows 3 are missing or"),
        (pa.array([[1.0], None, [1.0]], LISTS), ShapeError, "rows 1 are missing or not 1 long"),
        (pa.array([None, [1.0]], LISTS), ShapeError, "rows 0 are missing"),
        (pa.array([None, [1.0]], pa.list_(pa.float32(), 1)), ShapeError, "rows 0 are missing"),
        (pa.array([[1.0, 1.0], [1.0, None]], LISTS), ShapeError, "inside the vectors of rows 1"),
        (pa.array([], LISTS), ShapeError, "is empty"),
        (pa.array([[], []], LISTS), ShapeError, "is empty, shape (2, 0)"),
        (pa.array([["1", "2"]]), ShapeError, "got dtype object"),
        (pa.array([1.0, 2.0]), FileError, "column 'vector' holds double, not lists of numbers"),
    ],
    ids=["ragged", "missing", "first", "fixed", "hole", "norows", "nodims", "texts", "scalars"],
)
@both_ways
def test_bad_vector_columns_are_named(
    read: Callable[..., Any], values: Any, kind: Any, said: str, tmp_path: Path
) -> None:
    """Ragged and missing vectors, holes, texts and scalars in Parquet are named by row."""
    refused(read, write_parquet(tmp_path, values), kind, said)


def test_rows_of_late_parquet_blocks_are_counted_from_the_start(tmp_path: Path) -> None:
    """A ragged vector in a later block is named by its row in the file."""
    lists = pa.array([[1.0]] * 12 + [[1.0, 2.0]], LISTS)
    refused(drain, write_parquet(tmp_path, lists), ShapeError, "rows 12 are missing or not 1 long")


@both_ways
def test_parquet_needs_a_vector_column(read: Callable[..., Any], tmp_path: Path) -> None:
    """Without a column 'vector' the columns there are get named."""
    pq.write_table(pa.table({"id": [1], "embedding": [[1.0]]}), tmp_path / "a.parquet")
    said = ("no column 'vector', only id, embedding", "Rename the column")
    refused(read, tmp_path / "a.parquet", FileError, *said)


@pytest.mark.parametrize("column", ["id", "label", "group"])
def test_null_columns_are_refused(column: str, tmp_path: Path) -> None:
    """A null id, label or group is refused, naming file, column and rows."""
    source = write_parquet(tmp_path, **{column: pa.array([1, None, 3, None])})
    refused(read_features, source, LabelError, f"'{column}' has nothing in rows 1, 3", "Fill or")


def test_duplicate_ids_of_a_file_are_named(tmp_path: Path) -> None:
    """Two rows with one id are an IdError that names the file and the id."""
    source = write_parquet(tmp_path, id=pa.array(["a", "b", "a", "c"]))
    refused(read_features, source, IdError, "duplicate ids a")


def test_unmatched_ids_of_two_files_are_named(tmp_path: Path) -> None:
    """Pairing two files names the one that lacks an item, and the item."""
    (tmp_path / "new").mkdir()
    old = write_parquet(tmp_path, id=pa.array(["a", "b", "c", "d"]))
    new = write_parquet(tmp_path / "new", id=pa.array(["a", "b", "c", "e"]))
    with pytest.raises(IdError) as caught:
        read_pairs(old, new)
    assert f"{new} has no vector for 1 ids of {old}: d." in str(caught.value)


def test_pairs_of_different_lengths_name_both_files(tmp_path: Path) -> None:
    """Files of different row counts are a ShapeError that names both."""
    (tmp_path / "new").mkdir()
    old, new = write_npy(tmp_path), write_npy(tmp_path / "new", VECTORS[:3])
    with pytest.raises(ShapeError) as caught:
        read_pairs(old, new)
    assert f"{old} has 4 rows and {new} has 3" in str(caught.value)


def test_label_files_are_checked(tmp_path: Path) -> None:
    """Labels need one column, of the right length, in a file that can be read."""
    source = write_npy(tmp_path)
    np.save(tmp_path / "y.npy", [1, 2, 3])
    np.save(tmp_path / "y2.npy", [[1, 2]])
    pq.write_table(pa.table({"class": [1]}), tmp_path / "y.parquet")
    with pytest.raises(ShapeError, match=r"a\.npy: labels: 3 entries for 4 vectors"):
        read_features(source, tmp_path / "y.npy")
    refused(read_column, tmp_path / "y2.npy", ShapeError, "one entry per row, got shape (1, 2)")
    refused(read_column, tmp_path / "y.parquet", FileError, "no column 'label', only class")
    refused(read_column, tmp_path / "no.npy", FileError, "no such file")


@every_format
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_never_raises_anything_else(
    write: Callable[..., str], tmp_path: Path, data: st.DataObject
) -> None:
    """Whatever bytes are changed, a file is read or refused with an error of ours."""
    source = write(tmp_path)
    path = Path(source.removesuffix(":vectors"))
    damaged = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    for read in (read_features, drain):
        with contextlib.suppress(FastFillError):
            read(source)
