"""Picking ahead of the work gives the same rows in the same order, with fewer looks."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from fastfill.gallery import Columns, Generation, Id, Marks, MemoryStore, Picked
from fastfill.migrate.run.queue import BATCHES, LASTS, RowQueue


class Counting(MemoryStore):
    """Aligned rows 0, 1, 2, … by falling priority; counts how many rows were asked for."""

    def __init__(self, rows: int) -> None:
        ids = list(range(rows))
        super().__init__({"id": ids, "text": ["a"] * rows, "vector": [[1.0]] * rows})
        self.bind(Columns(id="id", input="text", old="vector"))
        self.expand(1)
        self.mark(ids, "aligned", -np.arange(rows, dtype=np.float32))
        self.asked: list[int] = []

    def mark(self, ids: list[Id], generation: Generation, priority: Collection[float]) -> None:
        """Write marks."""
        vectors = np.ones((len(ids), 1), dtype=np.float32)
        marks = Marks(generation, "map", priority=np.asarray(priority, dtype=np.float32))
        assert self.write(self.read(ids), vectors, marks) == len(ids)

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> Picked:
        """As it is, and counted."""
        if generation == "aligned":
            self.asked.append(limit)
        return super().pick(generation, limit, exclude)


def some(queue: RowQueue, limit: int, exclude: Collection[Id] = ()) -> list[Id]:
    """The ids that come next."""
    ids: list[Id] = queue.next(limit, exclude).ids.tolist()
    return ids


def test_batches_come_in_order_from_one_look() -> None:
    """Sixteen batches are what one pick would have given, and the store is asked once."""
    store = Counting(1_000)
    queue = RowQueue(store)
    ids = [key for _ in range(BATCHES) for key in some(queue, 5)]
    assert ids == list(range(5 * BATCHES))
    assert store.asked == [5 * BATCHES]


class Placed(Counting):
    """Rows are picked with their places."""

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> Picked:
        """Where the ids are the places."""
        picked = super().pick(generation, limit, exclude)
        return Picked(picked.ids, np.array(picked.ids.tolist(), dtype=np.int64))


def test_rows_that_have_moved_are_picked_anew_where_their_places_are_known() -> None:
    """Elsewhere a row is found by its id, wherever it lies."""
    asked = []
    for store in (Counting(1_000), Placed(1_000)):
        queue = RowQueue(store)
        assert some(queue, 5) == [0, 1, 2, 3, 4]
        store.delete([0, 1, 2, 3, 4])
        queue.forget_places()
        assert some(queue, 5) == [5, 6, 7, 8, 9]
        asked.append(len(store.asked))
    assert asked == [1, 2]


def test_half_a_batch_comes_before_another_look() -> None:
    """What is left of a pick is given out first, unless it is little: then it comes with others."""
    store = Counting(100)
    queue = RowQueue(store)
    assert some(queue, 1) == [0]
    assert store.asked == [BATCHES]
    assert some(queue, 2 * BATCHES - 4) == list(range(1, BATCHES))
    assert store.asked == [BATCHES]
    assert some(queue, 1) == [0]  # nothing was left, and nothing was written
    assert some(queue, 2 * BATCHES) == list(range(2 * BATCHES))
    assert store.asked == [BATCHES, BATCHES, 2 * BATCHES * BATCHES]


def test_excluded_rows_are_passed_over_and_come_back() -> None:
    """What others hold is left out for now, and picked anew when the queue is at its end."""
    store = Counting(6)
    queue = RowQueue(store)
    assert some(queue, 2) == [0, 1]
    assert some(queue, 2, exclude={2, 4}) == [3, 5]
    store.delete([0, 1, 3, 5])
    assert some(queue, 2) == [2, 4]
    store.delete([2, 4])
    assert some(queue, 2) == []


def test_rows_are_picked_anew_after_a_while_and_when_told() -> None:
    """Rows that became urgent meanwhile are next once the queue is old or forgotten."""
    now = [0.0]
    store = Counting(9)
    queue = RowQueue(store, clock=lambda: now[0])
    assert some(queue, 1) == [0]
    store.mark([7], "aligned", [77])
    assert some(queue, 1) == [1]
    now[0] = LASTS + 1
    assert some(queue, 1) == [7]
    store.mark([8], "aligned", [88])
    queue.forget()
    assert some(queue, 1) == [8]


def test_rows_without_a_vector_go_first() -> None:
    """Waiting rows come before aligned ones, whatever the priority of those."""
    store = Counting(5)
    store.mark([3, 4], "waiting", [0, 1])
    queue = RowQueue(store)
    assert some(queue, 3) == [4, 3]
    store.delete([3, 4])
    assert some(queue, 3) == [0, 1, 2]


def test_what_others_were_seen_to_hold_is_theirs() -> None:
    """Rows that another worker held at one look are not given out at the next, which is later."""
    store = Counting(1_000)
    queue = RowQueue(store)
    assert some(queue, 5) == [0, 1, 2, 3, 4]
    assert some(queue, 5, exclude=set(range(10, 15))) == [5, 6, 7, 8, 9]
    assert some(queue, 5) == [15, 16, 17, 18, 19]


def test_workers_who_look_at_the_same_time_begin_at_other_places() -> None:
    """Rows that are left for others come later, and nothing is left where there are few rows."""
    queue = RowQueue(Counting(20))
    assert queue.next(5, [], skip=10).ids.tolist() == [10, 11, 12, 13, 14]
    assert some(queue, 5) == [0, 1, 2, 3, 4]
    assert queue.next(5, [], skip=100).ids.tolist() == [15, 16, 17, 18, 19]
    assert queue.next(5, [], skip=100).ids.tolist() == [5, 6, 7, 8, 9]


def test_a_batch_is_whole_while_there_are_rows() -> None:
    """Where others took most of what was picked, rows are picked anew to make a whole batch."""
    store = Counting(1_000)
    queue = RowQueue(store)
    assert some(queue, 5) == [0, 1, 2, 3, 4]
    assert some(queue, 5, exclude=set(range(78))) == [78, 79, 80, 81, 82]
