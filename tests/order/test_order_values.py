"""An order is a checked permutation, and survives a file."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfill.errors import FileError, IdError, OrderError, ShapeError
from fastfill.order import Order, read_order, write_order


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30))
def test_scores_give_a_permutation_from_high_to_low(scores):
    """Every row is there once, no score rises, equal scores keep the order of the gallery."""
    order = Order.by_score(scores)
    assert sorted(order.positions.tolist()) == list(range(len(scores)))
    expected = sorted(range(len(scores)), key=lambda row: (-scores[row], row))
    assert order.positions.tolist() == expected


@given(st.permutations(list(range(12))))
def test_ranks_are_the_inverse_of_positions(rows):
    """The rank of a row says where the order has it."""
    order = Order(rows)
    assert order.positions[order.ranks].tolist() == list(range(12))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([0, 1, 1], "rows 1 come more than once and rows 2 never"),
        ([0, 3, 1], "rows 3 are outside 0 to 2"),
        ([0, -1, 1], "rows -1 are outside"),
        ([0.0, 1.0], "expected a list of row numbers"),
        ([], "expected a list of row numbers"),
        ([[0, 1]], "expected a list of row numbers"),
    ],
)
def test_what_is_no_permutation_is_refused(rows, words):
    """The rows at fault are named."""
    with pytest.raises(OrderError, match=words):
        Order(rows)


def test_scores_must_be_finite_and_one_per_row():
    """NaN cannot be ranked, and a matrix is no list of scores."""
    with pytest.raises(OrderError, match="rows 1 are NaN or infinite"):
        Order.by_score([1.0, np.nan])
    with pytest.raises(OrderError, match="one score per row"):
        Order.by_score([[1.0], [2.0]])
    with pytest.raises(OrderError, match="scores for 2 rows"):
        Order([0, 1], scores=[1.0])


def test_an_order_is_frozen():
    """Nobody changes an order that others hold."""
    order = Order.by_score([1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        order.positions[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        order.scores[0] = 0


@pytest.mark.parametrize("ids", [None, ["c", "a", "b"], [30, 10, 20]])
def test_an_order_survives_a_file(tmp_path, ids):
    """Positions, scores and the policy's name come back, by id or by row number."""
    order = Order.by_score([0.2, 0.9, 0.5], name="sigma")
    write_order(order, tmp_path / "order.parquet", ids)
    back = read_order(tmp_path / "order.parquet", ids)
    assert back.positions.tolist() == order.positions.tolist()
    assert back.scores.tolist() == order.scores.tolist()
    assert back.name == "sigma"


def test_a_file_is_matched_by_id_to_a_gallery_in_another_order(tmp_path):
    """Ids decide, not the place in the file or in the gallery."""
    write_order(Order([2, 0, 1]), tmp_path / "o.parquet", ids=["a", "b", "c"])
    assert read_order(tmp_path / "o.parquet", ids=["c", "b", "a"]).positions.tolist() == [0, 2, 1]


def test_the_rank_column_decides(tmp_path):
    """Rows of the file may come in any order."""
    table = pa.table({"id": ["a", "b", "c"], "rank": [2, 0, 1]})
    pq.write_table(table, tmp_path / "o.parquet")
    order = read_order(tmp_path / "o.parquet", ids=["a", "b", "c"])
    assert order.positions.tolist() == [1, 2, 0]
    assert order.scores is None


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ({"id": ["a", "b"]}, FileError, "has no column rank"),
        ({"id": ["a", None], "rank": [0, 1]}, FileError, "column 'id' has missing values"),
        ({"id": ["a", "z"], "rank": [0, 1]}, IdError, "the ids z are not in the gallery"),
        ({"id": ["a"], "rank": [0]}, OrderError, "orders 1 items and the gallery has 2"),
        ({"id": ["a", "a"], "rank": [0, 1]}, OrderError, "rows 0 come more than once"),
        ({"id": ["a", "b"], "rank": [1, 1]}, OrderError, "rank: rows 1 come more than once"),
    ],
)
def test_a_bad_file_is_named(tmp_path, columns, error, words):
    """What is wrong with the file is said, and nothing is half-read."""
    pq.write_table(pa.table(columns), tmp_path / "o.parquet")
    with pytest.raises(error, match=words):
        read_order(tmp_path / "o.parquet", ids=["a", "b"])


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    """Missing and truncated files are said so."""
    (tmp_path / "o.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(FileError, match="cannot be read as Parquet"):
        read_order(tmp_path / "o.parquet")
    with pytest.raises(FileError, match="no such file"):
        read_order(tmp_path / "none.parquet")


def test_ids_must_fit_the_order(tmp_path):
    """An order of two rows cannot be written with three ids."""
    with pytest.raises(ShapeError, match="3 entries for 2 vectors"):
        write_order(Order([0, 1]), tmp_path / "o.parquet", ids=["a", "b", "c"])
