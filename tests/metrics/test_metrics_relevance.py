"""Which items are relevant: labels, label sets, judgements."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfill.errors import IdError, LabelError, ShapeError
from fastfill.metrics import Relevance, as_relevance


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_labels_make_every_other_item_of_the_class_relevant(labels):
    """Without query labels each item asks for the others of its class, never for itself."""
    relevance = Relevance.from_labels(labels)
    for i, label in enumerate(labels):
        others = [j for j, other in enumerate(labels) if other == label and j != i]
        assert relevance.of(i).tolist() == others
        assert relevance.counts[i] == len(others)


@given(st.lists(st.integers(0, 3), min_size=1), st.lists(st.integers(0, 5), min_size=1))
def test_separate_queries_ask_for_all_items_of_their_label(labels, asked):
    """With query labels nothing is left out, and a label that is not there has no items."""
    relevance = Relevance.from_labels(labels, asked)
    for i, label in enumerate(asked):
        assert relevance.of(i).tolist() == [j for j, other in enumerate(labels) if other == label]
    assert relevance.counts.tolist() == [len(relevance.of(i)) for i in range(len(asked))]


@given(st.lists(st.frozensets(st.integers(0, 4)), min_size=1, max_size=15))
def test_label_sets_are_relevant_where_they_meet(sets):
    """Items of several labels answer each other where one label is shared."""
    relevance = Relevance.from_label_sets(sets)
    for i, mine in enumerate(sets):
        expected = [j for j, other in enumerate(sets) if mine & other and j != i]
        assert relevance.of(i).tolist() == expected
        assert relevance.counts[i] == len(expected)


def test_a_boolean_matrix_is_the_same_as_label_sets():
    """Both ways to give several labels per item mean the same."""
    matrix = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1]], dtype=bool)
    by_matrix = as_relevance(matrix)
    by_sets = as_relevance([{0, 2}, {1}, {2}])
    assert [by_matrix.of(i).tolist() for i in range(3)] == [
        by_sets.of(i).tolist() for i in range(3)
    ]


def test_queries_of_one_class_share_their_list():
    """The size of a relevance is that of the labels, not queries × relevant items."""
    relevance = Relevance.from_labels(np.zeros(1000, dtype=int))
    assert len(relevance.rows) == 1000


def test_labels_as_numbers_and_as_texts_do_not_mix():
    """Numbers on one side and texts on the other could never match, and are refused."""
    with pytest.raises(LabelError, match="both as numbers or both as texts"):
        Relevance.from_labels([1, 2], ["1", "2"])


def test_label_sets_name_the_rows_that_are_none():
    """A single label among collections of labels is named by its row."""
    with pytest.raises(LabelError, match="rows 1"):
        Relevance.from_label_sets([{"a"}, "b"])


def test_a_matrix_of_numbers_is_no_label_matrix():
    """Several labels per item are a boolean matrix, not scores."""
    with pytest.raises(ShapeError, match="boolean matrix"):
        as_relevance(np.zeros((3, 2)))


def test_judgements_carry_their_gains():
    """Gains belong to the gallery rows of their items; those of 0 and below are not relevant."""
    qrels = {"q": {"c": 3, "a": 1, "b": 0, "d": -1}}
    relevance = Relevance.from_qrels(qrels, ["x", "q"], ["a", "b", "c", "d"])
    assert relevance.of(1).tolist() == [0, 2]
    assert relevance.gains_of(1).tolist() == [1, 3]
    assert relevance.counts.tolist() == [0, 2]


def test_judgements_may_leave_out_the_query_itself():
    """As BEIR does, the item with the query's own id can be left out of the ranking."""
    qrels = {"a": {"a": 1, "b": 1}}
    assert Relevance.from_qrels(qrels, ["a"], ["a", "b"]).of(0).tolist() == [0, 1]
    own = Relevance.from_qrels(qrels, ["a"], ["a", "b"], ignore_same_ids=True)
    assert own.of(0).tolist() == [1]
    assert own.counts.tolist() == [1]


def test_judged_items_must_be_in_the_gallery():
    """A missing item would raise recall without anyone noticing: it is named instead."""
    with pytest.raises(IdError, match="Query q: the judged items z are not in the gallery"):
        Relevance.from_qrels({"q": {"z": 1}}, ["q"], ["a"])
