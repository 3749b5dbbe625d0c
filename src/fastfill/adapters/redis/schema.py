"""The fields and indexes: what there is, what a migration adds and takes away."""

from __future__ import annotations

import time

from fastfill.adapters.redis.context import RedisContext
from fastfill.errors import StoreError, some
from fastfill.gallery import MARKS, Columns, Description
from fastfill.gallery.base import batch_rows

BATCH_NUMBERS = 500_000  # floats of the rows that are read or written together
POLL = 0.02  # seconds between two looks whether it is ready
INDEXED_IN = 600.0  # seconds to wait for an index over the hashes that are there


class RedisSchema:
    """More fields in the owner's hashes, and an index of our own over them."""

    def __init__(self, context: RedisContext) -> None:
        self._context = context

    @property
    def added(self) -> tuple[str, ...]:
        """The fields, the index of the added vectors, the hash of documents."""
        context = self._context
        return (*context.columns.added, context.added_name, context.documents)

    def occupied(self) -> tuple[str, ...]:
        """Those of the `added` names that exist already."""
        context = self._context
        taken = set(context.hashes.fields())
        if context.look() is not None:
            taken |= {context.added_name, context.columns.new}
        return tuple(name for name in self.added if name in taken)

    def bind(self, columns: Columns) -> None:
        """Say which field holds the input; hashes are known by their keys."""
        context, hashes = self._context, self._context.hashes
        if columns.id != "id":
            raise StoreError(
                f"{context.name}: hashes are known by their keys, not by '{columns.id}'. "
                "Leave --id out."
            )
        if columns.input is not None and not hashes.any_has(columns.input) and hashes.keys():
            raise StoreError(
                f"{context.name}: no hash has a field '{columns.input}', only "
                f"{some(hashes.fields()) or 'none at all'}."
            )
        context.use_columns(columns, {"id", columns.input or ""})
        context.look()

    def describe(self) -> Description:
        """Rows, dimensions and distance."""
        context = self._context
        context.look()
        dim = max(context.vector.dim, context.new_dim or 1)
        return Description(
            count=lambda: len(context.hashes.keys()),
            old_dim=context.vector.dim,
            new_dim=context.new_dim,
            distance=context.vector.distance,
            columns=self._columns(),
            batch=batch_rows(BATCH_NUMBERS, dim, least=64, most=4_096),
        )

    def _columns(self) -> tuple[str, ...]:
        context, columns = self._context, self._context.columns
        marks = [columns.mark(name) for name in MARKS]
        ours = {columns.new, *marks, context.vector.field}
        have, old = context.hashes.fields(), context.vector.field
        names = ["id", *(name for name in have if name not in ours)]
        names += [context.column] if old in have or context.hashes.any_has(old) else []
        names += [columns.new] if context.new_dim else []
        names += marks if context.marked() else []
        return tuple(dict.fromkeys(names))

    # --- expand and contract -------------------------------------------------------------------

    def expand(self, dim: int) -> None:
        """Make the index of the added vectors, which can filter as the owner's does."""
        context, columns = self._context, self._context.columns
        if context.look() is not None:
            context.require_dim(dim, context.new_dim)
            return
        owner, old = context.owner, context.vector.settings
        vector = ["TYPE", "FLOAT32", "DIM", dim, "DISTANCE_METRIC", old["distance_metric"]]
        schema = [part for field in owner.copied for part in field.schema]
        context.connection.run(
            *("FT.CREATE", context.added_name, "ON", "HASH"),
            *("PREFIX", len(owner.prefixes), *owner.prefixes, "SCHEMA", *schema),
            *(columns.new, "VECTOR", old.get("algorithm", "HNSW"), len(vector), *vector),
            *(columns.mark("generation"), "TAG"),
            *(columns.mark("priority"), "NUMERIC", "SORTABLE"),
        )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + INDEXED_IN
        while (index := self._context.look()) is not None and index.indexing:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{self._context.name}: the index of the added vectors takes longer than "
                    f"{INDEXED_IN:.0f} s. Run the command again when it is ready."
                )
            self._context.notify("Redis is indexing", POLL)
            time.sleep(POLL)

    def contract(self) -> None:
        """Take the added fields off, then drop their index, which shows till then what is left."""
        context = self._context
        context.hashes.take_off(context.columns.added)
        if context.look() is not None:
            context.connection.run("FT.DROPINDEX", context.added_name)
        context.look()

    def drop_old(self) -> None:
        """Take the old vectors and the marks off; their field stays in the owner's index."""
        columns = self._context.columns
        marks = [columns.mark(name) for name in MARKS]
        self._context.hashes.take_off([self._context.vector.field, *marks])
