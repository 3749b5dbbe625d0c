"""`Features`, `Pairs` and the checks behind them: what is accepted, what is refused and how."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastfill.errors import IdError, InputError, LabelError, NonFiniteError, ShapeError
from fastfill.errors import ZeroVectorError as ZeroVector
from fastfill.features import (
    DISTANCES,
    Features,
    Pairs,
    as_column,
    as_matrix,
    check_classes,
    check_distance,
    check_finite,
    check_positive,
    check_rows,
    normalised,
    pairwise,
)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.zeros(3), ["got shape (3,)", "Reshape a single vector"]),
        (np.float32(1), ["got shape ()"]),
        (np.zeros((2, 3, 4)), ["2-D", "got shape (2, 3, 4)"]),
        (np.zeros((0, 4)), ["empty", "(0, 4)", "at least one vector"]),
        (np.zeros((4, 0)), ["empty", "(4, 0)"]),
        (np.array([[1, None]], dtype=object), ["dtype object", "float32"]),
        (np.array([["a", "b"]]), ["dtype <U1", "float32"]),
        (np.zeros((2, 2), dtype=complex), ["dtype complex128"]),
        ([[1.0, 2.0], [3.0]], ["rows of different lengths"]),
    ],
    ids=["1d", "scalar", "3d", "no rows", "no dimensions", "objects", "texts", "complex", "ragged"],
)
def test_what_is_not_a_matrix_is_refused(values: Any, said: list[str]) -> None:
    """Anything but a non-empty 2-D array of numbers is a ShapeError that names what came."""
    with pytest.raises(ShapeError) as caught:
        as_matrix(values, "photos.npy")
    for part in ["photos.npy", *said]:
        assert part in str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_with_nan_or_infinity_are_named(bad: float) -> None:
    """NaN and infinite numbers are refused, naming the file, the rows and the way out."""
    values = np.ones((70_000, 2), dtype=np.float32)  # more than one block of the check
    values[[3, 69_999], 1] = bad
    with pytest.raises(NonFiniteError, match=r"photos: NaN .* rows 3, 69999\. Remove those rows"):
        as_matrix(values, "photos")


def test_opposite_infinities_in_one_block_are_found_quietly() -> None:
    """∞ and −∞ together are reported like any other, without a NumPy warning."""
    with pytest.raises(NonFiniteError, match="rows 0, 1"):
        as_matrix([[np.inf, 1.0], [-np.inf, 1.0]])


def test_rows_are_counted_from_the_first_row_of_the_block() -> None:
    """A check of one block names rows of the whole file."""
    block = np.array([[1.0], [np.nan]], dtype=np.float32)
    with pytest.raises(NonFiniteError, match="rows 101"):
        check_finite(block, "f", first_row=100)


def test_float64_beyond_float32_is_refused() -> None:
    """A float64 number that overflows float32 is found as infinite, in its row."""
    with pytest.raises(NonFiniteError, match=r"big: .* rows 1"):
        as_matrix(np.array([[1.0], [1e300]]), "big")


def test_a_long_list_of_rows_is_cut_short() -> None:
    """A message about thousands of rows shows a few and the count."""
    with pytest.raises(NonFiniteError, match=r"rows 0, 1, 2, 3, 4, … \(1000 in all\)"):
        as_matrix(np.full((1000, 1), np.nan))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", "i8", "u1", "?"])
def test_numbers_of_every_kind_become_float32(dtype: str) -> None:
    """float16, float32 and float64, whole numbers and either byte order are float32 inside."""
    values = np.array([[0, 1], [1, 0]]).astype(dtype)
    matrix = as_matrix(values)
    assert matrix.dtype == np.float32
    assert matrix.dtype.isnative
    np.testing.assert_array_equal(matrix, [[0, 1], [1, 0]])


def test_float32_is_not_copied() -> None:
    """A float32 array is used as it is, in either memory order."""
    for order in "CF":
        values = np.ones((4, 3), dtype=np.float32, order=order)
        assert np.shares_memory(Features(values).vectors, values)


def test_features_are_frozen() -> None:
    """Neither the attributes nor the numbers of a value can be changed."""
    features = Features([[1.0], [2.0]], ids=["a", "b"], labels=[0, 1], groups=["x", "y"])
    with pytest.raises(FrozenInstanceError):
        features.name = "other"  # type: ignore[misc]
    for array in (features.vectors, features.ids, features.labels, features.groups):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


def test_freezing_leaves_the_callers_array_writable() -> None:
    """The value is a read-only view: the array that was given stays as it was."""
    values = np.ones((2, 2), dtype=np.float32)
    Features(values)
    assert values.flags.writeable


@pytest.mark.parametrize("column", ["ids", "labels", "groups"])
def test_columns_need_one_entry_per_vector(column: str) -> None:
    """A column of another length, or not a column, is a ShapeError that names it and the counts."""
    with pytest.raises(ShapeError, match=rf"photos: {column}: 3 entries for 2 vectors"):
        Features([[1.0], [2.0]], **{column: [1, 2, 3]}, name="photos")
    with pytest.raises(ShapeError, match=r"one entry per row, got shape \(2, 1\)"):
        Features([[1.0], [2.0]], **{column: [[1], [2]]})


@pytest.mark.parametrize(
    "values",
    [
        [0.5, 1.0],
        [np.nan, 1.0],
        np.array([b"a", b"b"]),
        np.array(["2020-01-01", "2020-01-02"], "M8[D]"),
    ],
    ids=["fractions", "nan", "bytes", "dates"],
)
def test_columns_hold_whole_numbers_or_texts(values: Any) -> None:
    """Fractions, NaN, bytes and dates are no labels."""
    with pytest.raises(LabelError, match=r"labels: expected whole numbers or texts, got dtype"):
        as_column(values, 2, "labels")


@pytest.mark.parametrize("hole", [None, np.nan])
def test_a_missing_label_is_refused(hole: object) -> None:
    """None and NaN among texts do not silently become a class of their own."""
    with pytest.raises(LabelError, match="nothing in rows 1"):
        as_column(np.array(["cat", hole], dtype=object), 2, "labels")


def test_whole_floats_and_objects_are_accepted_as_columns() -> None:
    """1.0 is the label 1, and an object array of texts is a column of texts."""
    assert as_column([1.0, 2.0], 2, "labels").dtype == np.int64
    assert as_column(np.array(["a", "bc"], dtype=object), 2, "ids").tolist() == ["a", "bc"]


def test_duplicate_ids_are_named() -> None:
    """An id that appears twice is an IdError that names it."""
    with pytest.raises(IdError, match=r"photos: duplicate ids 7, 9\. Every item needs"):
        Features(np.ones((5, 1)), ids=[7, 7, 8, 9, 9], name="photos")


def test_take_keeps_rows_together() -> None:
    """The rows asked for come in that order, with their ids, labels and groups."""
    features = Features([[1.0], [2.0], [3.0]], ["a", "b", "c"], [1, 2, 3], ["x", "y", "z"], "f")
    part = features.take([2, 0])
    assert part.vectors.ravel().tolist() == [3.0, 1.0]
    assert part.ids.tolist() == ["c", "a"]
    assert part.labels is not None
    assert part.labels.tolist() == [3, 1]
    assert part.groups is not None
    assert part.groups.tolist() == ["z", "x"]
    assert part.name == "f"
    assert features.take([True, False, True]).ids.tolist() == ["a", "c"]


def test_pairs_need_the_same_number_of_rows() -> None:
    """Two sides of different lengths are a ShapeError that names both and their counts."""
    old, new = Features(np.ones((3, 2)), name="old.npy"), Features(np.ones((4, 2)), name="new.npy")
    with pytest.raises(ShapeError, match=r"old\.npy has 3 rows and new\.npy has 4"):
        Pairs(old, new)


def test_pairs_with_other_ids_are_refused() -> None:
    """Rows that are different items are an IdError that names the first, and Pairs.match."""
    old = Features(np.ones((2, 2)), ids=["a", "b"], name="old.npy")
    new = Features(np.ones((2, 2)), ids=["a", "c"], name="new.npy")
    with pytest.raises(IdError, match=r"differ, first in row 1 \(b and c\).*Pairs\.match"):
        Pairs(old, new)


def test_ids_without_a_partner_are_named() -> None:
    """Matching names the ids that one of the models has not embedded, and which one."""
    old = Features(np.ones((3, 1)), ids=["a", "b", "c"], name="old.parquet")
    new = Features(np.ones((2, 1)), ids=["c", "b"], name="new.parquet")
    with pytest.raises(IdError, match=r"new\.parquet has no vector for 1 ids of old\.parquet: a\."):
        Pairs.match(old, new)
    with pytest.raises(IdError, match=r"new\.parquet has no vector for 1 ids of old\.parquet: a\."):
        Pairs.match(new, old)


def test_number_ids_do_not_match_text_ids() -> None:
    """The id 1 is not the id "1": both sides must be written the same way."""
    old = Features(np.ones((2, 1)), ids=["1", "10"], name="old")
    new = Features(np.ones((2, 1)), ids=[1, 10], name="new")
    for pair in (Pairs, Pairs.match):
        with pytest.raises(IdError, match=r"ids of old are texts and those of new are numbers"):
            pair(old, new)


@given(st.lists(st.integers(-50, 50), min_size=1, unique=True), st.randoms(use_true_random=False))
def test_matching_finds_every_partner(ids: list[int], random: Any) -> None:
    """Whatever the order of the ids, each old vector meets the new vector of its own id."""
    shuffled = random.sample(ids, len(ids))
    vectors = np.array(ids, dtype=np.float32)[:, None]
    pairs = Pairs.match(
        Features(vectors, ids), Features(np.array(shuffled, dtype=np.float32)[:, None], shuffled)
    )
    np.testing.assert_array_equal(pairs.new.vectors, vectors)
    np.testing.assert_array_equal(pairs.old.ids, pairs.new.ids)


def test_side_information_belongs_to_the_pairs() -> None:
    """Side-information is checked like vectors, has a row per pair and is taken along."""
    old, new = Features(np.ones((3, 1))), Features(np.ones((3, 2)))
    with pytest.raises(ShapeError, match=r"side-information has 2 rows for 3 pairs"):
        Pairs(old, new, np.ones((2, 1), dtype=np.float32))
    with pytest.raises(NonFiniteError, match=r"side-information: .* rows 0"):
        Pairs(old, new, np.full((3, 1), np.nan, dtype=np.float32))
    pairs = Pairs(old, new, np.arange(3, dtype=np.float32)[:, None])
    part = pairs.take([2, 1])
    assert part.side is not None
    assert part.side.ravel().tolist() == [2.0, 1.0]
    assert repr(pairs) == "Pairs(3 × 1→2, side)"


def test_pairs_take_labels_from_either_side() -> None:
    """The labels may come with the new vectors or with the old ones."""
    plain, labelled = Features([[1.0], [2.0]]), Features([[1.0], [2.0]], labels=[3, 4])
    for pairs in (Pairs(plain, labelled), Pairs(labelled, plain)):
        assert pairs.labels is not None
        assert pairs.labels.tolist() == [3, 4]
    assert Pairs(plain, plain).labels is None


def test_labels_outside_the_head_are_named() -> None:
    """A label without a row in the head is a LabelError that names it and the classes."""
    with pytest.raises(LabelError, match=r"labels -1, 10 are outside .* classes 0 to 9\. Number"):
        check_classes(np.array([0, -1, 9, 10]), 10)
    with pytest.raises(LabelError, match=r"needs labels 0 to 9, got <U3\. Number the classes"):
        check_classes(np.array(["cat", "dog"]), 10)
    assert check_classes(np.array([0, 9], dtype=np.uint8), 10).dtype == np.int64


def test_zero_vectors_have_no_direction() -> None:
    """Under cosine a zero vector is refused, naming file and rows and the way out."""
    vectors = np.array([[1.0, 0.0], [0.0, 0.0]], dtype=np.float32)
    with pytest.raises(ZeroVector, match=r"photos: zero vectors .* rows 1\. Remove .* 'l2'"):
        normalised(vectors, "photos")
    with pytest.raises(ZeroVector, match="rows 41"):
        normalised(vectors, "photos", first_row=40)


@given(
    hnp.arrays(np.float32, (4, 3), elements=st.floats(-100, 100, width=32)),
    hnp.arrays(np.float32, (5, 3), elements=st.floats(-100, 100, width=32)),
)
def test_distances_equal_their_definitions(queries: Any, gallery: Any) -> None:
    """Every distance is what its name says, item by item."""
    queries[:, 0] += 300  # no zero vector
    gallery[:, 1] += 300
    rounding = {"l2": 0.2, "cosine": 1e-5, "ip": 0.1}  # of float32 sums of about 3·400²
    for name in DISTANCES:
        found = pairwise(queries, gallery, name)
        for i, q in enumerate(queries.astype(float)):
            for j, g in enumerate(gallery.astype(float)):
                obvious = {
                    "l2": ((q - g) ** 2).sum(),
                    "cosine": 1 - q @ g / np.sqrt((q @ q) * (g @ g)),
                    "ip": -(q @ g),
                }[name]
                assert found[i, j] == pytest.approx(obvious, rel=1e-4, abs=rounding[name])


def test_small_checks_name_what_is_wrong() -> None:
    """Unknown distances, wrong counts and counts below one are one clear sentence each."""
    with pytest.raises(InputError, match=r"Unknown distance 'manhattan': use one of l2, cosine"):
        check_distance("manhattan")
    with pytest.raises(ShapeError, match=r"labels: 3 rows where 4 are expected"):
        check_rows(3, 4, "labels")
    with pytest.raises(InputError, match=r"epochs must be at least 1, got 0"):
        check_positive(0, "epochs")
    assert check_positive(1, "epochs") == 1
