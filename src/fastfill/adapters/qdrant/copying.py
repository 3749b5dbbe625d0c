"""The way there: the owner's points, with their new vectors under the owner's name, in a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from qdrant_client import models

from fastfill.adapters.qdrant.collection import QdrantCollection
from fastfill.adapters.qdrant.copies import PASSES, Follower, all_vectors, other_vectors
from fastfill.adapters.qdrant.last_look import LastLook
from fastfill.adapters.qdrant.layout import QdrantLayout
from fastfill.adapters.qdrant.points import payload_hash
from fastfill.adapters.qdrant.reads import wrong_rows
from fastfill.gallery import Id, Settled


class Copying:
    """Passes while nobody else knows of the copy, and a last look when everybody does."""

    def __init__(
        self,
        layout: QdrantLayout,
        copy: QdrantCollection,
        settled: Settled,
        check: Callable[[], None],  # raises where another process has taken over
    ) -> None:
        self.layout, self.copy, self._settled, self._check = layout, copy, settled, check
        self._follower = Follower(layout.owner, layout.batch)
        self._look = LastLook(layout.owner, copy)
        self.wrong: set[Id] = set()  # ids of rows in the way

    def until_equal(self) -> bool:
        """Pass after pass until nothing has changed; False: rows are in the way, or it goes on."""
        for _ in range(PASSES):
            changed = self._follower.follow(self._write, self._delete)
            if self.wrong or not changed:
                return not self.wrong
        return False

    def note_copied(self) -> None:
        """Let the ledger know exactly those rows that have been copied."""
        for ids in self.layout.ledger.ids():
            self.layout.ledger.forget([key for key in ids if key not in self._follower.seen])

    def look_again(self) -> LastLook:
        """What has been written since, when the application writes to the copy."""
        self._look.drain()
        self._follower.follow(self._carry, self._look.deleted.extend)
        return self._look

    def _write(self, points: list[Any]) -> None:
        made, wrong = copies(self.layout, points, self._settled)
        self.wrong |= wrong
        right = [point for point in made if point.id not in wrong]
        self._check()
        if right:
            self.copy.ask("upsert", points=right, wait=True)

    def _delete(self, ids: Sequence[Id]) -> None:
        self._check()
        if ids:
            self.copy.ask("delete", points_selector=list(ids), wait=True)

    def _carry(self, points: list[Any]) -> None:
        made, wrong = copies(self.layout, points, self._settled)
        self._look.unembedded.extend(point.id for point in points if point.id in wrong)
        seen = self._follower.seen
        self._look.insert([point for point in made if point.id not in seen])
        for point in points:
            before = seen.get(point.id)
            if before is None:
                continue
            if before.payload != payload_hash(point.payload):
                self._look.change(point, before.payload)
            if point.id not in wrong and before.vectors_changed(point):
                self._look.differing.append(point.id)


def copies(
    layout: QdrantLayout, points: Sequence[Any], settled: Settled
) -> tuple[list[models.PointStruct], set[Id]]:
    """The points for the copy, and the ids of those whose new vector is not right: without it."""
    rows = layout.rows(points, new=True)
    wrong = set(rows.ids[wrong_rows(rows, settled)].tolist())
    made, added = [], rows.old if rows.new is None else rows.new
    for point, vector in zip(points, added, strict=True):
        vectors = other_vectors(layout, point)
        if np.isfinite(vector).all() and point.id not in wrong:
            vectors[layout.old] = vector.tolist()
        made.append(models.PointStruct(id=point.id, vector=vectors, payload=point.payload))
    return made, wrong


def compare_with_copy(layout: QdrantLayout, copy: QdrantCollection, settled: Settled) -> LastLook:
    """The last look of a process that has died between the switch and its own.

    What was copied is what the ledger knows. The application may have written to the copy since:
    of points that differ it cannot be said who has changed them, so that they are named alone.
    """
    look = LastLook(layout.owner, copy)
    for points in layout.owner.pages(layout.batch, vectors=all_vectors(layout.owner), payload=True):
        ids = [point.id for point in points]
        made, wrong = copies(layout, points, settled)
        there = {each.id: each for each in copy.points(ids, payload=True)}
        known = layout.ledger.entries(ids)
        look.insert([point for point in made if point.id not in {**there, **known}])
        look.unembedded.extend(key for key in ids if key in wrong)
        for point in points:
            found = there.get(point.id)
            if found and payload_hash(found.payload) != payload_hash(point.payload):
                look.differing.append(point.id)
    for points in copy.pages(payload=False):
        ids = [point.id for point in points]
        gone = set(layout.ledger.entries(ids)) - layout.owner.present(ids)
        look.deleted.extend(key for key in ids if key in gone)
    return look
