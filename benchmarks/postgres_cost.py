"""python -m benchmarks.postgres_cost --rows 100000

What a migration costs a PostgreSQL server, on tables of its own, with a free encoder:

- bytes of write-ahead log and of table and indexes for each row, of `start` and of `backfill`,
  against a loop by hand, as in `benchmarks.overhead`, which compares and checks nothing;
- blocks of table and indexes that each repeated operation reads, by the server's statistics, on a
  quarter of the rows and on all of them, and what a line through both says of 10^8 rows where
  they differ by more than a tenth: how an index grows in height is left out;
- how long statements of an application that updates rows all the time take at most, and how long
  they wait for a lock, alone and beside a migration that is not throttled.

The full sizes are --rows 1000000 and --rows 5000000.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg

from benchmarks.shared.live_tables import fill_postgres, free, toy_alignment
from benchmarks.shared.postgres_by_hand import hand_postgres
from benchmarks.shared.postgres_server import PostgresServer
from fastfill.adapters.postgres import indexes
from fastfill.gallery import Gallery, Store, load_state
from fastfill.migrate import Migration
from fastfill.wiring import connect

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

STEPS = ("start", "backfill")
FAR = 10**8  # rows
SIZES = "SELECT pg_table_size('items'), pg_indexes_size('items')"
BLOCKS = (
    "SELECT coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0) "
    "+ coalesce(idx_blks_hit, 0) + coalesce(toast_blks_read, 0) + coalesce(toast_blks_hit, 0) "
    "FROM pg_statio_user_tables WHERE relname = 'items'"
)


def migration(url: str) -> Migration:
    """A migration by a free encoder."""
    return Migration(open_gallery(url), free, encoder_name="free")


def open_gallery(url: str) -> Gallery:
    """The table, by its own connections."""
    return connect(url, input="text", distance="l2")


def run_step(url: str, step: str, rows: int | None = None) -> None:
    """Align all rows, or embed some of them."""
    job = migration(url)
    if step == "start":
        job.start(alignment=toy_alignment(), index=False)
        return
    for _ in job.backfill(throttle=False, refit=None, rows=rows):
        pass


# --- what is written -----------------------------------------------------------------------------


def written(server: PostgresServer, rows: int, who: str) -> list[str]:
    """Lines of the table: log, table and indexes of both steps, in bytes for each row."""
    url, lines = fill_postgres(server.uri, rows, False), []
    with psycopg.connect(server.uri, autocommit=True) as connection:
        before = _one(connection, SIZES)
        for step in STEPS:
            position = _one(connection, "SELECT pg_current_wal_lsn()")[0]
            if who == "FastFill":
                run_step(url, step)
            else:
                hand_postgres(server.uri, rows, step)
            log = _one(connection, "SELECT pg_current_wal_lsn() - %s::pg_lsn", [position])[0]
            after = _one(connection, SIZES)
            grown = [(late - early) / rows for late, early in zip(after, before, strict=True)]
            lines.append(
                f"| {rows:,} | {step} | {who} | {float(log) / rows:,.0f} | {grown[0]:,.0f} | "
                f"{grown[1]:,.0f} |"
            )
    return lines


# --- what is read --------------------------------------------------------------------------------


def repeated(store: Store) -> dict[str, Callable[[], object]]:
    """What a backfill does again and again."""
    state = load_state(store)
    assert state is not None
    settled = state.settled
    return {
        "sweep, nothing was written": lambda: list(
            store.unsettled(settled, batch=4_096, changed=True)
        ),
        "progress, `status`": store.estimate,
        "pick of 4,096 rows": lambda: store.pick("aligned", 4_096, []),
        "first 16 aligned rows": lambda: next(store.scan("aligned", batch=16, new=True)),
        "first 256 new rows": lambda: next(store.scan("new", batch=256, new=True)),
        "count of every row (once a run)": store.counts,
    }


def blocks_read(server: PostgresServer, rows: int) -> dict[str, int]:
    """Blocks of table and indexes that each of these reads, a tenth of the rows being new."""
    url = fill_postgres(server.uri, rows, False)
    run_step(url, "start")
    run_step(url, "backfill", rows // 10)
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE items")
    counts = {}
    for name in repeated(open_gallery(url).store):
        store = open_gallery(url).store
        operation = repeated(store)[name]
        before = _settled_blocks(server)
        operation()
        store.close()  # the server's processes hand in their statistics when they end
        counts[name] = _settled_blocks(server) - before
    return counts


def _settled_blocks(server: PostgresServer) -> int:
    """The statistics, when they do not change any more."""
    with psycopg.connect(server.uri, autocommit=True) as connection:
        last = -1
        while last != (last := int(_one(connection, BLOCKS)[0])):
            time.sleep(0.3)
    return last


def far(name: str, small: int, large: int, rows: int) -> str:
    """A row of the table, with what a line through both points says where it grows at all."""
    slope = (large - small) / (rows - rows // 4) if large > 1.1 * small + 2 else 0.0
    blocks = large + slope * (FAR - rows)
    return f"| {name} | {small:,} | {large:,} | {blocks:,.0f} | {blocks * 8_192 / 1e9:,.3f} GB |"


# --- who waits -----------------------------------------------------------------------------------


@dataclass
class Waits:
    """Seconds that the statements of an application have taken, and waited for locks."""

    statements: list[float] = field(default_factory=list)
    locks: list[float] = field(default_factory=lambda: [0.0])

    def line(self, when: str) -> str:
        """One line of the table, in milliseconds."""
        taken = 1e3 * np.array(self.statements)
        return (
            f"| {when} | {len(taken):,} | {np.median(taken):.1f} | {np.quantile(taken, 0.99):.0f} "
            f"| {taken.max():.0f} | {1e3 * max(self.locks):.0f} |"
        )


@contextmanager
def application(uri: str, rows: int, writers: int = 2) -> Iterator[Waits]:
    """Connections that update random rows all the time, and one that sees what they wait for."""
    waits, end = Waits(), threading.Event()
    query = (
        "SELECT extract(epoch FROM clock_timestamp() - l.waitstart)::float8 FROM pg_locks l "
        "JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.application_name = 'writer'"
    )

    def write(seed: int) -> None:
        rng = random.Random(seed)
        with psycopg.connect(uri, autocommit=True, application_name="writer") as connection:
            while not end.wait(0.002):
                began = time.perf_counter()
                connection.execute(
                    "UPDATE items SET text = text || '.' WHERE id = %s",
                    [f"item-{rng.randrange(rows)}"],
                )
                waits.statements.append(time.perf_counter() - began)

    def look() -> None:
        with psycopg.connect(uri, autocommit=True) as connection:
            while not end.wait(0.01):
                found = connection.execute(query).fetchall()
                waits.locks.extend(float(seconds) for (seconds,) in found if seconds is not None)

    threads = [threading.Thread(target=write, args=[seed]) for seed in range(writers)]
    threads.append(threading.Thread(target=look))
    for thread in threads:
        thread.start()
    try:
        yield waits
    finally:
        end.set()
        for thread in threads:
            thread.join()


def waited(server: PostgresServer, rows: int) -> list[str]:
    """Lines of the table: the application alone, and beside each step."""
    url, lines = fill_postgres(server.uri, rows, False), []
    with application(server.uri, rows) as waits:
        time.sleep(10)
    lines.append(waits.line("alone, 10 s"))
    for step in STEPS:
        with application(server.uri, rows) as waits:
            run_step(url, step, rows)  # edited rows are embedded again: it would never end
        lines.append(waits.line(f"beside `{step}`"))
    job = migration(url)
    with application(server.uri, rows) as waits:
        job.rollback()
        time.sleep(1)
    lines.append(waits.line("beside `rollback`"))
    return lines


def _one(connection: Any, query: str, values: Any = ()) -> Any:
    return connection.execute(query, values or None).fetchone()


def report(options: argparse.Namespace) -> str:
    """All tables."""
    log: list[str] = []
    log += ["| rows | step | by | log, B/row | table, B/row | indexes, B/row |"]
    log += ["| ---: | --- | --- | ---: | ---: | ---: |"]
    rows = options.rows
    server = PostgresServer()
    try:
        for who in ("hand", "FastFill"):
            log += written(server, rows, who)
        small, large = blocks_read(server, rows // 4), blocks_read(server, rows)
        log += ["", f"| repeated | blocks at {rows // 4:,} | at {rows:,} | at 10^8 | |"]
        log += ["| --- | ---: | ---: | ---: | ---: |"]
        log += [far(name, small[name], large[name], rows) for name in large]
        log += ["", "| two writers | statements | median, ms | 99 % | longest | longest lock |"]
        log += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
        log += waited(server, options.waits or rows)
    finally:
        server.close()
    return "\n".join(log)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--waits", type=int, help="rows of the table that others write to")
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    indexes.LARGE = 0  # also the smaller tables get the indexes of large ones
    body = report(options)
    print(body)
    if options.write:
        from benchmarks.shared.sections import write_section

        command = " ".join(["python -m benchmarks.postgres_cost", *sys.argv[1:]])
        write_section("What a migration costs PostgreSQL", command, body)


if __name__ == "__main__":
    main()
