"""`Gallery`: one collection in a store, holding old, aligned and new vectors side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from fastfill.errors import InputError
from fastfill.features import Distance, check_distance
from fastfill.gallery.state import State, load_state
from fastfill.gallery.store import Columns, Hits, Id, Side, Store

FRESH = 1.0  # seconds for which a reader may go on with the phase that it knows


class Gallery:
    """A collection as readers and writers see it, whatever the migration is doing.

    >>> from fastfill.gallery import MemoryStore
    >>> store = MemoryStore({"id": [1, 2], "text": ["a", "b"], "vector": [[1.0, 0.0], [0.0, 1.0]]})
    >>> gallery = Gallery(store, id="id", input="text", distance="l2")
    >>> gallery.search([0.9, 0.1], k=1).ids.tolist()
    [1]
    """

    def __init__(
        self,
        store: Store,
        *,
        id: str | None = None,
        input: str | None = None,
        distance: str | None = None,
    ) -> None:
        self.store = store
        self._read_at = 0.0
        self._state = load_state(store)
        over = self._state is None or self._state.phase == "rolled back"
        if self._state is not None and not (over and (id or input)):
            store.bind(self._state.columns)
        else:
            store.bind(Columns(id=id or "id", input=input, old=store.column))
        self._distance = None if distance is None else check_distance(distance)

    @property
    def name(self) -> str:
        """Where this is."""
        return self.store.name

    @property
    def state(self) -> State | None:
        """The migration's state, at most a second old."""
        if time.monotonic() - self._read_at > FRESH:
            self._state = load_state(self.store)
            self._read_at = time.monotonic()
        return self._state

    @property
    def distance(self) -> Distance:
        """Of the migration, else of the index in the store, else as given."""
        state = self.state
        distance = self._distance or (state.distance if state else self.store.describe().distance)
        if distance is None:
            raise InputError(
                f"{self.name} has no index that tells the distance: give --distance l2, cosine "
                "or ip."
            )
        self._distance = distance
        return distance

    @property
    def side(self) -> Side:
        """Which vectors a query is compared with: `new` once the whole gallery is aligned."""
        state = self.state
        return "new" if state is not None and state.serves_new else "old"

    def search(
        self, vector: ArrayLike, k: int = 10, filter: Mapping[str, Any] | None = None
    ) -> Hits:
        """The k nearest items: by the old model until the start has ended, then by the new one."""
        return self.store.search(vector, k, side=self.side, distance=self.distance, where=filter)

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update items; during a migration their marks are taken off.

        Give the added column too if the new model has embedded the items already; otherwise the
        sweep finds them, and until then they have no vector of the past to be found by.
        """
        values = dict(values)
        columns = self.store.columns
        count = len(values[columns.id])
        if self.state is not None and columns.mark("generation") in self.store.describe().columns:
            values.setdefault(columns.new, [None] * count)
            values[columns.mark("generation")] = [None] * count
        self.store.upsert(values)

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete items, with everything that is known of them."""
        self.store.delete(ids)
