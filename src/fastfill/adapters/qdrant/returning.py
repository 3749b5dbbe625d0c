"""The way back: what the application has written to the copy, for the owner's first collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qdrant_client import models

from fastfill.adapters.qdrant.collection import QdrantCollection
from fastfill.adapters.qdrant.copies import (
    PASSES,
    Follower,
    all_vectors,
    other_vectors,
    same_vectors,
    vectors_of,
)
from fastfill.adapters.qdrant.last_look import LastLook
from fastfill.adapters.qdrant.layout import QdrantLayout
from fastfill.adapters.qdrant.points import look_up, payload_hash
from fastfill.gallery import Id


class Returning:
    """Passes while nobody writes to the first collection, and a last look when everybody does.

    What was written there during the switch to the copy is left as it is, and named if it differs.
    """

    def __init__(self, layout: QdrantLayout, copy: QdrantCollection) -> None:
        self._layout, self._home = layout, layout.owner
        self._follower = Follower(copy, layout.batch)
        self._look = LastLook(copy, self._home)
        own = (layout.old, layout.new)
        self._others = [name for name in all_vectors(self._home) if name not in own]

    def until_equal(self) -> None:
        """Pass after pass until nothing has changed; the way back is never refused."""
        self._follow()
        for points in self._home.pages(payload=False):
            self._delete([p.id for p in points if p.id not in self._follower.seen])
        for _ in range(PASSES):
            if not self._follow():
                return

    def look_again(self) -> LastLook:
        """What has been written since, when the application writes to the first collection."""
        self._look.drain()
        self._follower.follow(self._carry, self._look.deleted.extend)
        return self._look

    def _follow(self) -> int:
        return self._follower.follow(self._write, self._delete)

    def _write(self, points: list[Any]) -> None:
        """A point that is new has no old vector; of others all but the old vector is copied."""
        chosen = {point.id: point for point in points}
        before = self._home.points(
            list(chosen), vectors=[*self._layout.content, *self._others], payload=True
        )
        changed = self._changed(before)
        for there in before:
            point = chosen.pop(there.id)
            if there.id in changed and not self._same_input(there, point):
                self._look.differing.append(there.id)
            else:
                self._change(there, point)
        added = [inserted(self._layout, point) for point in chosen.values()]
        if added:
            self._home.ask("upsert", points=added, wait=True)
            give(self._layout, list(chosen.values()))

    def _change(self, before: Any, point: Any) -> None:
        payload = point.payload or {}
        if payload_hash(before.payload) != payload_hash(payload):
            self._home.ask("overwrite_payload", payload=payload, points=[point.id], wait=True)
        others = other_vectors(self._layout, point)
        if not same_vectors(others, other_vectors(self._layout, before)):
            self._home.put_vectors({point.id: others})

    def _delete(self, ids: Sequence[Id]) -> None:
        """Delete those that have been copied and are what they were then."""
        layout = self._layout
        points = self._home.points(ids, vectors=layout.content, payload=True)
        changed, known = self._changed(points), layout.ledger.entries(ids)
        gone = [key for key in known if key not in changed]
        if gone:
            self._home.ask("delete", points_selector=gone, wait=True)

    def _changed(self, points: Sequence[Any]) -> set[Id]:
        """Points of the first collection that are not what they were when they were copied."""
        known = self._layout.ledger.entries([point.id for point in points])
        _, _, prints = self._layout.contents(points)
        return {
            point.id
            for point, now in zip(points, prints, strict=True)
            if point.id not in known or known[point.id].fingerprint != now
        }

    def _same_input(self, one: Any, other: Any) -> bool:
        path = self._layout.columns.input
        return path is None or look_up(one.payload, path) == look_up(other.payload, path)

    def _carry(self, points: list[Any]) -> None:
        seen, layout = self._follower.seen, self._layout
        fresh = [point for point in points if point.id not in seen]
        missing = {point.id for point in fresh} - self._home.present([p.id for p in fresh])
        self._look.insert([inserted(layout, point) for point in fresh])
        give(layout, [point for point in fresh if point.id in missing])
        for point in points:
            before = seen.get(point.id)
            if before is None:
                continue
            if before.payload != payload_hash(point.payload):
                self._look.change(point, before.payload)
            if before.vectors_changed(point):
                self._look.differing.append(point.id)


def inserted(layout: QdrantLayout, point: Any) -> models.PointStruct:
    """A point of the copy for the first collection: its vector is the new one there."""
    vectors = other_vectors(layout, point)
    new = vectors_of(point).get(layout.old)
    if new is not None and layout.beside:
        vectors[layout.new] = new
    return models.PointStruct(id=point.id, vector=vectors, payload=point.payload)


def give(layout: QdrantLayout, points: Sequence[Any]) -> None:
    """The new vectors of these points, where they are in a second collection."""
    if layout.beside:
        return
    new = [(point, vectors_of(point).get(layout.old)) for point in points]
    layout.ledger.give(
        [
            models.PointStruct(id=p.id, vector={layout.new: vector}, payload=p.payload or {})
            for p, vector in new
            if vector is not None
        ]
    )


def compare_with_home(layout: QdrantLayout, copy: QdrantCollection) -> LastLook:
    """The last look of a process that has died between the switch back and its own.

    The application may have written to the first collection since, so that points are named alone.
    """
    look, home = LastLook(copy, layout.owner), layout.owner
    for points in copy.pages(layout.batch, payload=True):
        there = {each.id: each for each in home.points([p.id for p in points], payload=True)}
        for point in points:
            found = there.get(point.id)
            if found is None or payload_hash(found.payload) != payload_hash(point.payload):
                look.differing.append(point.id)
    for points in home.pages(payload=False):
        ids = [point.id for point in points]
        gone = set(layout.ledger.entries(ids)) - copy.present(ids)
        look.deleted.extend(key for key in ids if key in gone)
    return look
