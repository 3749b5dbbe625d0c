"""Random rows of a large table from random places in it, without a look at every row.

A place is a block and a number in it, each drawn with the same chance, and most places are empty:
whatever row lies at one has the same chance as any other, however full the blocks are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from psycopg.sql import SQL, Composable, Literal

from fastfill.adapters.postgres.context import PostgresContext
from fastfill.adapters.postgres.sql import key, source

SMALL = 4_096  # blocks of a table of which every row is looked at
PLACES = 291  # of a block of 8 kB: PostgreSQL's MaxHeapTuplesPerPage
DRAWN = 20_000  # places at a time


def random_ids(
    context: PostgresContext, where: Composable, limit: int, seed: int
) -> list[Any] | None:
    """Ids of random rows that meet a condition, at most `limit`.

    None where a look at every row is cheaper: the table is small, or few rows meet the condition.
    """
    (row,) = context.work.rows_of(
        "SELECT pg_relation_size(to_regclass(%s)) / current_setting('block_size')::int, "
        "current_setting('block_size')::int",
        [context.regclass(context.table)],
    )
    blocks, places = int(row[0]), PLACES * int(row[1]) // 8_192
    if blocks < SMALL:
        return None
    query = SQL("SELECT {} FROM {} WHERE t.ctid = ANY({}::tid[]) AND {}")
    rng, ids = np.random.default_rng(seed), dict[Any, None]()
    for _ in range(max(blocks // DRAWN, 1)):  # so much is about as dear as the whole table
        drawn = zip(rng.integers(blocks, size=DRAWN), rng.integers(places, size=DRAWN), strict=True)
        tids = [f"({block},{place + 1})" for block, place in drawn]
        step = query.format(key(context), source(context), Literal(tids), where)
        ids.update(dict.fromkeys(each for (each,) in context.work.rows_of(step)))
        if len(ids) >= limit:
            chosen = list(ids)
            return [chosen[n] for n in rng.permutation(len(chosen))[:limit]]
    return None
