"""Searching, and what is done for searches."""

from __future__ import annotations

from itertools import product

import numpy as np

from fastfill.features import DISTANCES
from fastfill.testing.world import NEW_DIM, SIDES, StoreChecks, snapshot


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
