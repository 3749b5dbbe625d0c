"""Reading rows of a collection: the owner's points with what the ledger says about them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.adapters.qdrant.collection import IDS
from fastfill.adapters.qdrant.context import QdrantContext
from fastfill.adapters.qdrant.points import all_of, has_vector, is_empty
from fastfill.adapters.qdrant.writes import copy_payloads
from fastfill.errors import StoreError
from fastfill.gallery import Generation, Id, Picked, Rows, Settled, objects
from fastfill.gallery.base import ids_of


class QdrantReads:
    """A scan goes by rising ids, so that rows which are written meanwhile are not met again."""

    def __init__(self, context: QdrantContext) -> None:
        self._context = context

    # --- many rows -----------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""
        return self._changed(settled, batch) if changed else self._unmarked(settled, batch, new)

    def can_sweep_quickly(self) -> bool:
        """Is the added vector one of the owner's points, which goes when they are written anew?"""
        return self._context.layout.beside and not self._context.layout.swapped

    def quick_sweep(self, settled: Settled, *, batch: int) -> Iterator[Rows]:
        """Points without the added vector, but for those that wait for it."""
        without = all_of(but=[has_vector(self._context.layout.new)])
        for points in self._context.owner.pages(batch, without, payload=False):
            yield from self._wrong([point.id for point in points], settled)

    def _changed(self, settled: Settled, batch: int) -> Iterator[Rows]:
        layout = self._context.layout
        if layout.probed:
            for points in self._context.owner.pages(batch, payload=layout.payload):
                yield from self._wrong(layout.in_doubt(points, settled), settled)
            return
        # The second collection's copies of payloads are brought up to date on the way.
        payload = layout.payload if layout.beside else True
        for points in self._context.owner.pages(
            batch, vectors=layout.vectors(True), payload=payload
        ):
            if layout.ledgered and not layout.beside:
                copy_payloads(layout, points)
            yield from _only_wrong(layout.rows(points, new=True), settled)

    def _wrong(self, ids: Sequence[Id], settled: Settled) -> Iterator[Rows]:
        if ids:
            yield from _only_wrong(self._context.layout.read(ids, new=True), settled)

    def _unmarked(self, settled: Settled, batch: int, new: bool) -> Iterator[Rows]:
        layout = self._context.layout
        for points in self._context.owner.pages(batch, payload=False):
            ids = [point.id for point in points]
            marks = layout.marks(ids)
            right = {k for k, e in marks.items() if settled.is_right(e.generation, e.model)}
            rows = layout.read([key for key in ids if key not in right], new=new)
            if len(rows):
                yield rows

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation, in the order of their ids."""
        layout = self._context.layout
        if generation is None:
            vectors = layout.vectors(new)
            for points in self._context.owner.pages(batch, vectors=vectors, payload=layout.payload):
                yield layout.rows(points, new=new)
            return
        for ids in layout.ledger.ids(generation, batch) if layout.ledgered else ():
            rows = layout.read(ids, new=new)
            rows = rows.take(np.array([g == generation for g in rows.generation], dtype=bool))
            if len(rows):
                yield rows

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model); those whose vector was not written or is gone have none."""
        layout = self._context.layout
        counts: Counter[tuple[str | None, str | None]] = Counter()
        for points in self._context.owner.pages(IDS, payload=False):
            ids = [point.id for point in points]
            marks = layout.marks(ids)
            counts.update((entry.generation, entry.model) for entry in marks.values())
            counts[None, None] += len(ids) - len(marks)
        return {key: number for key, number in counts.items() if number}

    def estimate(self) -> dict[tuple[str | None, str | None], int] | None:
        """As the ledger's index of models says: rows that their owner has deleted count too."""
        layout = self._context.layout
        if not layout.ledgered or not layout.ledger.counts_models():
            return None
        counts: Counter[tuple[str | None, str | None]] = Counter(layout.ledger.model_counts())
        counts[None, None] = max(self._context.owner.count() - counts.total(), 0)
        return {key: number for key, number in counts.items() if number}

    # --- some rows -----------------------------------------------------------------------------

    def read(self, rows: Sequence[Id] | Picked, *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now."""
        layout = self._context.layout
        if old or new or not layout.ledgered:
            return layout.read(ids_of(rows), new=new)
        return layout.read_inputs(ids_of(rows))

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """One key of the payload of these points."""
        if not self._context.owner.any(all_of(but=[is_empty(column)])):
            raise StoreError(f"{self._context.name}: no point has '{column}' in its payload.")
        points = self._context.owner.points(ids, payload=[column])
        return {point.id: (point.payload or {}).get(column) for point in points}

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> Picked:
        """Rows of a generation by falling priority; those that their owner has deleted go."""
        layout, left_out = self._context.layout, set(exclude)
        while layout.ledgered:
            best = layout.ledger.first(generation, limit + len(left_out))
            chosen = [key for key in best if key not in left_out][:limit]
            there = self._context.owner.present(chosen)
            if len(there) == len(chosen):
                return Picked(objects(chosen))
            layout.ledger.forget([key for key in chosen if key not in there])
        return Picked(objects([]))

    def sample(self, limit: int, seed: int, *, new: bool = False) -> list[Id]:
        """Random ids of rows that can be paired and are not new, or of those that are `new`."""
        context, layout = self._context, self._context.layout
        done = layout.ledger.ids("new") if layout.ledgered else iter(())
        if new:
            ids = [key for page in done for key in page]
            return random.Random(seed).sample(ids, min(limit, len(ids)))
        left_out = {key for page in done for key in layout.marks(page)}
        wanted = all_of(has_vector(context.old), but=[is_empty(context.columns.input or "")])
        pages = (
            self._context.owner.pages(IDS, wanted, payload=False) if layout.old_dim else iter(())
        )
        ids = [point.id for page in pages for point in page if point.id not in left_out]
        return random.Random(seed).sample(ids, min(limit, len(ids)))


def _only_wrong(rows: Rows, settled: Settled) -> Iterator[Rows]:
    wrong = wrong_rows(rows, settled)
    if wrong.any():
        yield rows.take(wrong)


def wrong_rows(rows: Rows, settled: Settled) -> NDArray[np.bool_]:
    """(n,) rows whose added vector is not right, or not of their content."""
    marks = zip(rows.generation, rows.model, *rows.seen.T[[0, 3]], strict=True)
    wrong = [not settled.is_right(g, m) or now != then for g, m, now, then in marks]
    return np.array(wrong, dtype=bool)
