"""A small collection, what is written to it, and how two stores are compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import StoreError
from fastfill.features import Distance, Matrix
from fastfill.gallery import (
    Columns,
    Generation,
    Id,
    Marks,
    MemoryStore,
    Picked,
    Rows,
    Settled,
    Side,
    Store,
)

OLD_DIM, NEW_DIM = 8, 12
COLUMNS = Columns(id="id", input="text", old="vector")
QUERY = np.linspace(-1, 1, NEW_DIM).astype(np.float32)
SIDES: tuple[tuple[Side, Matrix], ...] = (("old", QUERY[:OLD_DIM]), ("new", QUERY))
SETTLED = Settled(aligned="map", new="model")


def quoted(number: int) -> Id:
    """An id with a quote in it."""
    return f"it's {number}"


def values(
    rows: int = 30, first: int = 0, seed: int = 0, key: Callable[[int], Id] = quoted
) -> dict[str, list[Any]]:
    """Columns of a small collection: ids of any kind, texts of all kinds."""
    rng = np.random.default_rng([seed, first])
    numbers = range(first, first + rows)
    return {
        "id": [key(n) for n in numbers],
        "text": [f"text {n} ü\n'\"" for n in numbers],
        "album": [n % 3 for n in numbers],
        "vector": [rng.standard_normal(OLD_DIM).astype(np.float32).tolist() for _ in numbers],
    }


def new_vectors(rows: Rows, salt: float = 0.0) -> Matrix:
    """(n, NEW_DIM) vectors that depend on the row's content alone."""
    old = np.nan_to_num(rows.old)
    length = np.array([len(text or "") for text in rows.inputs], dtype=np.float32)
    wide = np.concatenate([old, old[:, : NEW_DIM - OLD_DIM] + 1], axis=1) + salt
    return np.asarray(wide + length[:, None], dtype=np.float32)


def marks(generation: str, rows: Rows, model: str | None = None) -> Marks:
    """Marks with a priority that falls with the position."""
    numbers = np.arange(len(rows), dtype=np.float32)
    model = model or {"aligned": "map", "new": "model", "waiting": "model"}[generation]
    return Marks(generation, model, variance=numbers / 10, priority=-numbers)  # type: ignore[arg-type]


Snapshot = dict[Id, tuple[Any, ...]]


def snapshot(store: Store) -> Snapshot:
    """Everything that can be read, by id."""
    expanded = store.describe().new_dim is not None
    rows_by_id: Snapshot = {}
    for rows in store.scan(None, batch=7, new=expanded):
        for position, key in enumerate(rows.ids):
            assert key not in rows_by_id, f"{key} was read twice"
            rows_by_id[key] = (
                _rounded(rows.old[position]),
                rows.inputs[position],
                rows.generation[position],
                rows.model[position],
                None if rows.new is None else _rounded(rows.new[position]),
            )
    return rows_by_id


def _rounded(vector: NDArray[np.float32]) -> tuple[float, ...] | None:
    return None if np.isnan(vector).any() else tuple(np.round(vector, 4).tolist())


def bound(store: Store) -> Store:
    """The store with its columns named."""
    store.bind(COLUMNS)
    return store


def read_sorted(
    store: Store, rows: Sequence[Id] | Picked, new: bool = False, old: bool = True
) -> Rows:
    """Rows in the order of their ids, so that two stores can be compared."""
    unsorted = store.read(rows, old=old, new=new)
    return unsorted.take(np.argsort(unsorted.ids.astype(str), kind="stable"))


def refused(operation: Callable[[], object]) -> bool:
    """Does the store refuse this, as a `StoreError`?"""
    try:
        operation()
    except StoreError:
        return True
    return False


def picked(
    store: Store, generation: Generation, limit: int, exclude: Collection[Id] = ()
) -> list[Id]:
    """The ids of what is picked."""
    return list(store.pick(generation, limit, exclude).ids)


class StoreSuiteError(Exception):
    """The suite was used without saying how a collection is made."""


class StoreChecks:
    """How a collection is made, for an adapter and for the reference."""

    vectors_optional = True  # may a row be without an old vector?

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """A store over a fresh collection with these columns."""
        raise StoreSuiteError("Subclass StoreSuite and say in `make` how a collection is made.")

    def key(self, number: int) -> Id:
        """The id of an item."""
        return quoted(number)

    def values(self, rows: int = 30, first: int = 0) -> dict[str, list[Any]]:
        """Columns of a small collection."""
        return values(rows, first, key=self.key)

    def values_with_gaps(self, rows: int, *, vector: int, text: int) -> dict[str, list[Any]]:
        """The same, where one row has no old vector, if there can be such, and one no text."""
        data = self.values(rows)
        data["text"][text] = None
        if self.vectors_optional:
            data["vector"][vector] = None
        return data

    def texts(self, *numbers: int) -> list[str]:
        """The ids of these items as texts, in order."""
        return sorted(str(self.key(number)) for number in numbers)

    def both(self, data: Mapping[str, Sequence[Any]] | None = None) -> tuple[Store, Store]:
        """The adapter and the reference over the same rows, expanded."""
        data = self.values() if data is None else data
        stores: tuple[Store, Store] = (self.make(data), MemoryStore(data))
        for store in stores:
            bound(store).expand(NEW_DIM)
        return stores

    def align_all(self, store: Store) -> None:
        """Settle every row as aligned."""
        for rows in store.unsettled(SETTLED, batch=11, changed=False):
            store.write(rows, new_vectors(rows), marks("aligned", rows))
