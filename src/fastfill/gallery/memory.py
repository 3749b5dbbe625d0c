"""The in-memory store: the obvious version that every adapter is compared with."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.errors import StoreError
from fastfill.features import Distance, Matrix, as_matrix, pairwise
from fastfill.gallery.base import DocumentNames, StoreContext, ids_of
from fastfill.gallery.fingerprint import fingerprints
from fastfill.gallery.hits import Hits, Side, wanted_sides
from fastfill.gallery.store import (
    MARKS,
    Columns,
    Description,
    Document,
    Generation,
    Id,
    Marks,
    Picked,
    Rows,
    Settled,
    objects,
)

Row = dict[str, Any]


class MemoryStore(StoreContext):
    """Rows as dictionaries behind one lock.

    >>> store = MemoryStore({"id": [1, 2], "text": ["a", "b"], "vector": [[1.0, 0.0], [0.0, 1.0]]})
    >>> store.bind(Columns(id="id", input="text", old="vector"))
    >>> store.describe().rows
    2
    """

    takes_parts = True

    def __init__(
        self,
        values: Mapping[str, Sequence[Any]],
        *,
        id: str = "id",
        column: str = "vector",
        distance: Distance | None = None,
    ) -> None:
        super().__init__("memory", column)
        self._key = id
        self._distance = distance
        self._lock = threading.RLock()
        self._rows: dict[Id, Row] = {}
        self._names: list[str] = list(values)
        self._documents: dict[str, Document] = {}
        self._dims = {column: as_matrix([v for v in values[column] if v is not None]).shape[1]}
        self._indexed: set[str] = set() if distance is None else {column}
        self.upsert(values)

    # --- what is there -------------------------------------------------------------------------

    @property
    def added(self) -> tuple[str, ...]:
        """The vector and the marks."""
        return self.columns.added

    def occupied(self) -> tuple[str, ...]:
        """Those of the `added` names that exist already."""
        return tuple(name for name in self.added if name in self._names)

    def bind(self, columns: Columns) -> None:
        """Say which columns hold what."""
        self.use_columns(columns, self._names)

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        return Description(
            count=lambda: len(self._mine()),
            old_dim=self._dims.get(self.columns.old, 0),
            new_dim=self._dims.get(self.columns.new),
            distance=self._distance,
            columns=tuple(self._names),
            batch=4_096,
        )

    # --- expand and contract -------------------------------------------------------------------

    def expand(self, dim: int) -> None:
        """Add the vector column and the marks."""
        with self._lock:
            self.require_dim(dim, self._dims.setdefault(self.columns.new, dim))
            self._names.extend(n for n in self.columns.added if n not in self._names)

    def contract(self) -> None:
        """Drop the added columns."""
        self._drop(self.columns.added)

    def drop_old(self) -> None:
        """Drop the old vectors and the marks."""
        self._drop((self.columns.old, *(self.columns.mark(name) for name in MARKS)))

    def _drop(self, names: Sequence[str]) -> None:
        with self._lock:
            self._names = [n for n in self._names if n not in names]
            for name in names:
                self._dims.pop(name, None)
                self._indexed.discard(name)
            for row in self._rows.values():
                for name in names:
                    row.pop(name, None)

    # --- the cut-over --------------------------------------------------------------------------

    def check_swap(self, columns: Columns) -> None:
        """Refuse a part: its vectors share a column with others."""
        if columns.where:
            raise StoreError(f"{self.name}: only a whole column can be swapped.")

    def swap(self, columns: Columns, settled: Settled) -> int:
        """Rename both columns, unless a row is not settled."""
        with self._lock:
            blocks = self.unsettled(settled, batch=4_096, changed=True)
            if in_the_way := sum(map(len, blocks)):
                return in_the_way
            self._rename(columns.old, columns.swapped.old)
            self._rename(columns.new, columns.swapped.new)
        return 0

    def swap_back(self, columns: Columns, dim: int) -> None:
        """Rename both columns again."""
        with self._lock:
            self._rename(columns.swapped.new, columns.new)
            self._rename(columns.swapped.old, columns.old)

    def _rename(self, before: str, after: str) -> None:
        if after in self._names or before not in self._names:
            return
        self._names[self._names.index(before)] = after
        self._dims[after] = self._dims.pop(before)
        for row in self._rows.values():
            row[after] = row.pop(before, None)

    # --- reading -------------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""

        def wrong(row: Row) -> bool:
            mark = self._mark
            if not settled.is_right(mark(row, "generation"), mark(row, "model")):
                return True
            return changed and mark(row, "fingerprint") != self._fingerprint(row)

        yield from self._blocks(wrong, batch, new)

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation."""
        yield from self._blocks(
            lambda row: generation is None or self._mark(row, "generation") == generation,
            batch,
            new,
        )

    def read(self, rows: Sequence[Id] | Picked, *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now."""
        with self._lock:
            mine = self._mine()
            return self._as_rows([mine[key] for key in ids_of(rows) if key in mine], new)

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """One column of these rows."""
        self.require_column(column, self._names)
        with self._lock:
            mine = self._mine()
            return {key: mine[key].get(column) for key in ids if key in mine}

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> Picked:
        """Rows of a generation by falling priority."""
        with self._lock:
            urgency = [
                (-(self._mark(row, "priority") or 0.0), key)
                for key, row in self._mine().items()
                if self._mark(row, "generation") == generation and key not in exclude
            ]
        best = sorted(urgency, key=lambda pair: pair[0])[:limit]
        return Picked(objects([key for _, key in best]))

    def sample(self, limit: int, seed: int, *, new: bool = False) -> list[Id]:
        """Random ids of rows that can be paired and are not new, or of those that are `new`."""
        with self._lock:
            ids = [
                key
                for key, row in self._mine().items()
                if (self._mark(row, "generation") == "new") == new
                and (new or self._can_be_paired(row))
            ]
        return random.Random(seed).sample(ids, min(limit, len(ids)))

    def _can_be_paired(self, row: Row) -> bool:
        columns = self.columns
        return row.get(columns.old) is not None and row.get(columns.input or "") is not None

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model)."""
        with self._lock:
            rows = list(self._mine().values())
        return dict(Counter((self._mark(r, "generation"), self._mark(r, "model")) for r in rows))

    def estimate(self) -> None:
        """No other way than to count."""

    # --- writing -------------------------------------------------------------------------------

    def write(self, rows: Rows, vectors: Matrix | None, marks: Marks) -> int:
        """Write added vectors and marks where the row is still what was read."""
        written = 0
        with self._lock:
            for position, key in enumerate(rows.ids):
                row = self._rows.get(key)
                if row is None or not self._is_mine(row) or not self._same(row, rows, position):
                    continue
                values = (
                    marks.generation,
                    marks.model,
                    None if marks.variance is None else float(marks.variance[position]),
                    None if marks.priority is None else float(marks.priority[position]),
                    self._fingerprint(row),
                )
                row.update(zip(map(self.columns.mark, MARKS), values, strict=True))
                row[self.columns.new] = None if vectors is None else vectors[position].copy()
                written += 1
        return written

    def _same(self, row: Row, rows: Rows, position: int) -> bool:
        return bool(
            self._fingerprint(row) == rows.seen[position]
            and self._mark(row, "generation") == rows.generation[position]
            and self._mark(row, "model") == rows.model[position]
        )

    def upsert(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Insert or update rows by id."""
        with self._lock:
            for position, key in enumerate(values[self._key]):
                row = self._rows.setdefault(key, {})
                for name, column in values.items():
                    value = column[position]
                    is_vector = name in self._dims and value is not None
                    row[name] = np.array(value, dtype=np.float32) if is_vector else value

    def delete(self, ids: Sequence[Id]) -> None:
        """Delete rows."""
        with self._lock:
            for key in set(ids) & set(self._mine()):
                del self._rows[key]

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
        """The k nearest rows, by exact search."""
        column = self.columns.side(side)
        with self._lock:
            rows = [
                row
                for row in self._mine().values()
                if row.get(column) is not None
                and all(row.get(name) == value for name, value in (where or {}).items())
            ]
        distances = np.zeros(0, np.float32)
        if rows:
            query = np.asarray(vector, dtype=np.float32)[None, :]
            distances = pairwise(query, np.stack([row[column] for row in rows]), distance)[0]
        best = np.argsort(distances, kind="stable")[:k]
        nearest = [rows[i] for i in best]
        return Hits(
            objects([row[self._key] for row in nearest]),
            distances[best].astype(np.float32),
            objects([self._mark(row, "generation") for row in nearest]),
            **{each: self._vectors(nearest, each) for each in wanted_sides(vectors)},
        )

    def _vectors(self, rows: Sequence[Row], side: Side) -> Matrix | None:
        column = self.columns.side(side)
        return self._matrix(rows, column) if column in self._dims else None

    def indexed(self, side: Side) -> bool:
        """Has `build_index` been called?"""
        return self.columns.side(side) in self._indexed

    def build_index(self, side: Side, distance: Distance) -> None:
        """Remember that an index was asked for; every search here is exact."""
        self._indexed.add(self.columns.side(side))

    def optimize(self) -> None:
        """Nothing to do."""

    # --- documents -----------------------------------------------------------------------------

    def load(self, name: str) -> Document | None:
        """The document, or None."""
        return self._documents.get(self._document_names.full(name))

    def save(self, name: str, value: bytes, version: int) -> bool:
        """Write if the stored version is still `version`."""
        full = self._document_names.full(name)
        with self._lock:
            have = self._documents.get(full)
            if (have.version if have else 0) != version:
                return False
            self._documents[full] = Document(value, version + 1)
            return True

    def now(self) -> float:
        """By the clock of this machine."""
        return time.time()

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`."""
        return self._document_names.own(self._documents, prefix)

    def remove(self, names: Sequence[str]) -> None:
        """Forget these documents."""
        with self._lock:
            for name in names:
                self._documents.pop(self._document_names.full(name), None)

    @property
    def _document_names(self) -> DocumentNames:
        return DocumentNames("", self.part)

    # --- inside --------------------------------------------------------------------------------

    def _mine(self) -> dict[Id, Row]:
        """The rows of the part that is migrated, by id."""
        return {key: row for key, row in self._rows.items() if self._is_mine(row)}

    def _is_mine(self, row: Row) -> bool:
        return all(str(row.get(name)) == value for name, value in self.where)

    def _mark(self, row: Row, name: str) -> Any:
        return row.get(self.columns.mark(name))

    def _fingerprint(self, row: Row) -> str:
        old = row.get(self.columns.old)
        vector = np.zeros((1, 1), np.float32) if old is None else old[None, :]
        content = row.get(self.columns.input or "")
        return str(fingerprints(vector, np.array([old is not None]), [content])[0], "ascii")

    def _blocks(self, wanted: Callable[[Row], bool], batch: int, new: bool) -> Iterator[Rows]:
        with self._lock:
            ids = [key for key, row in self._mine().items() if wanted(row)]
        for start in range(0, len(ids), batch):
            with self._lock:
                there = [self._rows.get(key) for key in ids[start : start + batch]]
                rows = [row for row in there if row is not None and wanted(row)]
                rows = [row for row in rows if self._is_mine(row)]
                block = self._as_rows(rows, new)
            if len(block):
                yield block

    def _as_rows(self, rows: Sequence[Row], new: bool) -> Rows:
        return Rows(
            ids=objects([row[self._key] for row in rows]),
            old=self._matrix(rows, self.columns.old),
            inputs=objects([row.get(self.columns.input or "") for row in rows]),
            generation=objects([self._mark(row, "generation") for row in rows]),
            model=objects([self._mark(row, "model") for row in rows]),
            seen=objects([self._fingerprint(row) for row in rows]),
            new=self._matrix(rows, self.columns.new) if new else None,
        )

    def _matrix(self, rows: Sequence[Row], column: str) -> NDArray[np.float32]:
        matrix = np.full((len(rows), self._dims.get(column, 1)), np.nan, dtype=np.float32)
        for position, row in enumerate(rows):
            if row.get(column) is not None:
                matrix[position] = row[column]
        return matrix
