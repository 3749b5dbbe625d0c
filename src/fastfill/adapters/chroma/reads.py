"""Reading rows of a collection: the owner's records with their marks."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from fastfill.adapters.chroma.collection import PAGE, both, pages_of
from fastfill.adapters.chroma.context import ChromaContext
from fastfill.errors import StoreError
from fastfill.gallery import Generation, Id, Picked, Rows, Settled, objects
from fastfill.gallery.base import ids_of

SAMPLED = 256  # rows whose priorities tell where the most urgent ones begin
GENERATIONS: tuple[Generation, ...] = ("aligned", "new", "waiting")


class ChromaReads:
    """A scan takes all ids first, so that rows which are written meanwhile are not met again."""

    def __init__(self, context: ChromaContext) -> None:
        self._context = context

    # --- many rows -----------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""
        return (
            self._changed(settled, batch, new) if changed else self._unmarked(settled, batch, new)
        )

    def _changed(self, settled: Settled, batch: int, new: bool) -> Iterator[Rows]:
        layout = self._context.layout
        for page in pages_of(layout.owner.ids(), batch):
            records = layout.items(page)
            entries = layout.entries(list(records))
            layout.follow(records, entries)  # copies of metadata are brought up to date on the way
            rows = _only_wrong(layout.rows(records, entries, new=False), settled)
            if len(rows) and new:
                rows = _only_wrong(layout.read(rows.ids.tolist(), new=True), settled)
            if len(rows):
                yield rows

    def _unmarked(self, settled: Settled, batch: int, new: bool) -> Iterator[Rows]:
        layout = self._context.layout
        right = self._marked_right(settled)
        for page in pages_of([key for key in layout.owner.ids() if key not in right], batch):
            rows = layout.read(page, new=new)
            pairs = zip(rows.generation, rows.model, strict=True)
            rows = rows.take(np.array([not settled.is_right(*pair) for pair in pairs], dtype=bool))
            if len(rows):
                yield rows

    def _marked_right(self, settled: Settled) -> set[Id]:
        """Ids of the second collection whose marks are those of the present models."""
        layout, mark = self._context.layout, self._context.columns.mark
        conditions = [
            both([{mark("generation"): {"$eq": g}}, {mark("model"): {"$eq": m}}])
            for g, m in settled.models.items()
        ]
        return set() if layout.added is None else set(layout.added.ids({"$or": conditions}))

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation."""
        layout = self._context.layout
        ids = layout.owner.ids() if generation is None else layout.of_generation(generation)
        for page in pages_of(ids, batch):
            rows = layout.read(page, new=new)
            if generation is not None:
                rows = rows.take(np.array([g == generation for g in rows.generation], dtype=bool))
            if len(rows):
                yield rows

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model)."""
        ids, marks = self._context.layout.owner.ids(), dict(self._marks())
        return dict(Counter(marks.get(key, (None, None)) for key in ids))

    def _marks(self) -> Iterator[tuple[Id, tuple[str | None, str | None]]]:
        """Ids with generation and model: Chroma finds ids much faster than it reads records."""
        layout, mark = self._context.layout, self._context.columns.mark
        for generation in GENERATIONS if layout.added is not None else ():
            wanted: list[dict[str, Any]] = [{mark("generation"): {"$eq": generation}}]
            while one := layout.entries(layout.that_fit(wanted, limit=1)):
                model = layout.mark(next(iter(one.values())), "model")
                these = layout.that_fit([wanted[0], {mark("model"): {"$eq": model}}])
                yield from ((key, (generation, model)) for key in these)
                wanted.append({mark("model"): {"$ne": model}})

    def estimate(self) -> None:
        """No other way than to count."""

    # --- some rows -----------------------------------------------------------------------------

    def read(self, rows: Sequence[Id] | Picked, *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now."""
        layout = self._context.layout
        if old or new or layout.added is None:
            return layout.read(ids_of(rows), new=new)
        return layout.read_inputs(ids_of(rows))

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """The document, or one value of the metadata, of these records."""
        owner = self._context.layout.owner
        if not owner.has_key(column):
            raise StoreError(f"{self._context.name}: no record has '{column}'.")
        return {key: record.value(column) for key, record in owner.records(ids).items()}

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> Picked:
        """Rows of a generation by falling priority."""
        left_out = set(exclude)
        ids = [key for key in self._context.layout.of_generation(generation) if key not in left_out]
        some = self._most_urgent(generation, ids, limit)
        picked = self._in_order(some, limit)
        if len(picked) < limit and len(some) < len(ids):  # their owner has deleted too many
            picked = self._in_order(ids, limit)
        return Picked(objects(picked))

    def _most_urgent(self, generation: Generation, ids: list[Id], limit: int) -> list[Id]:
        """Those of the rows among which the first `limit` are.

        Chroma cannot sort, and reads a value ten times slower than it finds who is above a bound;
        the bound is that of a sample.
        """
        if len(ids) <= SAMPLED:
            return ids
        layout, name = self._context.layout, self._context.columns.mark("priority")
        expected = SAMPLED * limit / len(ids)
        rank = math.ceil(expected + 2 * math.sqrt(expected))  # two deviations more: rarely too few
        if rank >= SAMPLED:
            return ids
        entries = layout.entries(random.Random(0).sample(ids, SAMPLED))
        known = sorted((layout.mark(e, "priority") or 0.0 for e in entries.values()), reverse=True)
        if len(known) <= rank:  # gone meanwhile
            return ids
        bound = {name: {"$gte": known[rank]}}
        of_generation = {self._context.columns.mark("generation"): {"$eq": generation}}
        above = set(layout.that_fit([of_generation, bound]))
        chosen = [key for key in ids if key in above]
        return chosen if len(chosen) >= limit else ids

    def _in_order(self, ids: list[Id], limit: int) -> list[Id]:
        """The first of these rows by falling priority, without those that were deleted."""
        layout = self._context.layout
        urgency: list[tuple[float, Id]] = []
        for page in pages_of(ids, PAGE):
            entries = layout.entries(page)
            urgency += [(layout.mark(e, "priority") or 0.0, key) for key, e in entries.items()]
        urgency.sort(key=lambda pair: -pair[0])
        picked: list[Id] = []
        for page in pages_of([key for _, key in urgency], max(limit, 1)):
            there = layout.owner.present(page)
            picked += [key for key in page if key in there]
            if len(picked) >= limit:
                break
        return picked[:limit]

    def sample(self, limit: int, seed: int, *, new: bool = False) -> list[Id]:
        """Random ids of rows that can be paired and are not new, or of those that are `new`."""
        layout, name = self._context.layout, self._context.columns.input
        done = layout.of_generation("new")
        if new:
            return random.Random(seed).sample(done, min(limit, len(done)))
        left_out = set(done)
        pages = pages_of(layout.owner.ids() if layout.old_dim and name else [], PAGE)
        ids = [
            key
            for page in pages
            for key, record in layout.owner.records(page).items()
            if key not in left_out and record.value(name or "") is not None
        ]
        return random.Random(seed).sample(ids, min(limit, len(ids)))


def _only_wrong(rows: Rows, settled: Settled) -> Rows:
    """Rows whose added vector is not right, or not of their content."""
    marks = zip(rows.generation, rows.model, *rows.seen.T[[0, 2]], strict=True)
    wrong = [not settled.is_right(g, m) or now != was for g, m, now, was in marks]
    return rows.take(np.array(wrong, dtype=bool))
