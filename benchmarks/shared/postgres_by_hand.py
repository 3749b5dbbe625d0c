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


def hand_postgres(place: str, rows: int, step: str, by_key: bool = False) -> float:
    """Pages of what is needed, binary COPY into a temporary table, one UPDATE for each page.

    When backfilling, by falling priority from an index, or `by_key`, without any order and index.
    """
    align, start = toy_alignment(), step == "start"
    generation: Literal["aligned", "new"] = "aligned" if start else "new"
    with psycopg.connect(place, autocommit=True) as connection:
        if start:
            connection.execute(
                f"ALTER TABLE items ADD vector_new vector({DIM}), ADD ff_generation text, "
                "ADD ff_model text, ADD ff_variance real, ADD ff_priority real, "
                "ADD ff_fingerprint bytea"
            )
        connection.execute(
            "CREATE TEMPORARY TABLE batch (id text, seen bytea, version text, generation text, "
            "model text, vector vector, variance real, priority real) ON COMMIT DELETE ROWS"
        )
        began = time.perf_counter()
        for found in _postgres_pages(connection, start, by_key):
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
                connection.execute("SET LOCAL enable_hashjoin = off")
                connection.execute("SET LOCAL enable_mergejoin = off")
                connection.execute("SET LOCAL enable_seqscan = off")
                connection.execute(
                    f"UPDATE items t SET vector_new = s.vector, ff_generation = '{generation}', "
                    "ff_model = 'm', ff_variance = s.variance, ff_priority = s.priority, "
                    "ff_fingerprint = s.seen FROM batch s WHERE t.id = s.id"
                )
        if start and not by_key:
            connection.execute(
                "CREATE INDEX ON items (ff_priority DESC, id DESC) WHERE ff_generation = 'aligned'"
            )
        return time.perf_counter() - began


def _postgres_pages(connection: Any, start: bool, by_key: bool) -> Iterator[Any]:
    """Ids with old vectors or texts, each page after the last row of the page before."""
    after: tuple[Any, ...] = ("",)
    wanted, where, order = "vector_send(vector)", "id > %s", "id"
    if not start:
        wanted = "text"
    if not start and not by_key:
        after = (np.inf, "")
        where = "ff_generation = 'aligned' AND (ff_priority, id) < (%s, %s)"
        order = "ff_priority DESC, id DESC"
    query = f"SELECT id, {wanted}, ff_priority FROM items WHERE {where} ORDER BY {order} LIMIT %s"
    while found := connection.cursor(binary=True).execute(
        query, [*after, BATCH]
    ).fetchall():  # fmt: skip
        yield found
        after = (found[-1][0],) if len(after) == 1 else (found[-1][2], found[-1][0])
