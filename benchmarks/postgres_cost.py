"""python -m benchmarks.postgres_cost --rows 100000

What a migration costs a PostgreSQL server, on tables of its own, with a free encoder, in columns of
the owner's table and in a table beside it, each against a loop by hand, as in
`benchmarks.overhead`, that writes the same and compares and checks nothing:

- bytes of write-ahead log, growth of the owner's table and of what is beside it, blocks read or
  found in memory, and time for each row, of `start` and of `backfill`; and what that is for 10^8
  rows, at the cost of a row of the largest size;
- blocks of tables and indexes that each repeated operation reads, by the server's statistics, on a
  quarter of the rows and on all of them, and what a line through both says of 10^8 rows where
  they differ by more than a tenth: how an index grows in height is left out; the least of three
  measurements, because autovacuum is counted too;
- how long statements of an application that updates rows all the time take at most, and how long
  they wait for a lock, alone and beside a migration that is not throttled.

Several sizes: --rows 100000 --rows 1000000 --rows 5000000.
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
from fastfill.gallery import LAYOUTS, Gallery, Layout, Store, load_state
from fastfill.migrate import Migration
from fastfill.wiring import connect

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

STEPS = ("start", "backfill")
FAR = 10**8  # rows
TIMES = 3  # that each repeated operation is measured
CHANGED = 100  # rows that others have written before a sweep
BESIDE = "relname IN ('items_ff_vector', 'items_by_hand')"
SIZES = (  # of the owner's table and its indexes, and of the table beside it and its own
    "SELECT pg_table_size('items'), pg_indexes_size('items'), "
    f"(SELECT coalesce(sum(pg_table_size(oid)), 0) FROM pg_class WHERE {BESIDE}), "
    f"(SELECT coalesce(sum(pg_indexes_size(oid)), 0) FROM pg_class WHERE {BESIDE})"
)
BLOCKS = (
    "SELECT sum(coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + "
    "coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0) + coalesce(toast_blks_read, 0) + "
    "coalesce(toast_blks_hit, 0)) FROM pg_statio_user_tables"
)


def migration(url: str) -> Migration:
    """A migration by a free encoder."""
    return Migration(open_gallery(url), free, encoder_name="free")


def open_gallery(url: str) -> Gallery:
    """The table, by its own connections."""
    return connect(url, input="text", distance="l2")


def run_step(url: str, step: str, layout: Layout, rows: int | None = None) -> None:
    """Align all rows, or embed some of them."""
    job = migration(url)
    if step == "start":
        job.start(alignment=toy_alignment(), index=False, layout=layout)
        return
    for _ in job.backfill(throttle=False, refit=None, rows=rows):
        pass


# --- what is written -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Of one step, all for one row."""

    rows: int
    step: str
    who: str
    layout: Layout
    log: float  # bytes
    grown: tuple[float, ...]  # bytes: the owner's table and its indexes, those beside it
    blocks: float
    seconds: float

    def line(self) -> str:
        """One line of the table."""
        grown = " | ".join(f"{each:,.0f}" for each in self.grown)
        return (
            f"| {self.rows:,} | {self.layout} | {self.step} | {self.who} | {self.log:,.0f} | "
            f"{grown} | {self.blocks:,.1f} | {1e6 * self.seconds:,.0f} |"
        )

    def far(self) -> str:
        """The same for 10^8 rows."""
        owners, beside = (FAR * sum(part) / 1e9 for part in (self.grown[:2], self.grown[2:]))
        return (
            f"| {self.layout} | {self.step} | {self.who} | {FAR * self.log / 1e9:,.0f} GB | "
            f"{owners:,.0f} GB | {beside:,.0f} GB | {FAR * self.blocks * 8_192 / 1e12:,.1f} TB | "
            f"{FAR * self.seconds / 3_600:,.1f} h |"
        )


def written(server: PostgresServer, rows: int, who: str, layout: Layout) -> list[Cost]:
    """What both steps cost."""
    url, costs = fill_postgres(server.uri, rows, False), []
    with psycopg.connect(server.uri, autocommit=True) as connection:
        before = _one(connection, SIZES)
        for step in STEPS:
            position = _one(connection, "SELECT pg_current_wal_lsn()")[0]
            blocks, began = _settled_blocks(server), time.perf_counter()
            if who == "FastFill":
                run_step(url, step, layout)
            else:
                hand_postgres(server.uri, rows, step, beside=layout == "side")
            seconds = time.perf_counter() - began
            log = _one(connection, "SELECT pg_current_wal_lsn() - %s::pg_lsn", [position])[0]
            pairs = zip(_one(connection, SIZES), before, strict=True)
            grown = tuple(float(late - early) / rows for late, early in pairs)
            touched = (_settled_blocks(server) - blocks) / rows
            costs.append(
                Cost(rows, step, who, layout, float(log) / rows, grown, touched, seconds / rows)
            )
    return costs


# --- what is read --------------------------------------------------------------------------------


def repeated(store: Store) -> dict[str, Callable[[], object]]:
    """What a backfill does again and again."""
    state = load_state(store)
    assert state is not None
    settled, sweep = state.settled, f"sweep, {CHANGED} rows were written"
    job = Migration(Gallery(store), free, encoder_name="free")

    def look() -> object:
        return list(store.unsettled(settled, batch=4_096, changed=True))

    return {
        "sweep, nothing was written": look,
        sweep: look,
        "progress": store.estimate,
        "`status`": job.status,
        "pick of 4,096 rows": lambda: store.pick("aligned", 4_096, []),
        "first 16 aligned rows": lambda: next(store.scan("aligned", batch=16, new=True)),
        "first 256 new rows": lambda: next(store.scan("new", batch=256, new=True)),
        "count of every row (once a run)": store.counts,
    }


def blocks_read(server: PostgresServer, rows: int, layout: Layout) -> dict[str, int]:
    """Blocks of tables and indexes that each of these reads, a tenth of the rows being new."""
    url = fill_postgres(server.uri, rows, False)
    run_step(url, "start", layout)
    run_step(url, "backfill", layout, rows // 10)
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET autovacuum = off")  # it would be counted too
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("VACUUM ANALYZE")
    store = open_gallery(url).store
    names = list(repeated(store))
    store.close()
    # What the server does beside it can only add to a count.
    return {name: min(_read_by(server, url, name, rows) for _ in range(TIMES)) for name in names}


def _read_by(server: PostgresServer, url: str, name: str, rows: int) -> int:
    if "were written" in name:
        _change(server, rows)
    store = open_gallery(url).store
    operation = repeated(store)[name]
    before = _settled_blocks(server)
    operation()
    store.close()  # the server's processes hand in their statistics when they end
    return _settled_blocks(server) - before


def _change(server: PostgresServer, rows: int) -> None:
    """Some rows all over the table are edited by others."""
    keys = [f"item-{n}" for n in range(0, rows, rows // CHANGED)][:CHANGED]
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute("UPDATE items SET text = text || '.' WHERE id = ANY(%s)", [keys])


def _settled_blocks(server: PostgresServer) -> int:
    """The statistics, when they do not change any more."""
    with psycopg.connect(server.uri, autocommit=True) as connection:
        last = -1
        while last != (last := int(_one(connection, BLOCKS)[0])):
            time.sleep(0.3)
    return last


def far(name: str, small: int, large: int, rows: int, layout: Layout) -> str:
    """A row of the table, with what a line through both points says where it grows at all."""
    slope = (large - small) / (rows - rows // 4) if large > 1.1 * small + 2 else 0.0
    blocks = large + slope * (FAR - rows)
    return (
        f"| {name} | {layout} | {small:,} | {large:,} | {blocks:,.0f} | "
        f"{blocks * 8_192 / 1e9:,.3f} GB |"
    )


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


def waited(server: PostgresServer, rows: int, layout: Layout) -> list[str]:
    """Lines of the table: the application alone, and beside each step."""
    url, lines = fill_postgres(server.uri, rows, False), []
    with application(server.uri, rows) as waits:
        time.sleep(10)
    lines.append(waits.line(f"{layout}: alone, 10 s"))
    for step in STEPS:
        with application(server.uri, rows) as waits:
            run_step(url, step, layout, rows)  # edited rows are embedded again: it would never end
        lines.append(waits.line(f"{layout}: beside `{step}`"))
    job = migration(url)
    with application(server.uri, rows) as waits:
        job.rollback()
        time.sleep(1)
    lines.append(waits.line(f"{layout}: beside `rollback`"))
    return lines


def _one(connection: Any, query: str, values: Any = ()) -> Any:
    return connection.execute(query, values or None).fetchone()


def written_tables(server: PostgresServer, sizes: list[int]) -> list[str]:
    """What is written, for every size, by whom and where; and for 10^8 rows."""
    lines = ["| rows | layout | step | by | log, B/row | owner's table | its indexes | beside it |"]
    lines[0] += " their indexes | blocks/row | µs/row |"
    lines += ["| ---: | --- | --- | --- |" + " ---: |" * 7]
    costs = [
        cost
        for rows in sizes
        for layout in LAYOUTS
        for who in ("hand", "FastFill")
        for cost in written(server, rows, who, layout)
    ]
    lines += [cost.line() for cost in costs]
    lines += ["", f"| 10^8 rows, as of {sizes[-1]:,} | step | by | log | owner's table grows |"]
    lines[-1] += " beside it | blocks | time |"
    lines += ["| --- | --- | --- |" + " ---: |" * 5]
    return lines + [cost.far() for cost in costs if cost.rows == sizes[-1]]


def repeated_table(server: PostgresServer, rows: int) -> list[str]:
    """What is read again and again."""
    lines = ["", f"| repeated | layout | blocks at {rows // 4:,} | at {rows:,} | at 10^8 | |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: |"]
    for layout in LAYOUTS:
        small, large = (blocks_read(server, size, layout) for size in (rows // 4, rows))
        lines += [far(name, small[name], large[name], rows, layout) for name in large]
    return lines


def report(options: argparse.Namespace) -> str:
    """All tables."""
    sizes = sorted(options.rows or [100_000])
    server = PostgresServer()
    try:
        log = written_tables(server, sizes)
        log += repeated_table(server, sizes[-1])
        with psycopg.connect(server.uri, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM RESET autovacuum")
            connection.execute("SELECT pg_reload_conf()")
        log += ["", "| two writers | statements | median, ms | 99 % | longest | longest lock |"]
        log += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
        for layout in LAYOUTS:
            log += waited(server, options.waits or sizes[-1], layout)
    finally:
        server.close()
    return "\n".join(log)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, action="append", help="several times: several sizes")
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
