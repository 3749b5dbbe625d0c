"""Searching, and what is done for searches."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from fastfill.align import Fusion
from fastfill.align.fusion import Weights
from fastfill.features import DISTANCES, Distance
from fastfill.gallery import Gallery, Hits, Id, Side, State, Store, save_fusion
from fastfill.testing.world import (
    COLUMNS,
    NEW_DIM,
    OLD_DIM,
    QUERY,
    SIDES,
    StoreChecks,
    bound,
    marks,
    new_vectors,
    read_sorted,
    snapshot,
)


class SearchChecks(StoreChecks):
    """Answers are those of the reference."""

    def test_searches_both_sides(self) -> None:
        """Neighbours, distances and generations are those of the reference, with a filter too."""
        store, reference = self.both()
        for each in (store, reference):
            self.align_all(each)
        for distance, where in product(DISTANCES, (None, {"album": 1})):
            for side, vector in SIDES:
                mine, right = (
                    each.search(vector, 6, side=side, distance=distance, where=where, exact=True)
                    for each in (store, reference)
                )
                assert mine.ids.tolist() == right.ids.tolist()
                np.testing.assert_allclose(mine.distances, right.distances, rtol=1e-3, atol=1e-4)
                assert mine.generation.tolist() == right.generation.tolist()

    def test_hits_come_with_both_vectors_when_asked(self) -> None:
        """The vectors of each hit are those of the reference, NaN where a row has none."""
        data = self.values()
        data["vector"][4] = None if self.vectors_optional else data["vector"][4]
        store, reference = self.both(data)
        for each in (store, reference):
            self.align_all(each)
            rows = read_sorted(each, data["id"][:10])
            each.write(rows, new_vectors(rows, 1), marks("new", rows))
            each.upsert(self.values(5, first=100))
        cases = product(DISTANCES, (None, {"album": 1}), (True, False), SIDES)
        for distance, where, exact, (side, vector) in cases:
            mine, right = (
                each.search(
                    vector, 40, side=side, distance=distance, where=where, exact=exact, vectors=True
                )
                for each in (store, reference)
            )
            _same_with_vectors(mine, right)
        choices: tuple[tuple[bool | Side, list[str]], ...]
        choices = ((False, []), ("old", ["old"]), ("new", ["new"]))
        for wanted, expected in choices:
            hits = store.search(QUERY, 3, side="new", distance="l2", vectors=wanted)
            assert [side for side in ("old", "new") if getattr(hits, side) is not None] == expected

    def test_both_models_answer_as_on_the_reference(self) -> None:
        """A gallery served by both models finds what the reference does, new arrivals included."""
        stores = self.both()
        for each in stores:
            self.align_all(each)
            rows = read_sorted(each, self.values()["id"][:10])
            each.write(rows, new_vectors(rows, 1), marks("new", rows))
            each.upsert(self.values(5, first=100))
        found: set[Id] = set()
        for distance, where in product(DISTANCES, (None, {"album": 1})):
            answers = [_search_both(each, distance, where) for each in stores]
            assert answers[0].ids.tolist() == answers[1].ids.tolist()
            np.testing.assert_allclose(
                answers[0].distances, answers[1].distances, rtol=1e-3, atol=1e-3
            )
            found |= set(answers[0].ids)
        assert found & {self.key(number) for number in range(100, 105)}

    def test_hits_have_no_added_vectors_before_there_is_a_column(self) -> None:
        """Before the migration a hit comes with its old vector alone."""
        store = bound(self.make(self.values()))
        hits = store.search(QUERY[:OLD_DIM], 3, side="old", distance="l2", vectors=True)
        rows = read_sorted(store, hits.ids.tolist())
        order = np.argsort(hits.ids.astype(str), kind="stable")
        assert hits.old is not None
        assert hits.new is None
        np.testing.assert_array_equal(hits.old[order], rows.old)

    def test_rows_without_a_vector_are_not_found(self) -> None:
        """Before anything is written the added column has no neighbours to give."""
        store, _ = self.both()
        hits = store.search(np.ones(NEW_DIM), 5, side="new", distance="l2")
        assert len(hits.ids) == 0

    def test_optimizing_changes_no_row(self) -> None:
        """Compaction leaves every row as it was."""
        store, _ = self.both()
        self.align_all(store)
        before = snapshot(store)
        store.optimize()
        assert snapshot(store) == before


def _same_with_vectors(mine: Hits, right: Hits) -> None:
    """The same rows of the same generations, with the same vectors."""
    assert mine.ids.tolist() == right.ids.tolist()
    assert mine.generation.tolist() == right.generation.tolist()
    for vectors, expected in ((mine.old, right.old), (mine.new, right.new)):
        assert vectors is not None
        assert expected is not None
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, expected, rtol=1e-5)


def _search_both(store: Store, distance: Distance, where: Mapping[str, Any] | None) -> Hits:
    """Ten answers of a migration that is served by both models."""
    rng = np.random.default_rng(0)
    old, new = (rng.standard_normal((20, dim)).astype(np.float32) for dim in (OLD_DIM, NEW_DIM))
    tag = save_fusion(store, Fusion(old, new, distance, Weights(0.3, 0.6, 0.1)))
    state = State(
        "started", COLUMNS, distance, "m:f", "model", NEW_DIM, "map", serving="both", fusion=tag
    )
    State.change(store, lambda _: state)
    return Gallery(store).search(old=QUERY[:OLD_DIM], new=QUERY, k=10, filter=where)
