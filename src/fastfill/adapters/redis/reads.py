"""Reading rows: hashes with their marks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from fastfill.adapters.redis.context import RedisContext
from fastfill.adapters.redis.hashes import (
    PAGE,
    as_matrix,
    as_text,
    content_fingerprint,
    pages_of,
)
from fastfill.adapters.redis.search import TIMEOUT, number
from fastfill.errors import StoreError
from fastfill.gallery import Generation, Id, Picked, Rows, Settled, objects
from fastfill.gallery.base import ids_of

Wanted = Callable[[Sequence[Any], str], bool]  # by marks, and by the fingerprint of the content
MARKED = ("generation", "model", "fingerprint")


class RedisReads:
    """A scan takes all keys first, so that rows which are written meanwhile are not met again."""

    def __init__(self, context: RedisContext) -> None:
        self._context = context

    # --- many rows -----------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""

        def wrong(marks: Sequence[Any], seen: str) -> bool:
            return not settled.is_right(*marks[:2]) or (changed and marks[2] != seen)

        if changed or not self._context.marked():
            yield from self._pages(self._context.hashes.keys(), batch, new, wrong)
            return
        for page in pages_of(self._context.hashes.keys(), max(batch, PAGE)):
            marks = self._marks(page)
            keys = [key for key, row in marks.items() if not settled.is_right(*row[:2])]
            yield from self._pages(keys, batch, new, wrong)

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation."""
        keys = self._context.hashes.keys()
        if generation is not None:
            keys = [key for key, row in self._marks(keys).items() if row[0] == generation]
        yield from self._pages(
            keys, batch, new, lambda marks, _: generation is None or marks[0] == generation
        )

    def _pages(self, keys: Sequence[Id], batch: int, new: bool, wanted: Wanted) -> Iterator[Rows]:
        for page in pages_of(keys, batch):
            rows, prints = self._read(page, new=new)
            marks = zip(rows.generation, rows.model, prints, strict=True)
            chosen = [wanted(row, seen) for row, seen in zip(marks, rows.seen, strict=True)]
            if any(chosen):
                yield rows.take(np.array(chosen, dtype=bool))

    def _marks(self, keys: Sequence[Id]) -> dict[Id, list[Any]]:
        """Generation, model and fingerprint of rows."""
        fields = [self._context.columns.mark(name) for name in MARKED]
        values = self._context.hashes.values(keys, fields)
        return {key: [as_text(value) for value in row] for key, row in values.items()}

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model)."""
        marks = self._marks(self._context.hashes.keys()).values()
        return dict(Counter((generation, model) for generation, model, _ in marks))

    def estimate(self) -> None:
        """No other way than to count."""

    # --- some rows -----------------------------------------------------------------------------

    def read(self, rows: Sequence[Id] | Picked, *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now."""
        return self._read(ids_of(rows), new=new)[0]

    def _read(self, ids: Sequence[Id], *, new: bool) -> tuple[Rows, list[Any]]:
        """Rows, and the fingerprints among their marks."""
        context, columns = self._context, self._context.columns
        marks = [columns.mark(name) for name in MARKED]
        fields = [context.vector.field, *marks, *([columns.new] if new else [])]
        fields += [columns.input] if columns.input else []
        values = context.hashes.values(ids, fields)
        parts = dict(zip(fields, zip(*values.values(), strict=True), strict=True)) if values else {}
        none = [None] * len(values)
        old, texts = parts.get(context.vector.field, none), parts.get(columns.input or "", none)
        generation, model, prints = ([as_text(v) for v in parts.get(name, none)] for name in marks)
        seen = [content_fingerprint(v, t) for v, t in zip(old, texts, strict=True)]
        rows = Rows(
            ids=objects(list(values)),
            old=as_matrix(old, context.vector.dim),
            inputs=objects([as_text(text) for text in texts]),
            generation=objects(generation),
            model=objects(model),
            seen=objects(seen),
            new=as_matrix(parts.get(columns.new, none), context.new_dim or 1) if new else None,
        )
        return rows, prints

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """One field of these hashes; a numeric one of the index as a number."""
        context = self._context
        if not context.hashes.any_has(column):
            raise StoreError(f"{context.name}: no hash has a field '{column}'.")
        field = next((each for each in context.owner.fields if each.field == column), None)
        numeric = field is not None and field.kind == "NUMERIC"
        values = context.hashes.values(ids, [column])
        return {
            key: number(value) if numeric and value is not None else as_text(value)
            for key, (value,) in values.items()
        }

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> Picked:
        """Rows of a generation by falling priority, from the index of the added vectors."""
        context, left_out = self._context, set(exclude)
        mark = context.columns.mark
        if context.added is None:
            return Picked(objects([]))
        answer = context.connection.run(
            *("FT.SEARCH", context.added_name, f"@{mark('generation')}:{{{generation}}}"),
            *("SORTBY", mark("priority"), "DESC", "LIMIT", 0, limit + len(left_out)),
            *("NOCONTENT", "TIMEOUT", TIMEOUT, "DIALECT", 2),
        )
        keys = [key.decode() for key in answer[1:]]
        return Picked(objects([key for key in keys if key not in left_out][:limit]))

    def sample(self, limit: int, seed: int) -> list[Id]:
        """Random ids of rows that can be paired and are not new."""
        context, columns = self._context, self._context.columns
        wanted = [field for field in (context.vector.field, columns.input) if field]
        marks = self._marks(context.hashes.keys())
        ids: list[Id] = []
        for page in pages_of([key for key, row in marks.items() if row[0] != "new"], PAGE):
            commands = [["HEXISTS", key, field] for key in page for field in wanted]
            there = np.array(context.connection.run_all(commands)).reshape(len(page), len(wanted))
            ids += [key for key, row in zip(page, there, strict=True) if (row == 1).all()]
        chosen = ids if columns.input else []
        return random.Random(seed).sample(chosen, min(limit, len(chosen)))
