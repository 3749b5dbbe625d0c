"""Reading rows: hashes with their marks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from fastfill.adapters.redis.context import RedisContext
from fastfill.adapters.redis.hashes import PAGE, as_text, content_fingerprint, pages_of
from fastfill.adapters.redis.search import TIMEOUT, number
from fastfill.errors import StoreError
from fastfill.gallery import Generation, Id, Picked, Rows, Settled, objects
from fastfill.gallery.base import ids_of

MARKED = ("generation", "model", "fingerprint")
Marked = tuple[Any, ...]  # these marks of a row, and the fingerprint of its present content
Wanted = Callable[[Any, Any, Any, Any], bool]  # by them


class RedisReads:
    """A scan takes all keys first, so that rows which are written meanwhile are not met again."""

    def __init__(self, context: RedisContext) -> None:
        self._context = context

    # --- many rows -----------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""

        def wrong(generation: Any, model: Any, stored: Any, present: Any) -> bool:
            return not settled.is_right(generation, model) or (changed and stored != present)

        keys = self._context.hashes.keys()
        if not self._context.marked():
            yield from self._pages(keys, batch, new, wrong)
            return
        for page in pages_of(keys, max(batch, PAGE)):
            marks = self._marks(page, prints=changed)
            yield from self._pages([k for k, row in marks if wrong(*row)], batch, new, wrong)

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation."""
        keys = self._context.hashes.keys()
        if generation is not None:
            keys = [key for key, row in self._marks(keys) if row[0] == generation]
        yield from self._pages(
            keys, batch, new, lambda stored, *_: generation is None or stored == generation
        )

    def _pages(self, keys: Sequence[Id], batch: int, new: bool, wanted: Wanted) -> Iterator[Rows]:
        for page in pages_of(keys, batch):
            rows, prints = self._read(page, new=new)
            marks = zip(rows.generation, rows.model, prints, rows.seen, strict=True)
            chosen = np.array([wanted(*row) for row in marks], dtype=bool)
            if chosen.any():
                yield rows.take(chosen)

    def _marks(self, keys: Sequence[Id], *, prints: bool = False) -> Iterator[tuple[Id, Marked]]:
        """Generation, model and fingerprint of rows; with `prints` that of the content."""
        columns, names = self._context.columns, [self._context.columns.mark(n) for n in MARKED]
        content = [self._context.vector.field, columns.input or ""] if prints else []
        found = self._context.hashes.packed(
            keys, [*content, *names], prints=prints, first=len(content)
        )
        texts = [[as_text(value) for value in field.values()] for field in found.fields]
        present = found.prints if prints else [None] * len(found.keys)
        return zip(found.keys, zip(*texts, present, strict=True), strict=True)

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model)."""
        marks = self._marks(self._context.hashes.keys())
        return dict(Counter((generation, model) for _, (generation, model, *_) in marks))

    def estimate(self) -> None:
        """No other way than to count."""

    # --- some rows -----------------------------------------------------------------------------

    def read(self, rows: Sequence[Id] | Picked, *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now; without `old` the vectors stay where they are."""
        return self._read(ids_of(rows), old=old, new=new)[0]

    def _read(
        self, ids: Sequence[Id], *, old: bool = True, new: bool = False
    ) -> tuple[Rows, list[Any]]:
        """Rows, and the fingerprints among their marks."""
        context, columns = self._context, self._context.columns
        names = [context.vector.field, columns.input or "", *map(columns.mark, MARKED)]
        found = context.hashes.packed(
            ids, [*names, *([columns.new] if new else [])], prints=not old, first=0 if old else 1
        )
        contents, *marks = (field.values() for field in found.fields[old:][:4])
        generation, model, prints = ([as_text(value) for value in mark] for mark in marks)
        seen, dim = found.prints, context.vector.dim
        if old:  # what has come need not keep the server busy
            vectors = found.fields[0].values()
            seen = [content_fingerprint(*both) for both in zip(vectors, contents, strict=True)]
        missing = np.full((len(found.keys), dim), np.nan, dtype=np.float32)
        rows = Rows(
            ids=objects(found.keys),
            old=found.fields[0].vectors(dim) if old else missing,
            inputs=objects([as_text(value) for value in contents]),
            generation=objects(generation),
            model=objects(model),
            seen=objects(seen),
            new=found.fields[-1].vectors(context.new_dim or 1) if new else None,
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

    def sample(self, limit: int, seed: int, *, new: bool = False) -> list[Id]:
        """Random ids of rows that can be paired and are not new, or of those that are `new`."""
        context, columns = self._context, self._context.columns
        wanted = [field for field in (context.vector.field, columns.input) if field]
        marks = self._marks(context.hashes.keys())
        chosen = [key for key, row in marks if (row[0] == "new") == new]
        if new:
            return random.Random(seed).sample(chosen, min(limit, len(chosen)))
        ids: list[Id] = []
        for page in pages_of(chosen, PAGE):
            commands = [["HEXISTS", key, field] for key in page for field in wanted]
            there = np.array(context.connection.run_all(commands)).reshape(len(page), len(wanted))
            ids += [key for key, row in zip(page, there, strict=True) if (row == 1).all()]
        chosen = ids if columns.input else []
        return random.Random(seed).sample(chosen, min(limit, len(chosen)))
