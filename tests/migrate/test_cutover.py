"""The cut-over under the owner's name, and the way back, on the in-memory store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastfill.errors import MigrationError, StoreError
from fastfill.gallery import Columns, Gallery, MemoryStore, load_state
from fastfill.migrate import Migration

ROWS = 40


def encode(texts: Any) -> Any:
    """The new model."""
    return np.array([[int(t) % 5 + 1, int(t) % 7 + 1] for t in texts], np.float32)


def encode_later(texts: Any) -> Any:
    """The model after it."""
    return np.array([[int(t), int(t) % 3, 1] for t in texts], np.float32)


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def store() -> MemoryStore:
    """Forty rows with an old vector."""
    return MemoryStore(
        {
            "id": [*range(ROWS)],
            "text": [str(i) for i in range(ROWS)],
            "tenant": [i % 2 for i in range(ROWS)],
            "vector": [[i % 5, i % 7, 1.0] for i in range(ROWS)],
        }
    )


def migrated(store: MemoryStore) -> Migration:
    """A migration whose rows are all new."""
    migration = Migration(Gallery(store, input="text", distance="l2"), encode)
    migration.start(pairs=20, method="ridge", serving="aligned")
    assert [*migration.backfill(throttle=False)][-1].fraction == 1
    return migration


def names(store: MemoryStore) -> set[str]:
    """The columns of vectors."""
    return {name for name in store.describe().columns if name.startswith("vector")}


def test_the_new_vectors_get_the_name_and_give_it_back(store: MemoryStore) -> None:
    """Complete with a swap, back, again, and without the old vectors at last."""
    reader = Gallery(store, input="text", distance="l2")
    migration = migrated(store)
    migration.complete(swap=True)
    assert names(store) == {"vector", "vector_old"}
    assert store.describe().new_dim == 2
    reader._read_at = 0.0
    assert reader.search(encode(["6"])[0], k=1).ids.tolist() == [6]
    migration.swap_back()
    assert names(store) == {"vector", "vector_new"}
    assert store.describe().old_dim == 3
    migration.complete(swap=True, drop_old=True)
    assert names(store) == {"vector"}
    assert migration.status().progress.fraction == 1
    with pytest.raises(MigrationError, match="no way back"):
        migration.swap_back()


@pytest.mark.parametrize("step", ["swap", "bind", "end_swap", "swap_back"])
@pytest.mark.parametrize("onward", [True, False])
def test_a_kill_between_the_steps(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, step: str, onward: bool
) -> None:
    """Whatever step is the last one of a process, the next one can go on, or go back."""
    migration = migrated(store)
    if step == "swap_back":
        migration.complete(swap=True)
    done = getattr(store, step)

    def do_and_die(*given: Any) -> Any:
        done(*given)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(store, step, do_and_die)
        with pytest.raises(KilledError):
            migration.swap_back() if step == "swap_back" else migration.complete(swap=True)
    reader = Gallery(store)
    assert reader.search(encode(["6"])[0], k=1).ids.tolist() == [6]
    later = Migration(Gallery(store), encode)
    if onward and step != "swap_back":
        later.complete(swap=True)
        assert names(store) == {"vector", "vector_old"}
    else:
        later.swap_back()
        assert names(store) == {"vector", "vector_new"}
    later.rollback()
    assert names(store) == {"vector"}
    assert store.describe().old_dim == 3


def test_rows_written_meanwhile_are_in_the_way(store: MemoryStore) -> None:
    """Nothing is swapped, and the migration is open again to embed them."""
    migration = migrated(store)
    migration.complete()
    store.upsert({"id": [99], "text": ["99"], "vector": [[4.0, 1.0, 1.0]]})
    with pytest.raises(MigrationError, match="1 rows have been written"):
        migration.complete(swap=True, drop_old=True)
    assert names(store) == {"vector", "vector_new"}
    assert [*migration.backfill(throttle=False)][-1].new == ROWS + 1
    migration.complete(swap=True)
    state = load_state(store)
    assert state is not None
    assert (state.swapped, state.drop_old, state.swapping) == (True, False, False)


def test_rows_written_after_the_swap_are_new(store: MemoryStore) -> None:
    """The application writes by the new model under the name that it knows."""
    migration = migrated(store)
    migration.complete(swap=True)
    store.upsert({"id": [99], "text": ["99"], "vector": [[5.0, 2.0]]})
    assert migration.status().progress.new == ROWS + 1
    with pytest.raises(MigrationError, match="verify before --swap"):
        migration.verify()


@pytest.mark.parametrize("verb", ["complete", "rollback"])
def test_names_that_another_process_has_swapped(store: MemoryStore, verb: str) -> None:
    """What is dropped later is what is old by then, also where the swap was somebody else's."""
    migration = migrated(store)
    migration.complete()
    before = store.columns
    Migration(Gallery(store), encode).complete(swap=True)
    store.bind(before)  # as a process of its own would still have them
    migration.complete(drop_old=True) if verb == "complete" else migration.rollback()
    assert names(store) == {"vector"}
    assert len(store._rows[3]["vector"]) == (2 if verb == "complete" else 3)


def test_a_reader_that_hears_of_it_late(store: MemoryStore) -> None:
    """A search by the names of before fails, reads the state, and succeeds by those of now."""
    migration = migrated(store)
    migration.complete()
    before = store.columns
    reader = Gallery(store)
    assert reader.state is not None
    migration.complete(swap=True, drop_old=True)
    search, searched = store.search, []

    def search_by_name(vector: Any, k: int, **options: Any) -> Any:
        searched.append(store.columns.new)
        if store.columns.new not in store.describe().columns:
            raise StoreError("no such column")
        return search(vector, k, **options)

    store.bind(before)  # as a process of its own would still have them
    store.search = search_by_name  # type: ignore[method-assign]
    assert reader.search(encode(["6"])[0], k=1).ids.tolist() == [6]
    assert searched == ["vector_new", "vector"]


def test_the_next_model_after_a_swap(store: MemoryStore) -> None:
    """Once the old vectors are gone, another migration begins at the same address."""
    migration = migrated(store)
    migration.complete(swap=True)
    with pytest.raises(MigrationError, match="--drop-old, or swap-back"):
        Migration(Gallery(store), encode_later).start(pairs=20)
    migration.complete(drop_old=True)
    later = Migration(Gallery(store), encode_later)
    later.start(pairs=20, method="ridge", serving="aligned")
    assert [*later.backfill(throttle=False)][-1].fraction == 1
    later.complete(swap=True, drop_old=True)
    assert names(store) == {"vector"}
    assert Gallery(store).search(encode_later(["8"])[0], k=1).ids.tolist() == [8]


def test_a_rollback_swaps_back_first(store: MemoryStore) -> None:
    """Only the owner's column is left, with the vectors that it had."""
    store.bind(Columns(id="id", input="text", old="vector"))
    before = store.read([*range(ROWS)]).old
    migration = migrated(store)
    migration.complete(swap=True)
    migration.rollback()
    assert names(store) == {"vector"}
    assert np.array_equal(store.read([*range(ROWS)]).old, before)


def test_a_part_keeps_its_column(store: MemoryStore) -> None:
    """The old vectors of a part share their column with others, which is not dropped."""
    gallery = Gallery(store, input="text", distance="l2", where={"tenant": 1})
    migration = Migration(gallery, encode)
    migration.start(pairs=20, method="ridge", serving="aligned")
    assert [*migration.backfill(throttle=False)][-1].total == ROWS // 2
    with pytest.raises(MigrationError, match="share the column 'vector' with other rows"):
        migration.complete(drop_old=True)
