"""The cut-over under the owner's name: an alias is switched to a copy of the collection.

Qdrant cannot rename a vector. So the points are copied into a second collection, whose vector of
the owner's name is the new one, and the alias that the application asks stands for it from one
moment to the next. What is written to the one collection meanwhile is copied to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from qdrant_client import models

from fastfill.adapters.qdrant.collection import QdrantCollection, behind_alias
from fastfill.adapters.qdrant.context import QdrantContext
from fastfill.adapters.qdrant.copies import (
    Follower,
    all_vectors,
    create_copy,
    same_vectors,
    vectors_of,
)
from fastfill.adapters.qdrant.documents import QdrantDocuments
from fastfill.adapters.qdrant.layout import QdrantLayout
from fastfill.adapters.qdrant.points import payload_hash
from fastfill.adapters.qdrant.reads import wrong_rows
from fastfill.errors import StoreError
from fastfill.gallery import Columns, Id, Rows, Settled

COPY = "copy"  # the document that says that a collection of the copy's name is ours
PASSES = 5  # before the alias is switched although others go on writing


class QdrantSwaps:
    """Passes over all points until none has changed, the switch, and one more pass."""

    def __init__(self, context: QdrantContext, documents: QdrantDocuments) -> None:
        self._context, self._documents = context, documents

    def check_swap(self, columns: Columns) -> None:
        """Refuse a collection that is asked by its own name: no alias can have that."""
        context = self._context
        if behind_alias(context.connection, context.given) is None:
            raise StoreError(
                f"{context.name}: Qdrant can rename neither vectors nor collections, so that only "
                f"an alias can be switched, and '{context.given}' is the collection itself. Let "
                "the application query through an alias and give its URL here, or complete without "
                f"--swap, and let the application query '{columns.new}'."
            )
        copy = context.existing(context.copies.after)
        if copy is not None and self._documents.load(COPY) is None:
            raise StoreError(
                f"{context.name}: there is already a collection '{copy.name}', which no swap has "
                "made. Rename it or delete it: the copy gets that name."
            )

    def swap(self, columns: Columns, settled: Settled) -> int:
        """Copy, switch, look again: a writer may have been as quick."""
        context = self._context
        context.look_behind_alias()
        if context.switched():  # although nobody heard of it
            home, copy = context.copied_from(), context.owner
            copying = _Copying(self._layout(columns, home), copy, settled)
            copying.look()
        else:
            home, copy = context.owner, QdrantCollection(context.connection, context.copies.after)
            copying = self._copy(self._layout(columns, home), copy, settled)
        if copying.wrong:
            self._switch_back(_Returning(copying.layout, copy, home, copying.wrong))
            self._drop(copy)
            self._documents.remove([COPY])
        context.forget_layout()
        return len(copying.wrong)

    def _copy(self, layout: QdrantLayout, copy: QdrantCollection, settled: Settled) -> _Copying:
        """Copy until nothing has changed, switch, and copy what was written till then."""
        if self._documents.load(COPY) is None:  # said first, so that a crash leaves nobody's behind
            self._documents.save(COPY, copy.name.encode(), 0)
        self._drop(copy)
        create_copy(layout.owner, copy, layout.old, layout.new_dim or 1)
        copying = _Copying(layout, copy, settled)
        copying.until_equal()
        if not copying.wrong:
            self._switch(copy.name)
            copying.once()
        return copying

    def swap_back(self, columns: Columns, dim: int) -> None:
        """Switch the alias back, with what the application has changed in between."""
        context = self._context
        context.look_behind_alias()
        if context.switched():
            home, copy = context.copied_from(), context.owner
            self._switch_back(_Returning(self._layout(columns, home), copy, home, set()))
        context.forget_layout()

    def end_swap(self, columns: Columns, swapped: bool) -> None:
        """After the way back, drop the copy."""
        self._context.look_behind_alias()
        if not swapped:
            self._drop(QdrantCollection(self._context.connection, self._context.copies.after))
        self._documents.remove([COPY])
        self._context.forget_layout()

    def _layout(self, columns: Columns, owner: QdrantCollection) -> QdrantLayout:
        """Where everything was before the swap."""
        self._context.use_columns(columns, {"id", columns.input or ""})
        self._context.owner = owner
        return self._context.look()

    def _drop(self, copy: QdrantCollection) -> None:
        if copy.exists():
            copy.ask("delete_collection")

    def _switch(self, collection: str) -> None:
        """Let the alias stand for another collection, in one operation."""
        context, alias = self._context, self._context.given
        delete = models.DeleteAlias(alias_name=alias)
        create = models.CreateAlias(collection_name=collection, alias_name=alias)
        operations = [
            models.DeleteAliasOperation(delete_alias=delete),
            models.CreateAliasOperation(create_alias=create),
        ]
        context.connection.ask("update_collection_aliases", change_aliases_operations=operations)
        context.look_behind_alias()

    def _switch_back(self, returning: _Returning) -> None:
        self._context.look_behind_alias()
        if self._context.owner.name != returning.home.name:
            returning.until_equal()
            self._switch(returning.home.name)
            returning.once()


class _Copying:
    """The owner's points, with their new vectors under the owner's name."""

    def __init__(self, layout: QdrantLayout, copy: QdrantCollection, settled: Settled) -> None:
        self.layout, self._copy, self._settled = layout, copy, settled
        self._follower = Follower(layout.owner, layout.batch)
        self.wrong: set[Id] = set()  # ids of rows in the way

    def until_equal(self) -> None:
        """Pass after pass until nothing has changed, or rows are in the way."""
        for _ in range(PASSES):
            changed = self._follower.follow(self._write, self._forget)
            if self.wrong or not changed:
                return

    def once(self) -> None:
        """Copy what has been written since."""
        self._follower.follow(self._write, self._forget)

    def look(self) -> None:
        """Look for rows in the way alone."""
        self._follower.follow(self._check, lambda _: None)

    def _check(self, points: list[Any]) -> Rows:
        rows = self.layout.rows(points, new=True)
        self.wrong.update(rows.ids[wrong_rows(rows, self._settled)])
        return rows

    def _write(self, points: list[Any]) -> None:
        rows, copies = self._check(points), []
        added = rows.old if rows.new is None else rows.new
        for point, vector in zip(points, added, strict=True):
            if point.id in self.wrong:
                continue
            vectors = _others(self.layout, point)
            if np.isfinite(vector).all():
                vectors[self.layout.old] = vector.tolist()
            copies.append(models.PointStruct(id=point.id, vector=vectors, payload=point.payload))
        if copies:
            self._copy.ask("upsert", points=copies, wait=True)

    def _forget(self, ids: Sequence[Id]) -> None:
        _delete(self._copy, ids)


class _Returning:
    """What the application has written to the copy, for the owner's collection."""

    def __init__(
        self, layout: QdrantLayout, copy: QdrantCollection, home: QdrantCollection, spared: set[Id]
    ) -> None:
        self._layout, self.home = layout, home
        self._spared = spared  # written to the owner's collection, and not to the copy
        self._follower = Follower(copy, layout.batch)
        own = (layout.old, layout.new)
        self._names = [name for name in all_vectors(home) if name not in own]

    def until_equal(self) -> None:
        """Pass after pass until nothing has changed."""
        self.once()
        for points in self.home.pages(payload=False):
            self._forget([p.id for p in points if p.id not in self._follower.seen])
        for _ in range(PASSES):
            if not self.once():
                return

    def once(self) -> int:
        """What has been written since the pass before: how many points?"""
        return self._follower.follow(self._write, self._forget)

    def _write(self, points: list[Any]) -> None:
        """A point that is new has no old vector; of others all but the old vector is copied."""
        chosen = {point.id: point for point in points if point.id not in self._spared}
        before = self.home.points(list(chosen), vectors=self._names, payload=True)
        for there in before:
            self._change(there, chosen.pop(there.id))
        for point in chosen.values():
            self._insert(point)

    def _change(self, before: Any, point: Any) -> None:
        payload = point.payload or {}
        if payload_hash(before.payload) != payload_hash(payload):
            self.home.ask("overwrite_payload", payload=payload, points=[point.id], wait=True)
        others = _others(self._layout, point)
        if not same_vectors(others, _others(self._layout, before)):
            self.home.put_vectors({point.id: others})

    def _insert(self, point: Any) -> None:
        layout, vectors = self._layout, _others(self._layout, point)
        new = vectors_of(point).get(layout.old)
        if new is not None and layout.beside:
            vectors[layout.new] = new
        whole = models.PointStruct(id=point.id, vector=vectors, payload=point.payload)
        self.home.ask("upsert", points=[whole], wait=True)
        if new is not None and not layout.beside:
            given = {layout.new: new}
            layout.ledger.give(
                [models.PointStruct(id=point.id, vector=given, payload=point.payload or {})]
            )

    def _forget(self, ids: Sequence[Id]) -> None:
        _delete(self.home, [key for key in ids if key not in self._spared])


def _others(layout: QdrantLayout, point: Any) -> dict[str, Any]:
    """The vectors of a point that are no part of the migration."""
    own = (layout.old, layout.new)
    return {name: vector for name, vector in vectors_of(point).items() if name not in own}


def _delete(collection: QdrantCollection, ids: Sequence[Id]) -> None:
    if ids:
        collection.ask("delete", points_selector=list(ids), wait=True)
