"""`Gallery`: one collection in a store, holding old, aligned and new vectors side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from typing import Any

from numpy.typing import ArrayLike

from fastfill.align import Fusion, Serving, check_serving
from fastfill.errors import InputError, StoreError, some
from fastfill.features import Distance, check_distance
from fastfill.gallery.hits import Hits, Side
from fastfill.gallery.parts import choose_part
from fastfill.gallery.queries import SIDES_OF, Encode, Query, Vector
from fastfill.gallery.serving import candidates_for, fuse_hits
from fastfill.gallery.state import State, load_fusion, load_state
from fastfill.gallery.store import Columns, Description, Id, Store

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
        where: Mapping[str, Any] | None = None,
        query_old: Encode | None = None,
        query_new: Encode | None = None,
    ) -> None:
        """With `query_old` and `query_new`, how each model embeds queries, items can be searched
        by themselves: `gallery.search("a red bicycle")`.

        `where` names the rows that the gallery consists of, by the values of columns: `{"tenant":
        7}`. Without it they are those that were migrated last, by default all.
        """
        self.store = store
        self.asked = {"id": id, "input": input, "distance": distance}  # None: not told
        self._encoders = (query_old, query_new)
        self._fusion: tuple[str, Fusion] | None = None  # by its tag
        self._described: Description | None = None
        self._closed: State | None = None  # a migration that another one is to begin after
        self._read_at = 0.0
        rows = choose_part(store, where)
        self._state = load_state(store)
        mine = self._state is not None and self._state.columns.where == rows
        if self._state is not None and mine and not (self._over and (id or input)):
            self._bind(self._state)
        else:
            store.bind(Columns(id=id or "id", input=input, old=store.column, where=rows))
        if self._over:
            self._check_column()
        self._distance = None if distance is None else check_distance(distance)

    def _check_column(self) -> None:
        """Refuse a column of vectors that does not exist, before anything is asked of it."""
        try:
            have = self.store.describe().columns
        except (
            StoreError
        ):  # something else is wrong, such as a name that is taken: told in its turn
            return
        if self.store.column not in have:
            raise StoreError(
                f"{self.name}: there is no column '{self.store.column}', only {some(have)}."
            )

    @property
    def name(self) -> str:
        """Where this is."""
        return self.store.name

    @property
    def state(self) -> State | None:
        """The migration's state, at most a second old."""
        if time.monotonic() - self._read_at > FRESH:
            before, self._state = self._state, load_state(self.store)
            self._read_at = time.monotonic()
            if self._state != before:
                self._described = None
            if self._state is not None and not self._over:
                self.follow(self._state)
        return self._state

    @property
    def _over(self) -> bool:
        """Is no migration open, nor complete?"""
        return self._state is None or self._state.phase == "rolled back"

    def follow(self, state: State) -> None:
        """Use the names of the state, which a cut-over changes, in whatever process it happens."""
        renamed = state.swapping or self.store.columns != state.columns
        if renamed and state != self._closed:
            self._bind(state)

    def begin_after(self, closed: State) -> None:
        """Take the new vectors of a closed migration for the old ones of the next."""
        self._closed, columns = closed, closed.columns
        key, content = self.asked["id"] or columns.id, self.asked["input"] or columns.input
        self.store.bind(Columns(key, content, columns.new, where=columns.where))

    def _bind(self, state: State) -> None:
        self.store.bind(state.columns)
        if state.swapping:
            self.store.bind(state.columns_among(self.store.describe().columns))
        self._described = None

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
    def serving(self) -> Serving:
        """How queries are answered now: by the old model, by the new one (`aligned`), or `both`."""
        state = self.state
        return "old" if state is None else state.serves

    @property
    def side(self) -> Side:
        """Which vectors the query of one model alone is compared with."""
        return SIDES_OF[self._single][0]

    @property
    def _single(self) -> Serving:
        """What serves, or the better one of the two models where both do."""
        state = self.state
        return "old" if state is None else state.serves_single

    @property
    def fusion(self) -> Fusion:
        """What makes the scores of both models comparable; read from the store once."""
        state = self.state
        tag = None if state is None else state.fusion
        if tag is None:
            raise InputError(
                f"{self.name} has no fusion of its two models: search with serving='old' or "
                "'aligned'."
            )
        if self._fusion is None or self._fusion[0] != tag:
            self._fusion = tag, load_fusion(self.store, tag)
        return self._fusion[1]

    # --- searching -----------------------------------------------------------------------------

    def search(
        self,
        query: ArrayLike | str | bytes | PathLike[str] | None = None,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        *,
        old: ArrayLike | None = None,
        new: ArrayLike | None = None,
        candidates: int | None = None,
        serving: Serving | None = None,
        vector: ArrayLike | None = None,  # what `query` was called before it could be an item
    ) -> Hits:
        """The k nearest items, by the model or the models that serve now.

        `query` is an item, if the gallery knows the query encoders, or the vector of one model
        alone: the one that `side` tells. `old` and `new` are the query's vectors under the two
        models: the one that is not needed is left alone. Where both models serve, the answers are
        chosen from so many `candidates` of each, and their distances are minus the fused scores.
        `serving` asks for another way than the migration's, to measure it.
        """
        asked = Query(vector if query is None else query, old, new, *self._encoders)
        if serving is not None:
            return self._search_by(check_serving(serving), asked, k, filter, candidates)
        serving = self._single if asked.for_one_model else self.serving
        try:
            return self._search_by(serving, asked, k, filter, candidates)
        except StoreError:
            # The column may have been dropped or renamed in the second since the state was read.
            self._read_at, before = -FRESH, self.store.columns
            serving_now = self.serving  # read anew, with the names
            serving_now = serving if asked.for_one_model else serving_now
            if serving_now == serving and self.store.columns == before:
                raise
            return self._search_by(serving_now, asked, k, filter, candidates)

    def _search_by(
        self,
        serving: Serving,
        query: Query,
        k: int,
        filter: Mapping[str, Any] | None,
        candidates: int | None,
    ) -> Hits:
        vectors = query.vectors(serving, self._dims(serving))
        if serving == "both":
            fusion = self.fusion  # of the state that chose this way
            hits = self._search_both(vectors, filter, candidates_for(k, candidates))
            return fuse_hits(fusion, vectors["old"], vectors["new"], *hits, k)
        side = SIDES_OF[serving][0]
        return self.store.search(vectors[side], k, side=side, distance=self.distance, where=filter)

    def search_fused(
        self, fusions: Sequence[Fusion], *, old: ArrayLike, new: ArrayLike, k: int = 10
    ) -> list[Hits]:
        """What each of several fusions answers, out of the same two searches, to compare them."""
        vectors = Query(None, old, new, *self._encoders).vectors("both", self._dims("both"))
        hits = self._search_both(vectors, None, candidates_for(k))
        return [fuse_hits(one, vectors["old"], vectors["new"], *hits, k) for one in fusions]

    def _search_both(
        self, vectors: Mapping[Side, Vector], filter: Mapping[str, Any] | None, candidates: int
    ) -> tuple[Hits, Hits]:
        """The candidates of the old model and of the new one, with their vectors of the other."""
        distance = self.distance

        def by(side: Side, other: Side) -> Hits:
            return self.store.search(
                vectors[side],
                candidates,
                side=side,
                distance=distance,
                where=filter,
                vectors=other,
            )

        if self._description().parallel:
            # A thread of its own takes a tenth of a millisecond, and leaves nothing behind in
            # processes that fork.
            with ThreadPoolExecutor(1) as beside:
                waiting = beside.submit(by, "old", "new")
                by_new = by("new", "old")
            return waiting.result(), by_new
        return by("old", "new"), by("new", "old")

    def _dims(self, serving: Serving) -> dict[Side, int]:
        """The dimensions of both models; 0 where they are not known."""
        old = 0 if serving == "aligned" else self._description().old_dim
        return {"old": old, "new": self.state.dim if self.state else 0}

    def _description(self) -> Description:
        """What the store says of itself; a start or a rollback changes columns and indexes."""
        if self._described is None:
            self._described = self.store.describe()
        return self._described

    # --- writing -------------------------------------------------------------------------------

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update items; during a migration their marks are taken off.

        In a gallery of some rows they get the values that make them part of it.
        Give the added column too if the new model has embedded the items already; otherwise the
        sweep finds them, and until then only searches that use the old model do.
        """
        values = dict(values)
        columns = self.store.columns
        count = len(values[columns.id])
        for name, value in columns.where:
            values.setdefault(name, [value] * count)
        if self.state is not None and columns.mark("generation") in self.store.describe().columns:
            values.setdefault(columns.new, [None] * count)
            values[columns.mark("generation")] = [None] * count
        self.store.upsert(values)

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete items, with everything that is known of them."""
        self.store.delete(ids)
