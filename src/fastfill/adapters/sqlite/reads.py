"""Reading rows of a table."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from fastfill.adapters.sqlite.context import SqliteContext
from fastfill.adapters.sqlite.sql import by_ids, literal, not_right
from fastfill.adapters.sqlite.vectors import as_matrix, content_of, ids_as_json, prints_of
from fastfill.gallery import Generation, Id, Picked, Rows, Settled, objects
from fastfill.gallery.base import ids_of

MARKED = ("generation", "model", "fingerprint")
Wanted = Callable[[Rows, Sequence[str | None]], Sequence[bool]]  # by rows and stored fingerprints


class SqliteReads:
    """A scan takes the ids first, so that rows which are written meanwhile are not met again."""

    def __init__(self, context: SqliteContext) -> None:
        self._context = context

    # --- many rows -----------------------------------------------------------------------------

    def unsettled(
        self, settled: Settled, *, batch: int, changed: bool, new: bool = False
    ) -> Iterator[Rows]:
        """Rows whose added vector is not right."""

        def wrong(rows: Rows, prints: Sequence[str | None]) -> list[bool]:
            every = zip(rows.generation, rows.model, prints, rows.seen[:, 2], strict=True)
            return [
                not settled.is_right(generation, model) or (changed and stored != present)
                for generation, model, stored, present in every
            ]

        condition = "TRUE" if changed else not_right(self._context, settled)
        added = f"CASE WHEN {self._context.mark('generation')} IS NULL THEN {self._added} END"
        yield from self._pages(self._ids(condition), batch, added if new else "", wrong)

    def scan(self, generation: Generation | None, *, batch: int, new: bool) -> Iterator[Rows]:
        """All rows of a generation."""
        condition = "TRUE"
        if generation is not None:
            condition = f"{self._context.mark('generation')} = {literal(generation)}"
        yield from self._pages(
            self._ids(condition),
            batch,
            self._added if new else "",
            lambda rows, _: [generation in (None, each) for each in rows.generation],
        )

    def _ids(self, condition: str) -> list[Id]:
        """Of the rows that meet a condition, in order."""
        context = self._context
        query = f"SELECT {context.id} FROM {context.source} WHERE {context.in_part} "
        return [key for (key,) in context.work.rows_of(f"{query} AND {condition} ORDER BY 1")]

    def _pages(self, ids: Sequence[Id], batch: int, added: str, wanted: Wanted) -> Iterator[Rows]:
        for first in range(0, len(ids), batch):
            rows, prints = self._read(ids[first : first + batch], added)
            chosen = np.array(wanted(rows, prints), dtype=bool)
            if chosen.any():
                yield rows.take(chosen)

    def counts(self) -> dict[tuple[str | None, str | None], int]:
        """Rows by (generation, model), from the index of the marks where there is one."""
        context = self._context
        context.look()
        query = f"SELECT {context.mark('generation')}, {context.mark('model')}, count(*) "
        query += f"FROM {context.source} WHERE {context.in_part} GROUP BY 1, 2"
        return {(generation, model): n for generation, model, n in context.work.rows_of(query)}

    def estimate(self) -> None:
        """No other way than to count."""

    # --- some rows -----------------------------------------------------------------------------

    def read(self, rows: Sequence[Id] | Picked, *, old: bool = True, new: bool = False) -> Rows:
        """These rows as they are now; old vectors come always, for the write compares them.

        In the order of the ids, in which SQLite meets each page of an index once.
        """
        ids = sorted(ids_of(rows), key=lambda key: (isinstance(key, str), key))
        return self._read(ids, self._added if new else "")[0]

    def values_of(self, column: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """One column of these rows."""
        context = self._context
        context.require_column(column, context.names)
        query = f"SELECT {context.id}, {context.column_of(column)} {by_ids(context)}"
        return dict(context.work.rows_of(query, {"ids": ids_as_json(ids)}))

    def pick(self, generation: Generation, limit: int, exclude: Collection[Id]) -> Picked:
        """Rows of a generation by falling priority, from the index of the marks."""
        context = self._context
        rows = context.work.rows_of(
            f"SELECT {context.id} FROM {context.source} "
            f"WHERE {context.mark('generation')} = :generation AND {context.in_part} "
            f"AND {context.id} NOT IN (SELECT value FROM json_each(:ids)) "
            f"ORDER BY {context.mark('priority')} DESC LIMIT :limit",
            {"generation": generation, "ids": ids_as_json(exclude), "limit": limit},
        )
        return Picked(objects([key for (key,) in rows]))

    def sample(self, limit: int, seed: int, *, new: bool = False) -> list[Id]:
        """Random ids of rows that can be paired and are not new, or of those that are `new`."""
        context, columns = self._context, self._context.columns
        old, content = (context.column_of(name) for name in (columns.old, columns.input or ""))
        generation = context.mark("generation")
        wanted = f"{old} IS NOT NULL AND {content} IS NOT NULL AND {generation} IS NOT 'new'"
        ids = self._ids(f"{generation} = 'new'" if new else wanted)
        return random.Random(seed).sample(ids, min(limit, len(ids)))

    # --- rows and their columns ----------------------------------------------------------------

    @property
    def _added(self) -> str:
        """The added vector in a query."""
        return self._context.column_of(self._context.columns.new)

    def _read(self, ids: Sequence[Id], added: str) -> tuple[Rows, list[str | None]]:
        """Rows, with what is `added` to them if that is said, and the marks' fingerprints."""
        context, columns = self._context, self._context.columns
        names = [columns.old, columns.input or "", *map(columns.mark, MARKED)]
        selected = [context.id, *map(context.column_of, names), *([added] if added else [])]
        query = f"SELECT {', '.join(selected)} {by_ids(context)}"
        records = context.work.rows_of(query, {"ids": ids_as_json(ids)}) if len(ids) else []
        return _as_rows(context, records, bool(added))


def _as_rows(
    context: SqliteContext, records: Sequence[Any], new: bool
) -> tuple[Rows, list[str | None]]:
    values: list[Any] = list(zip(*records, strict=True)) if records else [[]] * 7
    old = as_matrix(values[1], context.dim(context.columns.old))
    inputs = [content_of(value) for value in values[2]]
    seen = np.empty((len(records), 3), dtype=object)  # what the write compares, and its fingerprint
    seen[:, 0], seen[:, 1] = objects(values[1]), objects(values[2])
    seen[:, 2] = objects(prints_of(old, inputs))
    rows = Rows(
        ids=objects(values[0]),
        old=old,
        inputs=objects(inputs),
        generation=objects(values[3]),
        model=objects(values[4]),
        seen=seen,
        new=as_matrix(values[6], context.dim(context.columns.new)) if new else None,
    )
    return rows, list(values[5])
