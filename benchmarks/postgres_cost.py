"""python -m benchmarks.postgres_cost --rows 100000

What a migration costs a PostgreSQL server, on tables of its own, with a free encoder, in columns of
the owner's table and in a table beside it, each against a loop by hand, as in
`benchmarks.overhead`, that writes the same and compares and checks nothing:

- bytes of write-ahead log, growth of the owner's table and of what is beside it, blocks read or
  found in memory, and time for each row, of `start` and of `backfill`; and what that is for 10^8
  rows, at the cost of a row of the largest size. Each step begins with a checkpoint, on a table
  that was vacuumed: otherwise the log of one has whole pages that another was spared, depending
  on when the server's own checkpoints fall;
- blocks of tables and indexes that each repeated operation reads, by the server's statistics
  (pg_statio_user_tables), at every size; the least of three measurements, because autovacuum is
  counted too. For 10^8 rows: what grows at least half as much as the rows from the second largest
  size to the largest grows with every row; what grows less pays for each row that it looks up one
  block more for each level that the index of the keys is higher, which is measured by looking up
  one row (EXPLAIN), and computed from its size;
- how long statements of an application that updates rows all the time take at most, and what they
  wait for, alone and beside a migration that is not throttled; with --index, `start` builds an HNSW
  index of the added vectors meanwhile, and some thousand rows are embedded while it is there.

Several sizes: --rows 100000 --rows 1000000 --rows 5000000, which take an hour and a half. Parts of
it: --table repeated, --layout side. What is written and what is read is kept by size and layout:
sizes that a run does not measure stay in the tables as they were.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np
import psycopg

from benchmarks.shared.live_tables import fill_postgres, free, toy_alignment
from benchmarks.shared.paths import DATA
from benchmarks.shared.postgres_by_hand import hand_postgres
from benchmarks.shared.postgres_server import PostgresServer
from benchmarks.shared.sections import write_section
from fastfill.adapters.postgres import indexes
from fastfill.features import replacing
from fastfill.gallery import LAYOUTS, Gallery, Layout, Store, load_state
from fastfill.migrate import Migration
from fastfill.migrate.job import Job
from fastfill.migrate.settling import settle
from fastfill.wiring import connect

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

STEPS = ("start", "backfill")
VARIANTS: tuple[tuple[Layout, bool], ...] = (("columns", False), ("side", False), ("side", True))
FAR = 10**8  # rows
KEPT = DATA / "postgres_cost.json"
KEPT_READS = DATA / "postgres_reads.json"
ONE_BY_ONE = "Sizes and layouts are measured one by one: the command is the last of several."
TIMES = 3  # that each repeated operation is measured
INDEXED = 5_000  # rows that are embedded while an HNSW index takes each of them
CHANGED = 100  # rows that others have written before a sweep
LOOK_UP = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT text FROM items WHERE id = 'item-7'"
LOOKED_UP = {  # rows that an operation looks up by their keys, beside the owner's table
    f"sweep, {CHANGED} rows were written": 4 * CHANGED,
    "first 16 aligned rows": 16,
    "first 256 new rows": 256,
}
BESIDE = "relname IN ('items_ff_vector', 'items_by_hand')"
SIZES = (  # of the owner's table and its indexes, and of the table beside it and its own
    "SELECT pg_table_size('items'), pg_indexes_size('items'), "
    f"(SELECT coalesce(sum(pg_table_size(oid)), 0) FROM pg_class WHERE {BESIDE}), "
    f"(SELECT coalesce(sum(pg_indexes_size(oid)), 0) FROM pg_class WHERE {BESIDE})"
)
BLOCKS = (
    "SELECT sum(coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + "
    "coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0) + coalesce(toast_blks_read, 0) + "
    "coalesce(toast_blks_hit, 0)) FROM pg_statio_user_tables WHERE schemaname = 'public'"
)


def migration(url: str) -> Migration:
    """A migration by a free encoder."""
    return Migration(open_gallery(url), free, encoder_name="free")


def open_gallery(url: str) -> Gallery:
    """The table, by its own connections."""
    return connect(url, input="text", distance="l2")


def run_step(
    url: str,
    step: str,
    layout: Layout,
    rows: int | None = None,
    *,
    trigger: bool = False,
    index: bool = False,
) -> None:
    """Align all rows, or embed some of them; with a `trigger` writes are noted from the start."""
    job = migration(url)
    if step == "start":
        job.start(alignment=toy_alignment(), index=index, layout=layout, allow_trigger=trigger)
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
    day: str = field(default_factory=lambda: datetime.now(tz=UTC).date().isoformat())

    @property
    def what(self) -> tuple[int, str, str]:
        """Both steps of it are measured together."""
        return self.rows, self.layout, self.who

    def line(self) -> str:
        """One line of the table."""
        grown = " | ".join(f"{each:,.0f}" for each in self.grown)
        return (
            f"| {self.rows:,} | {self.layout} | {self.step} | {self.who} | {self.log:,.0f} | "
            f"{grown} | {self.blocks:,.1f} | {1e6 * self.seconds:,.0f} | {self.day} |"
        )

    def far(self) -> str:
        """The same for 10^8 rows."""
        owners, beside = (FAR * sum(part) / 1e9 for part in (self.grown[:2], self.grown[2:]))
        return (
            f"| {self.layout} | {self.rows:,} | {self.step} | {self.who} | "
            f"{FAR * self.log / 1e9:,.0f} GB | "
            f"{owners:,.0f} GB | {beside:,.0f} GB | {FAR * self.blocks * 8_192 / 1e12:,.1f} TB | "
            f"{FAR * self.seconds / 3_600:,.1f} h |"
        )


def written(server: PostgresServer, rows: int, who: str, layout: Layout) -> list[Cost]:
    """What both steps cost."""
    url, costs = fill_postgres(server.uri, rows, False), []
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute("VACUUM items")
        before = _one(connection, SIZES)
        for step in STEPS:
            connection.execute("CHECKPOINT")
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


@dataclass(frozen=True)
class Reads:
    """Blocks that each repeated operation reads, and how high the index of the keys is."""

    rows: int
    levels: int
    leaf: float  # keys on a page of that index
    blocks: dict[str, int]

    def levels_at(self, rows: int) -> int:
        """What they would be: a page of pages holds about as many as a page of keys."""
        ratio = math.log(max(rows / self.leaf, 1)) / math.log(self.leaf)
        return max(1 + math.ceil(ratio), self.levels)


def blocks_read(server: PostgresServer, rows: int, layout: Layout) -> dict[str, Reads]:
    """What each of these reads, a tenth of the rows being new, by the name of the variant.

    Beside the owner's table, sweeps are measured before a trigger is allowed, too.
    """
    url = fill_postgres(server.uri, rows, False)
    run_step(url, "start", layout)
    run_step(url, "backfill", layout, rows // 10)
    _without_autovacuum(server)
    store = open_gallery(url).store
    names = list(repeated(store))
    store.close()
    variants: dict[str, Reads] = {}
    if layout == "side":
        sweeps = [name for name in names if name.startswith("sweep")]
        variants["side"] = _reads(server, url, rows, sweeps)
        run_step(url, "start", layout, trigger=True)
        _without_autovacuum(server)
    variants["side, trigger" if layout == "side" else layout] = _reads(server, url, rows, names)
    return variants


def _without_autovacuum(server: PostgresServer) -> None:
    """It would be counted too."""
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET autovacuum = off")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("VACUUM ANALYZE")


def _reads(server: PostgresServer, url: str, rows: int, names: list[str]) -> Reads:
    _settle(url)
    # What the server does beside it can only add to a count.
    least = {name: min(_read_by(server, url, name, rows) for _ in range(TIMES)) for name in names}
    said(f"{rows:,} rows: {name}: {blocks:,}" for name, blocks in least.items())
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")
        plan = _one(connection, LOOK_UP)[0][0]["Plan"]
        pages = int(_one(connection, "SELECT pg_relation_size('items_pkey') / 8192")[0])
    levels = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] - 1  # and the row itself
    return Reads(rows, levels, rows / pages, least)


def _settle(url: str) -> None:
    """Nothing is left of what others have written."""
    store = open_gallery(url).store
    state = load_state(store)
    assert state is not None
    for _ in range(2):  # the second time there is nothing to do
        settle(Job(Gallery(store), free, "free"), state, changed=True)
    store.close()


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


def far(name: str, sizes: Sequence[Reads], variant: str) -> str:
    """A row of the table: every size, whether it grows, why, and what that is for 10^8 rows."""
    small, large = sizes[-2], sizes[-1]
    before, after = small.blocks[name], large.blocks[name]
    looked_up = LOOKED_UP.get(name, 0) if variant.startswith("side") else 0
    deeper = looked_up * (large.levels - small.levels)
    blocks = after + float(looked_up * (large.levels_at(FAR) - large.levels))
    if after > before * large.rows / small.rows / 2:
        grows = "with every row"
        blocks = after + (after - before) / (large.rows - small.rows) * (FAR - large.rows)
    else:
        before = max(reads.blocks[name] for reads in sizes[:-1])  # a few blocks come and go
        grows = "no" if after <= 1.1 * before + 2 else f"by {after / before - 1:.0%}"
        grows = "with the index" if grows != "no" and after <= 1.1 * (before + deeper) else grows
    measured = " | ".join(f"{reads.blocks[name]:,}" for reads in sizes)
    return (
        f"| {name} | {variant} | {measured} | {grows} | {blocks:,.0f} | "
        f"{blocks * 8_192 / 1e9:,.3f} GB |"
    )


# --- who waits -----------------------------------------------------------------------------------


@dataclass
class Waits:
    """Seconds that statements of an application have taken, and waited for locks; their waits."""

    statements: list[float] = field(default_factory=list)
    locks: list[float] = field(default_factory=lambda: [0.0])
    events: Counter[str] = field(default_factory=Counter)  # what they were seen waiting for

    def line(self, when: str) -> str:
        """One line of the table, in milliseconds."""
        taken = 1e3 * np.array(self.statements)
        return (
            f"| {when} | {len(taken):,} | {np.median(taken):.1f} | {np.quantile(taken, 0.99):.0f} "
            f"| {taken.max():.0f} | {1e3 * max(self.locks):.0f} | {self._mostly()} |"
        )

    def _mostly(self) -> str:
        seen = self.events.total()
        most = self.events.most_common(3)
        return ", ".join(f"{event} {count / seen:.0%}" for event, count in most) or "nothing"


@contextmanager
def application(uri: str, rows: int, writers: int = 2) -> Iterator[Waits]:
    """Connections that update random rows all the time, and one that sees what they wait for."""
    waits, end = Waits(), threading.Event()
    locks = (
        "SELECT extract(epoch FROM clock_timestamp() - l.waitstart)::float8 FROM pg_locks l "
        "JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.application_name = 'writer'"
    )
    events = (
        "SELECT wait_event_type || ' ' || wait_event FROM pg_stat_activity "
        "WHERE application_name = 'writer' AND state = 'active' AND wait_event IS NOT NULL"
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
                found = connection.execute(locks).fetchall()
                waits.locks.extend(float(seconds) for (seconds,) in found if seconds is not None)
                waits.events.update(event for (event,) in connection.execute(events).fetchall())

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


def waited(
    server: PostgresServer, rows: int, layout: Layout, trigger: bool, index: bool
) -> list[str]:
    """Lines of the table: the application alone, and beside each step."""
    url, lines = fill_postgres(server.uri, rows, False), []
    variant = f"{layout}{', trigger' * trigger}"
    with application(server.uri, rows) as waits:
        time.sleep(10)
    lines.append(waits.line(f"{variant}: alone, 10 s"))
    for step in STEPS:
        with application(server.uri, rows) as waits:
            # Edited rows are embedded again: without a limit it would never end.
            some = min(rows, INDEXED) if index else rows
            run_step(url, step, layout, some, trigger=trigger, index=index)
        lines.append(waits.line(f"{variant}: beside `{step}`"))
    if trigger:
        with application(server.uri, rows) as waits:
            time.sleep(10)
        lines.append(waits.line(f"{variant}: alone with it, 10 s"))
    job = migration(url)
    with application(server.uri, rows) as waits:
        job.rollback()
        time.sleep(1)
    lines.append(waits.line(f"{variant}: beside `rollback`"))
    return lines


def _one(connection: Any, query: str, values: Any = ()) -> Any:
    return connection.execute(query, values or None).fetchone()


def written_tables(server: PostgresServer, options: argparse.Namespace) -> list[str]:
    """What is written, for every size, by whom and where; and for 10^8 rows."""
    costs = kept_costs() if options.write else []
    for rows, layout, who in product(sorted(options.rows), options.layout, ("hand", "FastFill")):
        measured = written(server, rows, who, layout)
        said(cost.line() for cost in measured)
        costs = [cost for cost in costs if cost.what != measured[0].what] + measured
        if options.write:
            keep_costs(costs)
    costs.sort(key=lambda cost: (cost.rows, cost.layout, cost.who == "FastFill"))
    lines = ["| rows | layout | step | by | log, B/row | owner's table | its indexes | beside it |"]
    lines[0] += " their indexes | blocks/row | µs/row | measured |"
    lines += ["| ---: | --- | --- | --- |" + " ---: |" * 8, *(cost.line() for cost in costs)]
    largest = {(cost.layout, cost.step, cost.who): cost for cost in costs}  # they rise
    lines += ["", "| 10^8 rows | as of | step | by | log | owner's table grows | beside it |"]
    lines[-1] += " blocks | time |"
    lines += ["| --- | ---: | --- | --- |" + " ---: |" * 5]
    lines += [cost.far() for cost in largest.values()]
    return [*lines, "", ONE_BY_ONE]


def kept_costs() -> list[Cost]:
    """Of earlier runs: the sizes take long, and need not be measured in one go."""
    if not KEPT.exists():
        return []
    plain = json.loads(KEPT.read_text(encoding="utf-8"))
    return [Cost(**{**each, "grown": tuple(each["grown"])}) for each in plain]


def keep_costs(costs: Sequence[Cost]) -> None:
    """Beside the other results."""
    with replacing(KEPT) as temporary:
        text = json.dumps([asdict(cost) for cost in costs], indent=None)
        temporary.write_text(text + "\n", encoding="utf-8")


def repeated_table(server: PostgresServer, options: argparse.Namespace) -> list[str]:
    """What is read again and again, at every size that was measured."""
    kept = kept_reads() if options.write else {}
    for rows, layout in product(sorted(options.rows), options.layout):
        for variant, reads in blocks_read(server, rows, layout).items():
            others = [each for each in kept.get(variant, ()) if each.rows != rows]
            kept[variant] = sorted([*others, reads], key=lambda each: each.rows)
        if options.write:
            keep_reads(kept)
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM RESET autovacuum")
        connection.execute("SELECT pg_reload_conf()")
    sizes = next(iter(kept.values()))
    if any([each.rows for each in one] != [each.rows for each in sizes] for one in kept.values()):
        sys.exit("Some sizes are measured for one layout alone: run without --layout.")
    if len(sizes) < 2:
        sys.exit("Measure two sizes at least: --rows 25000 --rows 100000.")
    heads = " | ".join(f"blocks at {each.rows:,}" for each in sizes)
    lines = [f"| repeated | layout | {heads} | grows | at 10^8 | |"]
    lines += ["| --- | --- |" + " ---: |" * len(sizes) + " --- | ---: | ---: |"]
    for variant, every in kept.items():
        lines += said(far(name, every, variant) for name in every[-1].blocks)
    levels = ", ".join(str(each.levels) for each in sizes)
    far_levels = sizes[-1].levels_at(FAR)
    index = f"The index of the keys has {levels} levels and, computed, {far_levels}."
    return [*lines, "", index, "", ONE_BY_ONE]


def kept_reads() -> dict[str, list[Reads]]:
    """Of earlier runs, by the name of the variant, sizes rising."""
    if not KEPT_READS.exists():
        return {}
    plain = json.loads(KEPT_READS.read_text(encoding="utf-8"))
    return {variant: [Reads(**each) for each in every] for variant, every in plain.items()}


def keep_reads(kept: dict[str, list[Reads]]) -> None:
    """Beside the other results."""
    plain = {variant: [asdict(each) for each in every] for variant, every in kept.items()}
    with replacing(KEPT_READS) as temporary:
        temporary.write_text(json.dumps(plain) + "\n", encoding="utf-8")


def waits_table(server: PostgresServer, options: argparse.Namespace) -> list[str]:
    """Who waits, and for how long."""
    lines = ["| two writers | statements | median, ms | 99 % | longest | longest lock | waits |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    rows = options.waits or max(options.rows)
    for layout, trigger in VARIANTS:
        if layout in options.layout:
            lines += said(waited(server, rows, layout, trigger, options.index))
    return lines


TABLES = {"written": written_tables, "repeated": repeated_table, "waits": waits_table}
TITLES = {
    "written": "What a migration writes to PostgreSQL",
    "repeated": "What a migration reads in PostgreSQL again and again",
    "waits": "Who waits for a migration of PostgreSQL",
}


def said(lines: Iterable[str]) -> list[str]:
    """Shown as soon as they are known: the whole takes long."""
    known = list(lines)
    for line in known:
        print(line, file=sys.stderr, flush=True)
    return known


def report(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The name and the text of each table that is wanted."""
    server = PostgresServer()
    try:
        for name in options.table:
            yield name, "\n".join(TABLES[name](server, options))
    finally:
        server.close()


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, action="append", help="several times: several sizes")
    parser.add_argument("--waits", type=int, help="rows of the table that others write to")
    parser.add_argument("--index", action="store_true", help="of the table of waits: with HNSW")
    parser.add_argument("--table", choices=TABLES, action="append", help="only this one")
    parser.add_argument("--layout", choices=LAYOUTS, action="append", help="only this one")
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    options.rows = options.rows or [25_000, 100_000]
    options.table, options.layout = options.table or list(TABLES), options.layout or list(LAYOUTS)
    indexes.LARGE = indexes.AT_WORK = 0  # also short work on small tables gets all indexes
    command = " ".join(["python -m benchmarks.postgres_cost", *sys.argv[1:]])
    for name, body in report(options):
        print(body)
        if options.write:
            indexed = ", with an HNSW index" if options.index and name == "waits" else ""
            write_section(TITLES[name] + indexed, command, body)


if __name__ == "__main__":
    main()
