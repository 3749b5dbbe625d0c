"""The loop over PostgreSQL by hand that migrations are compared with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import psycopg

from benchmarks.shared.live_tables import DIM, free, toy_alignment
from fastfill.adapters.postgres.binary import as_matrix, copy_stream
from fastfill.gallery import Marks, Rows, objects

BATCH = 4_096  # rows of an UPDATE


MARKS = {
    "vector_new": f"vector({DIM})",
    "ff_generation": "text",
    "ff_model": "text",
    "ff_variance": "real",
    "ff_priority": "real",
    "ff_fingerprint": "bytea",
}
BESIDE = "items_by_hand"  # a table of its own for all that is added


def hand_postgres(
    place: str, rows: int, step: str, by_key: bool = False, beside: bool = False
) -> float:
    """Pages of what is needed, binary COPY into a temporary table, one statement for each page.

    When backfilling, by falling priority from an index, or `by_key`, without any order and index.
    It updates the table, or writes to one `beside` it.
    """
    align, start = toy_alignment(), step == "start"
    generation: Literal["aligned", "new"] = "aligned" if start else "new"
    with psycopg.connect(place, autocommit=True) as connection:
        if start:
            _expand(connection, beside)
        connection.execute(
            "CREATE TEMPORARY TABLE batch (id text, seen bytea, version text, generation text, "
            "model text, vector vector, variance real, priority real) ON COMMIT DELETE ROWS"
        )
        began = time.perf_counter()
        for found in _postgres_pages(connection, start, by_key, beside):
            count, read = len(found), [row[1] for row in found]
            done = align(as_matrix(read, DIM)) if start else None
            new = done.vectors if done else free(read)
            variance = done.variance if done else np.zeros(count, np.float32)
            none = objects([None] * count)
            ids = objects([row[0] for row in found])
            seen = np.full((count, 2), b"0" * 16, dtype=object)
            data = Rows(ids, np.empty((count, 0), np.float32), none, none, none, seen)
            stream = copy_stream(data, new, Marks(generation, "m", variance, variance))
            with connection.transaction():
                with connection.cursor().copy("COPY batch FROM STDIN (FORMAT BINARY)") as copy:
                    copy.write(stream)
                for join in ("hashjoin", "mergejoin", "seqscan"):
                    connection.execute(f"SET LOCAL enable_{join} = off")
                connection.execute(_statement(generation, start and beside, beside))
        if start and not by_key:
            table = BESIDE if beside else "items"
            connection.execute(
                f"CREATE INDEX ON {table} (ff_priority DESC, id DESC) "
                "WHERE ff_generation = 'aligned'"
            )
        return time.perf_counter() - began


def _expand(connection: Any, beside: bool) -> None:
    columns = [f"{name} {kind}" for name, kind in MARKS.items()]
    if beside:
        connection.execute(f"CREATE TABLE {BESIDE} (id text PRIMARY KEY, {', '.join(columns)})")
    else:
        connection.execute(f"ALTER TABLE items {', '.join(f'ADD {each}' for each in columns)}")


def _statement(generation: str, insert: bool, beside: bool) -> str:
    values = ("s.vector", f"'{generation}'", "'m'", "s.variance", "s.priority", "s.seen")
    if insert:
        return f"INSERT INTO {BESIDE} SELECT s.id, {', '.join(values)} FROM batch s"
    pairs = ", ".join(f"{name} = {value}" for name, value in zip(MARKS, values, strict=True))
    return f"UPDATE {BESIDE if beside else 'items'} t SET {pairs} FROM batch s WHERE t.id = s.id"


def _postgres_pages(connection: Any, start: bool, by_key: bool, beside: bool) -> Iterator[Any]:
    """Ids with old vectors or texts, each page after the last row of the page before."""
    after: tuple[Any, ...] = ("",)
    wanted, where, order = "vector_send(vector)", "id > %s", "id"
    table = "items" if start or not beside else f"{BESIDE} JOIN items USING (id)"
    priority = "NULL" if start else "ff_priority"
    if not start:
        wanted = "text"
    if not start and not by_key:
        after = (np.inf, "")
        where = "ff_generation = 'aligned' AND (ff_priority, id) < (%s, %s)"
        order = "ff_priority DESC, id DESC"
    query = f"SELECT id, {wanted}, {priority} FROM {table} WHERE {where} ORDER BY {order} LIMIT %s"
    while found := connection.cursor(binary=True).execute(
        query, [*after, BATCH]
    ).fetchall():  # fmt: skip
        yield found
        after = (found[-1][0],) if len(after) == 1 else (found[-1][2], found[-1][0])
