"""`Store`: what a vector database adapter does for the migration of one vector column.

The store is the ledger. Beside the owner's columns each row carries the added vector and five
marks, written together in one atomic operation:

| mark          | meaning                                                                       |
| ------------- | ----------------------------------------------------------------------------- |
| `generation`  | what the added vector is: `aligned`, `new`, `waiting` (none yet) or no value    |
| `model`       | which alignment or encoder made it                                            |
| `variance`    | predicted squared error of an aligned vector                                  |
| `priority`    | the order of backfilling, highest first                                       |
| `fingerprint` | of the old vector and the input that the added vector was made from           |

A row is *settled* when its generation has a value, its model is the current one of that generation
and its fingerprint is that of the row's present content. Whatever else is found is work to do, so
writers need not know of the migration: rows that they insert have no marks, rows that they change
have a fingerprint of the past.

Documents are small named blobs with a version, replaced by compare-and-set: the migration's state,
the leases, the alignment, the audit trail. An adapter implements no policy of any kind.

A `Store` is five parts that can be written one by one: `Documents`, `Schema`, `Reads`, `Writes` and
`Search`, and a sixth, `Swaps`, where it can rename vectors. `fastfill.gallery.composed` puts them
together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.features import Array, Distance, Matrix
from fastfill.gallery.hits import Hits, Side
from fastfill.gallery.where import Where, as_where, part_tag

Id = str | int
Generation = Literal["aligned", "new", "waiting"]
Notify = Callable[[str, float], None]  # why we wait, and for how many seconds
MARKS = ("generation", "model", "variance", "priority", "fingerprint")
Layout = Literal["columns", "side"]  # where the added vectors and the marks are kept


@dataclass(frozen=True)
class Columns:
    """The names of the columns, the owner's three, the added vector and the marks, and the rows.

    A part of the rows has added columns of its own, so that parts do not meet.

    >>> columns = Columns(id="id", input="text", old="vector")
    >>> columns.new, columns.mark("model")
    ('vector_new', 'ff_vector_model')
    >>> Columns(id="id", input="text", old="vector", where=(("tenant", "7"),)).new
    'vector_new_3ce325ff'
    """

    id: str
    input: str | None
    old: str
    new: str = ""
    marks: str = ""  # how the names of the marks begin
    where: Where = ()  # the rows: those with these values in these columns
    layout: Layout = "columns"  # of the owner's table, or `side`: of a table of FastFill's own

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", as_where(self.where))
        object.__setattr__(self, "new", self.new or f"{self.old}_new{self._suffix}")
        object.__setattr__(self, "marks", self.marks or f"ff_{self.old}{self._suffix}")

    def mark(self, name: str) -> str:
        """The column of a mark."""
        return f"{self.marks}_{name}"

    @property
    def swapped(self) -> Columns:
        """The same after a cut-over: the new vectors bear the owner's name.

        >>> swapped = Columns(id="id", input="text", old="vector").swapped
        >>> swapped.old, swapped.new, swapped.mark("model"), swapped.swapped_back.new
        ('vector_old', 'vector', 'ff_vector_model', 'vector_new')
        """
        return replace(self, old=f"{self.old}_old{self._suffix}", new=self.old)

    @property
    def swapped_back(self) -> Columns:
        """What `swapped` was made of."""
        return replace(self, old=self.new, new=f"{self.new}_new{self._suffix}")

    @property
    def _suffix(self) -> str:
        return f"_{part_tag(self.where)}" if self.where else ""

    def side(self, side: Side) -> str:
        """The column that holds the old or the added vectors."""
        return self.old if side == "old" else self.new

    @property
    def added(self) -> tuple[str, ...]:
        """Every column that the migration adds, the vector first."""
        return (self.new, *(self.mark(name) for name in MARKS))


@dataclass(frozen=True)
class Description:
    """What the store says about the column to be migrated."""

    count: Callable[[], int]  # where it takes time, only whoever wants the rows should wait
    old_dim: int
    new_dim: int | None  # None until the added column exists
    distance: Distance | None  # of the index on the old column; None where there is no index
    columns: tuple[str, ...]
    batch: int  # rows that the store likes to be given in one write
    beside: bool = True  # does a scan beside its writes save time?
    parallel: bool = False  # do two searches at the same time take less than one after the other?

    @cached_property
    def rows(self) -> int:
        """Rows of the table, counted when first asked for."""
        return self.count()


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows as they were read, to be written back only if they are still the same.

    `seen` is what the store compares at the write, `held` what it need not read again then; they
    mean nothing to anyone else.
    """

    ids: NDArray[np.object_]
    old: Matrix  # (n, d_old), NaN where the row has no old vector
    inputs: NDArray[np.object_]  # text, bytes or None
    generation: NDArray[np.object_]  # Generation or None
    model: NDArray[np.object_]  # text or None
    seen: Array  # (n, …)
    new: Matrix | None = None  # (n, d_new), NaN where there is none; only when asked for
    held: Any = None  # of these rows and perhaps others

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """(n,) rows with an old vector that can be aligned."""
        return np.asarray(np.isfinite(self.old).all(axis=1))

    def take(self, index: Array) -> Rows:
        """Some of the rows, by positions or by a mask; all of them without a copy."""
        if index.dtype == bool and index.all():
            return self
        return replace(
            self,
            ids=self.ids[index],
            old=self.old[index],
            inputs=self.inputs[index],
            generation=self.generation[index],
            model=self.model[index],
            seen=self.seen[index],
            new=None if self.new is None else self.new[index],
        )


@dataclass(frozen=True, eq=False)
class Picked:
    """Rows to embed, the most urgent first, and where the store saw them.

    A place saves the store a search for the row. It means nothing to anyone else, and may be out of
    date: then the row is found by its id.

    >>> picked = Picked(objects(["a", "b", "c"]), np.array([7, 8, 9]))
    >>> picked.take(slice(1, None)).ids.tolist(), picked.take([2, 0]).places
    (['b', 'c'], array([9, 7]))
    """

    ids: NDArray[np.object_]
    places: Array | None = None  # (n, …)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, index: Array | Sequence[int] | slice) -> Picked:
        """Some of the rows, by positions, by a mask or by a slice."""
        if not isinstance(index, slice | np.ndarray):
            index = np.asarray(index, dtype=np.int64)
        return Picked(self.ids[index], None if self.places is None else self.places[index])


@dataclass(frozen=True, eq=False)
class Marks:
    """What is written beside the vectors of a batch; the store adds the fingerprint."""

    generation: Generation
    model: str
    variance: NDArray[np.float32] | None = None  # (n,)
    priority: NDArray[np.float32] | None = None  # (n,)

    def take(self, index: Array) -> Marks:
        """Those of some of the rows, by positions."""
        numbers = (self.variance, self.priority)
        some = (None if values is None else values[index] for values in numbers)
        return Marks(self.generation, self.model, *some)


@dataclass(frozen=True)
class Settled:
    """The models whose vectors are right at present: all others are work to do.

    >>> settled = Settled(aligned="map", new="model")
    >>> settled.is_right("aligned", "map"), settled.is_right("new", "map")
    (True, False)
    """

    aligned: str | None
    new: str

    @cached_property
    def models(self) -> dict[Generation, str]:
        """The model that is right, for each generation that can be."""
        later: dict[Generation, str] = {"new": self.new, "waiting": self.new}
        return later if self.aligned is None else {"aligned": self.aligned, **later}

    def is_right(self, generation: str | None, model: str | None) -> bool:
        """Do these marks stand for an added vector that can stay, if the content is the same?"""
        return model is not None and (generation, model) in self.models.items()


@dataclass(frozen=True)
class Document:
    """A named blob and the version that the next write must name."""

    value: bytes
    version: int


class Documents(Protocol):
    """Small named blobs that outlive the process, replaced by compare-and-set."""

    def load(self, name: str) -> Document | None:
        """The document, or None."""
        ...

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version` (0: there is none); was it written?"""
        ...

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`, in order."""
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents; those that do not exist are no error."""
        ...

    def now(self) -> float:
        """Seconds of the epoch, by one clock for all processes where the store has a clock."""
        ...


class Schema(Protocol):
    """What the collection holds, and the columns that a migration adds."""

    @property
    def added(self) -> tuple[str, ...]:
        """Names of everything that a migration adds, the vector first."""
        ...

    def occupied(self) -> tuple[str, ...]:
        """Those of the `added` names that exist already.

        Before a migration begins only someone else can have made them. Documents of FastFill's own
        do not count: they outlive a migration.
        """
        ...

    def bind(self, columns: Columns) -> None:
        """Say which columns hold what; those of the owner must exist.

        With `columns.where` no row but those of that part is read, counted, found or written. A
        store that cannot do that refuses.
        """
        ...

    def describe(self) -> Description:
        """Rows, dimensions and distance; changes nothing."""
        ...

    def expand(self, dim: int) -> None:
        """Add the vector column of `dim` dimensions and the marks; what exists stays as it is."""
        ...

    def contract(self) -> None:
        """Drop the added columns, whichever of them exist."""
        ...

    def drop_old(self) -> None:
        """Drop the old vectors and the marks; the added vectors stay."""
        ...


class Reads(Protocol):
    """Rows with their marks, as they are now."""

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right, each once, while others write.

        Without `changed` the marks alone are looked at; with it also the fingerprints. With `new`
        the added vectors come with the rows that have no marks, and perhaps with others.
        """
        ...

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation (None: all rows) in no particular order."""
        ...

    def read(self, rows: Sequence[Id] | Picked, *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now, in any order; those that are gone are left out.

        Without `old` the store may leave the old vectors out (NaN), but for what it needs itself,
        and need not compare them when the rows are written: a new vector is made of the input. A
        sweep must find a vector that has changed since marks were last written or it was read.
        """
        ...

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """One column of the owner's for these rows, by id; rows that are gone are left out."""
        ...

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> Picked:
        """Rows of a generation by falling priority, without those of some ids."""
        ...

    def sample(self, limit: int, seed: int, *, new: bool = False) -> list[Id]:
        """Random ids of rows that have an old vector and an input and are not new.

        With `new` of rows that are new, whatever else they have; such as their owner has deleted
        may be among them.
        """
        ...

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model), counted in the store."""
        ...

    def estimate(self) -> dict[tuple[str | None, str | None], int] | None:
        """About the same, at a cost that does not grow with the rows; None where there is no such.

        It may miss what the application has inserted, deleted or taken the marks off lately.
        """
        ...


class Writes(Protocol):
    """What the migration writes, and what an application that knows of it does."""

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """Write added vectors (None: no vector) and marks, those of a row in one atomic operation.

        Compare-and-set, row by row: a row is written only if its old vector, its input, its
        generation and its model are still those in `rows`; its old vector may be another one if
        `rows` were read without. Returns how many were written.
        """
        ...

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id; columns that are not named stay as they are."""
        ...

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        ...


class Search(Protocol):
    """Queries, and the indexes that they use."""

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
        """The k nearest rows to `vector` (d,) that equal `where` in every column named there.

        With `vectors` the old and the added vector of each come with them, read in the same query;
        if it names a side, that one alone.
        The two sides may be searched by two threads at the same time.
        """
        ...

    def indexed(self, side: Side) -> bool:
        """Is there an approximate index on the column?"""
        ...

    def build_index(self, side: Side, distance: Distance) -> None:
        """Build or rebuild the approximate index without blocking writers."""
        ...

    def optimize(self) -> None:
        """Compact, bring indexes up to date, let go of what no reader needs.

        This is housekeeping: where others are in the way it is left for the next time.
        """
        ...


class Swaps(Protocol):
    """The cut-over under the owner's name, and the way back.

    Each call is given the columns as they are before the cut-over, and may be repeated after a
    crash. A store that cannot do it refuses in `check_swap`.
    """

    def check_swap(self, columns: Columns) -> None:
        """Refuse what cannot be swapped, before anything is changed."""
        ...

    def swap(self, columns: Columns, settled: Settled) -> int:
        """Make `columns.swapped` true at one moment, unless rows are not settled: how many?

        With rows in the way nothing is changed.
        """
        ...

    def swap_back(self, columns: Columns, dim: int) -> None:
        """Make `columns` true again; the new vectors have `dim` dimensions."""
        ...

    def end_swap(self, columns: Columns, swapped: bool) -> None:
        """Drop what only a swap, or the way back, needed while readers were told of it."""
        ...


class Store(Documents, Schema, Reads, Writes, Search, Swaps, Protocol):
    """One vector column of one collection, and what the migration keeps beside it."""

    notify: Notify  # called before every wait; may raise, to give up, and must not use the store
    reconnect_for: float  # seconds for which a lost connection is sought again
    part: str  # whose documents are meant: a tag of `where.part_tag`; empty: of all rows

    @property
    def name(self) -> str:
        """Where this is, for people: without any password."""
        ...

    @property
    def column(self) -> str:
        """The vector column that is migrated."""
        ...

    @property
    def columns(self) -> Columns:
        """The names in use; an error before `bind`."""
        ...

    def check_drop_old(self) -> None:
        """Refuse to drop old vectors where they cannot be dropped, before anything is changed."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


def objects(values: Sequence[Any] | Array) -> NDArray[np.object_]:
    """A 1-D array of Python objects, whatever they are.

    >>> objects(["a", b"b", None]).shape
    (3,)
    """
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array
