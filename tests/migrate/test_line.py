"""Picking ahead of the work gives the same rows in the same order, with fewer looks."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from fastfill.gallery import Id, Picked, objects
from fastfill.migrate.line import BATCHES, LASTS, Line


class Picks:
    """Rows by falling priority, and how often they were asked for."""

    def __init__(self, rows: int) -> None:
        self.left: list[Id] = list(range(rows))
        self.asked: list[int] = []

    def __call__(self, limit: int, exclude: Collection[Id]) -> Picked:
        self.asked.append(limit)
        return Picked(objects([key for key in self.left if key not in exclude][:limit]))


def next_ids(
    line: Line, limit: int, exclude: Collection[Id] = (), shared: bool = False
) -> list[Id]:
    """The ids of the next rows."""
    return list(line.next(limit, exclude, shared).ids)


def test_batches_come_in_order_from_one_look() -> None:
    """Sixteen batches are what one pick would have given, and the store is asked once."""
    picks = Picks(1_000)
    line = Line(picks)
    found = [key for _ in range(BATCHES) for key in next_ids(line, 5)]
    assert found == list(range(5 * BATCHES))
    assert picks.asked == [5 * BATCHES]


def test_excluded_rows_are_passed_over_and_come_back() -> None:
    """What others hold is left out for now, and picked anew when the line is at its end."""
    picks = Picks(6)
    line = Line(picks)
    assert next_ids(line, 2) == [0, 1]
    assert next_ids(line, 2, {2, 4}) == [3, 5]
    picks.left = [2, 4]
    assert next_ids(line, 2) == [2, 4]
    picks.left = []
    assert next_ids(line, 2) == []


def test_a_line_is_kept_until_it_is_used_up_or_forgotten() -> None:
    """A worker alone does not ask the store again, however long a batch takes."""
    now = [0.0]
    picks = Picks(9)
    line = Line(picks, clock=lambda: now[0])
    assert next_ids(line, 1) == [0]
    picks.left.insert(0, 77)
    now[0] = 100 * LASTS
    assert next_ids(line, 1) == [1]
    line.forget()
    assert next_ids(line, 1) == [77]
    assert len(picks.asked) == 2


def test_where_others_work_too_a_line_is_picked_anew_after_a_while() -> None:
    """Rows that became urgent meanwhile are next once the line is some seconds old."""
    now = [0.0]
    picks = Picks(9)
    line = Line(picks, clock=lambda: now[0])
    assert next_ids(line, 1, shared=True) == [0]
    picks.left.insert(0, 77)
    assert next_ids(line, 1, shared=True) == [1]
    now[0] = LASTS + 1
    assert next_ids(line, 1, shared=True) == [77]


def test_places_stay_with_their_ids() -> None:
    """What the store said about where a row lies comes with it, batch by batch."""
    every = Picked(objects(["a", "b", "c", "d"]), np.array([7, 8, 9, 10]))
    line = Line(lambda limit, exclude: every)
    first, second = line.next(2, exclude={"b"}), line.next(2, exclude=())
    assert (first.ids.tolist(), first.places.tolist()) == (["a", "c"], [7, 9])
    assert (second.ids.tolist(), second.places.tolist()) == (["d"], [10])
