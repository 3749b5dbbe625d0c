"""`ComposedStore`: a store put together from its parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from fastfill.features import Distance, Matrix
from fastfill.gallery.base import StoreContext
from fastfill.gallery.hits import Hits, Side
from fastfill.gallery.store import (
    Columns,
    Description,
    Document,
    Documents,
    Generation,
    Id,
    Marks,
    Notify,
    Picked,
    Reads,
    Rows,
    Schema,
    Search,
    Settled,
    Swaps,
    Writes,
)


class ComposedStore:
    """Hands every call on to the part whose work it is; what the parts share is the context.

    >>> from fastfill.gallery import MemoryStore
    >>> every = MemoryStore({"id": [1], "text": ["a"], "vector": [[1.0, 0.0]]})
    >>> store = ComposedStore(
    ...     every, documents=every, schema=every, reads=every, writes=every, search=every
    ... )
    >>> store.bind(Columns(id="id", input="text", old="vector"))
    >>> store.name, store.read([1]).inputs.tolist()
    ('memory', ['a'])
    """

    def __init__(
        self,
        context: StoreContext,
        *,
        documents: Documents,
        schema: Schema,
        reads: Reads,
        writes: Writes,
        search: Search,
        swaps: Swaps | None = None,
    ) -> None:
        self._context = context
        self._documents = documents
        self._schema = schema
        self._reads = reads
        self._writes = writes
        self._search = search
        self._swaps = context if swaps is None else swaps

    # --- the context ---------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Where this is, for people."""
        return self._context.name

    @property
    def column(self) -> str:
        """The vector column that is migrated."""
        return self._context.column

    @property
    def columns(self) -> Columns:
        """The names in use."""
        return self._context.columns

    @property
    def notify(self) -> Notify:
        """Called before every wait for the store."""
        return self._context.notify

    @notify.setter
    def notify(self, notify: Notify) -> None:
        self._context.notify = notify

    @property
    def reconnect_for(self) -> float:
        """Seconds for which a lost connection is sought again."""
        return self._context.reconnect_for

    @reconnect_for.setter
    def reconnect_for(self, seconds: float) -> None:
        self._context.reconnect_for = seconds

    @property
    def part(self) -> str:
        """Whose documents are meant."""
        return self._context.part

    @part.setter
    def part(self, part: str) -> None:
        self._context.part = part

    def check_drop_old(self) -> None:
        """Refuse to drop old vectors that cannot be dropped."""
        self._context.check_drop_old()

    def close(self) -> None:
        """Let go of connections."""
        self._context.close()

    # --- the schema ----------------------------------------------------------------------------

    @property
    def added(self) -> tuple[str, ...]:
        """Names of everything that a migration adds."""
        return self._schema.added

    def occupied(self) -> tuple[str, ...]:
        """Those of the `added` names that exist already."""
        return self._schema.occupied()

    def bind(self, columns: Columns) -> None:
        """Say which columns hold what."""
        self._schema.bind(columns)

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        return self._schema.describe()

    def expand(self, dim: int) -> None:
        """Add the vector column and the marks."""
        self._schema.expand(dim)

    def contract(self) -> None:
        """Drop the added columns."""
        self._schema.contract()

    def drop_old(self) -> None:
        """Drop the old vectors and the marks."""
        self._schema.drop_old()

    # --- reading -------------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""
        return self._reads.unsettled(settled, batch=batch, changed=changed, new=new)

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation."""
        return self._reads.scan(generation, batch=batch, new=new)

    def read(self, rows: Sequence[Id] | Picked, *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now."""
        return self._reads.read(rows, old=old, new=new)

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """One column of these rows."""
        return self._reads.values_of(column, ids)

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> Picked:
        """Rows of a generation by falling priority."""
        return self._reads.pick(generation, limit, exclude)

    def sample(self, limit: int, seed: int, *, new: bool = False) -> list[Id]:
        """Random ids of rows that can be paired and are not new, or of those that are `new`."""
        return self._reads.sample(limit, seed, new=new)

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model)."""
        return self._reads.counts()

    def estimate(self) -> dict[tuple[str | None, str | None], int] | None:
        """About the same, without a look at every row."""
        return self._reads.estimate()

    # --- writing -------------------------------------------------------------------------------

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """Write added vectors and marks where the row is still what was read."""
        return self._writes.write(rows, vectors, marks)

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id."""
        self._writes.upsert(values)

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        self._writes.delete(ids)

    # --- searching -----------------------------------------------------------------------------

    def search(
        self,
        vector: ArrayLike,
        k: int,
        *,
        side: Side,
        distance: Distance,
        where: Mapping[str, Any] | None = None,
        exact: bool = False,
        vectors: bool | Side = False,
    ) -> Hits:
        """The k nearest rows."""
        return self._search.search(
            vector, k, side=side, distance=distance, where=where, exact=exact, vectors=vectors
        )

    def indexed(self, side: Side) -> bool:
        """Is there an approximate index on the column?"""
        return self._search.indexed(side)

    def build_index(self, side: Side, distance: Distance) -> None:
        """Build or rebuild the approximate index."""
        self._search.build_index(side, distance)

    def optimize(self) -> None:
        """Housekeeping."""
        self._search.optimize()

    # --- the cut-over --------------------------------------------------------------------------

    def check_swap(self, columns: Columns) -> None:
        """Refuse what cannot be swapped."""
        self._swaps.check_swap(columns)

    def swap(self, columns: Columns, settled: Settled) -> int:
        """The new vectors under the owner's name; how many rows are in the way?"""
        return self._swaps.swap(columns, settled)

    def swap_back(self, columns: Columns, dim: int) -> None:
        """The old vectors under their own name again."""
        self._swaps.swap_back(columns, dim)

    def end_swap(self, columns: Columns, swapped: bool) -> None:
        """Drop what is left over."""
        self._swaps.end_swap(columns, swapped)

    # --- documents -----------------------------------------------------------------------------

    def load(self, name: str) -> Document | None:
        """The document, or None."""
        return self._documents.load(name)

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version`."""
        return self._documents.save(name, value, version)

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`."""
        return self._documents.names(prefix)

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents."""
        self._documents.remove(names)

    def now(self) -> float:
        """Seconds of the epoch, by the store's clock."""
        return self._documents.now()
