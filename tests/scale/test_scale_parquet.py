"""Folders of Parquet files: transform and order, killed, resumed and changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastfill.align import Alignment
from fastfill.errors import FileError, NonFiniteError, OrderError
from fastfill.features import Ints, Matrix
from fastfill.order import Order, PolicyInput, arrange, mixed_scores
from fastfill.scale import Piece, order_folder, transform_folder
from fastfill.scale.engines.local import LocalEngine
from fastfill.scale.histogram import bucket_of
from fastfill.scale.operations import AlignmentSpec, vector_array


class StoppingEngine:
    """Does some pieces in this process, then is gone, as a driver that is killed."""

    def __init__(self, pieces: int) -> None:
        self.left = pieces

    def map(self, work: Callable[[Piece], Any], pieces: Sequence[Piece]) -> Iterator[Any]:
        """One piece after the other until it stops."""
        for piece in pieces:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            yield work(piece)


def read(output: Path) -> pa.Table:
    """The rows of an output, in the order of the input."""
    files = json.loads((output / "_fastfill.json").read_text())["files"]
    return pa.concat_tables([pq.read_table(output / file) for file in files])


def matrix(table: pa.Table, column: str) -> Matrix:
    """A column of vectors as a matrix."""
    return np.stack(table[column].to_numpy())


def test_transform_adds_what_the_alignment_gives(
    folder: Path, tmp_path: Path, alignment: Alignment, vectors: Matrix
) -> None:
    """All columns are kept, the added ones are those of one call, and row groups stay."""
    result = transform_folder(alignment, str(folder), str(tmp_path / "out"))
    table, aligned = read(tmp_path / "out"), alignment(vectors)
    assert (result.rows, result.pieces, result.done) == (300, 8, 8)
    assert table.column_names == ["id", "text", "vector", "vector_aligned", "vector_variance"]
    assert table["id"].to_pylist() == list(range(300))
    assert np.allclose(matrix(table, "vector_aligned"), aligned.vectors, atol=1e-6)
    assert np.allclose(table["vector_variance"].to_numpy(), aligned.variance, rtol=1e-5)
    groups = [pq.ParquetFile(file).metadata.num_row_groups for file in tmp_path.glob("out/*.parq*")]
    assert groups == [1] * 8


def test_vectors_are_written_without_a_dictionary(
    folder: Path, tmp_path: Path, alignment: Alignment
) -> None:
    """Their numbers do not repeat; other columns keep theirs."""
    transform_folder(alignment, str(folder), str(tmp_path / "out"))
    file = next(tmp_path.glob("out/*.parquet"))
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    indexed = {each.path_in_schema for each in columns if each.has_dictionary_page}
    assert indexed == {"id", "text", "vector_variance"}


def test_only_the_key_is_kept_where_one_is_named(
    folder: Path, tmp_path: Path, alignment: Alignment
) -> None:
    """The output then has the key and the added columns."""
    transform_folder(alignment, str(folder), str(tmp_path / "out"), key="id")
    assert pq.read_table(tmp_path / "out").column_names == [
        "id",
        "vector_aligned",
        "vector_variance",
    ]


def test_a_killed_run_goes_on_with_what_is_missing(
    folder: Path, tmp_path: Path, alignment: Alignment
) -> None:
    """Finished pieces are not done again, and no row is lost or there twice."""
    out = str(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        transform_folder(alignment, str(folder), out, engine=StoppingEngine(3))
    assert transform_folder(alignment, str(folder), out).done == 5
    assert transform_folder(alignment, str(folder), out).done == 0
    assert pq.read_table(out)["id"].to_pylist() == list(range(300))


def test_a_changed_file_and_another_alignment_are_done_again(
    folder: Path, tmp_path: Path, alignment: Alignment, vectors: Matrix
) -> None:
    """Pieces are known by their content and by the map, and those of former runs disappear."""
    out = tmp_path / "out"
    transform_folder(alignment, str(folder), str(out))
    table = pq.read_table(folder / "a.parquet")
    pq.write_table(table.slice(0, 70), folder / "a.parquet", row_group_size=50)
    assert transform_folder(alignment, str(folder), str(out)).done == 2
    assert read(out)["id"].to_pylist() == [*range(70), *range(120, 300)]
    other = Alignment.from_bytes(alignment.to_bytes())
    other.arrays["out.bias"] = other.arrays["out.bias"] + 1
    assert transform_folder(other, str(folder), str(out)).done == 7
    assert len(list(out.glob("*.parquet"))) == 7


def ranks_of(alignment: Alignment, folder: Path, out: Path, policy: str) -> Ints:
    """The ranks that an order of a folder gives to its rows."""
    order_folder(alignment, str(folder), str(out), policy=policy, seed=5, key="id")
    assert not (out / "_pieces").exists()
    return np.asarray(read(out)["vector_rank"].to_numpy())


def exact_up_to_a_bucket(ranks: Ints, exact: Order) -> bool:
    """Each rank once, and no row as far from its exact rank as its bucket is large."""
    assert exact.scores is not None
    _, which, sizes = np.unique(bucket_of(exact.scores), return_inverse=True, return_counts=True)
    near = np.abs(ranks - exact.ranks) < sizes[which]
    return bool(near.all()) and np.array_equal(np.sort(ranks), np.arange(len(ranks)))


@pytest.mark.parametrize("policy", ["sigma", "random"])
def test_the_order_is_that_of_the_exact_sort_up_to_a_bucket(
    folder: Path, tmp_path: Path, alignment: Alignment, vectors: Matrix, policy: str
) -> None:
    """The same policy in memory gives the same order, but for rows of one bucket."""
    ranks = ranks_of(alignment, folder, tmp_path / "out", policy)
    exact = arrange(policy, PolicyInput(alignment(vectors), seed=5))
    assert exact_up_to_a_bucket(ranks, exact)


def test_mixed_takes_its_turns_by_the_ranks_of_sigma(
    folder: Path, tmp_path: Path, alignment: Alignment
) -> None:
    """Turns are made of the ranks by σ² and the random numbers of the whole set."""
    by_sigma = ranks_of(alignment, folder, tmp_path / "sigma", "sigma")
    chance = np.random.default_rng(5).random(300)
    exact = Order.by_score(mixed_scores(by_sigma / 300, chance))
    assert exact_up_to_a_bucket(ranks_of(alignment, folder, tmp_path / "out", "mixed"), exact)


@pytest.mark.parametrize("policy", ["sigma", "mixed"])
def test_an_order_of_what_was_transformed_maps_nothing_again(
    folder: Path, tmp_path: Path, alignment: Alignment, policy: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The transformed folder gives the ranks of the gallery, from the errors that it holds."""
    table = pq.read_table(folder / "a.parquet")
    pq.write_table(table, folder / "a b.parquet", row_group_size=50)  # other places by file name
    expected = ranks_of(alignment, folder, tmp_path / "expected", policy)
    transform_folder(alignment, str(folder), str(tmp_path / "aligned"), key="id")
    with monkeypatch.context() as patch:
        patch.setattr(AlignmentSpec, "aligned", None)
        ranks = ranks_of(alignment, tmp_path / "aligned", tmp_path / "out", policy)
    assert np.array_equal(ranks, expected)


def test_errors_of_another_alignment_are_not_used(
    folder: Path, tmp_path: Path, alignment: Alignment
) -> None:
    """A folder that another map has transformed is ordered by its old vectors, if it has them."""
    other = Alignment.from_bytes(alignment.to_bytes())
    other.arrays["out.bias"] = other.arrays["out.bias"] + 1
    for key, name in ((None, "all"), ("id", "few")):
        transform_folder(other, str(folder), str(tmp_path / name), key=key)
    expected = ranks_of(alignment, folder, tmp_path / "expected", "sigma")
    assert np.array_equal(
        ranks_of(alignment, tmp_path / "all", tmp_path / "out", "sigma"), expected
    )
    with pytest.raises(FileError, match="has no column vector"):
        order_folder(alignment, str(tmp_path / "few"), str(tmp_path / "not"), policy="sigma")


def test_an_order_that_was_killed_is_the_same_order(
    folder: Path, tmp_path: Path, alignment: Alignment
) -> None:
    """Wherever the run stops, the next one ends with the ranks of one that was not stopped."""
    order_folder(alignment, str(folder), str(tmp_path / "whole"))
    for pieces in (5, 11, 20):
        out = tmp_path / f"after-{pieces}"
        with pytest.raises(KeyboardInterrupt):
            order_folder(alignment, str(folder), str(out), engine=StoppingEngine(pieces))
        order_folder(alignment, str(folder), str(out), engine=LocalEngine(1))
        assert read(out).equals(read(tmp_path / "whole"))


def test_what_cannot_be_used_is_named(folder: Path, tmp_path: Path, alignment: Alignment) -> None:
    """A folder without files, a column that is not there, NaN and a policy of the whole set."""
    (tmp_path / "empty").mkdir()
    out = str(tmp_path / "out")
    with pytest.raises(FileError, match=r"empty: has no \.parquet files"):
        transform_folder(alignment, str(tmp_path / "empty"), out)
    with pytest.raises(FileError, match=r"a\.parquet: has no column old, only id, text, vector"):
        transform_folder(alignment, str(folder), out, column="old")
    with pytest.raises(OrderError, match="'novelty' cannot be worked out piece by piece"):
        order_folder(alignment, str(folder), out, policy="novelty")
    bad = np.full((2, 6), np.nan, dtype=np.float32)
    pq.write_table(pa.table({"vector": vector_array(bad)}), folder / "z.parquet")
    with pytest.raises(NonFiniteError, match=r"z\.parquet, row group 0: NaN .* in rows 0, 1"):
        transform_folder(alignment, str(folder), out)
    done = str(tmp_path / "done")
    transform_folder(alignment, str(folder / "more"), done)
    with pytest.raises(FileError, match="has a column 'vector_aligned' already"):
        transform_folder(alignment, done, str(tmp_path / "again"))


# --- what else is in the output's folder ---------------------------------------------------------


def broken(folder: Path) -> None:
    """A last file whose vectors cannot be used: a run fails after all others."""
    bad = np.full((2, 6), np.nan, dtype=np.float32)
    pq.write_table(pa.table({"vector": vector_array(bad)}), folder / "z.parquet")


def another(alignment: Alignment) -> Alignment:
    """The same map, moved by one."""
    other = Alignment.from_bytes(alignment.to_bytes())
    other.arrays["out.bias"] = other.arrays["out.bias"] + 1
    return other


def test_what_an_unfinished_run_has_left_goes(
    folder: Path, tmp_path: Path, alignment: Alignment
) -> None:
    """A run by one map fails, the next by another is whole: no row is there twice."""
    out = str(tmp_path / "out")
    broken(folder)
    with pytest.raises(NonFiniteError):
        transform_folder(alignment, str(folder), out)
    with pytest.raises(FileError, match=r"out: is not finished \(transform of vector\)"):
        order_folder(alignment, out, str(tmp_path / "order"))
    (folder / "z.parquet").unlink()
    transform_folder(another(alignment), str(folder), out)
    assert pq.read_table(out)["id"].to_pylist() == list(range(300))
    assert order_folder(another(alignment), out, str(tmp_path / "order")).rows == 300


def test_a_finished_folder_with_more_or_less_than_its_list_is_not_read(
    folder: Path, tmp_path: Path, alignment: Alignment
) -> None:
    """Files of a second run that has not finished, of others, and one that is gone."""
    out = tmp_path / "out"
    transform_folder(alignment, str(folder), str(out))
    with pytest.raises(KeyboardInterrupt):
        transform_folder(another(alignment), str(folder), str(out), engine=StoppingEngine(2))
    with pytest.raises(FileError, match="does not list: a job has not finished here"):
        order_folder(alignment, str(out), str(tmp_path / "order"))
    assert transform_folder(alignment, str(folder), str(out)).done == 0
    order_folder(alignment, str(out), str(tmp_path / "order"))
    min(out.glob("*.parquet")).unlink()
    with pytest.raises(FileError, match="out: lacks a-00000-"):
        order_folder(alignment, str(out), str(tmp_path / "more"))


def test_a_folder_of_others_is_not_written_to(
    folder: Path, tmp_path: Path, alignment: Alignment
) -> None:
    """Files of others, another job's results, those of another input, and the input itself."""
    out = tmp_path / "out"
    transform_folder(alignment, str(folder), str(out))
    before = sorted(path.name for path in out.iterdir())
    with pytest.raises(FileError, match=r"another job \(transform of vector, from .*gallery\)"):
        order_folder(alignment, str(folder), str(out))
    with pytest.raises(FileError, match="belongs to another job"):
        transform_folder(alignment, str(folder), str(out), key="id")
    with pytest.raises(FileError, match="belongs to another job"):
        transform_folder(alignment, str(folder / "more"), str(out))
    assert sorted(path.name for path in out.iterdir()) == before
    for place in (folder, folder / "inside", tmp_path):
        with pytest.raises(FileError, match="cannot be written into the same folder, nor one into"):
            transform_folder(alignment, str(folder), str(place))
    (tmp_path / "mine").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "mine" / "mine.parquet")
    with pytest.raises(FileError, match=r"no job of FastFill has listed \(mine\.parquet\)"):
        transform_folder(alignment, str(folder), str(tmp_path / "mine"))


def test_a_folder_in_which_nothing_was_finished_is_free(
    folder: Path, tmp_path: Path, alignment: Alignment
) -> None:
    """A job that failed at its first piece leaves its name alone."""
    out = str(tmp_path / "out")
    with pytest.raises(FileError, match="has no column old"):
        transform_folder(alignment, str(folder), out, column="old")
    assert order_folder(alignment, str(folder), out).rows == 300
