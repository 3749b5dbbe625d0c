"""python -m benchmarks.serving --store lance --store postgres --rows 60000

Queries while a backfill runs. One reader process searches the added column all the time, at about
the rate of a busy page. It is timed while nothing else goes on, under a backfill that does not look
at it, and under one that makes room (the default). These phases take turns, so that what drifts is
the same for all. No query may fail, and rows are read back and compared: each must have the vector
that its marks say, of the model or of the alignment, and nothing in between. The encoder sleeps, as
one that is elsewhere; refits are left out, since learning a map takes as long as these phases.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.shared.live_tables import (
    BLOCK,
    DIM,
    fill_lance,
    fill_postgres,
    toy_alignment,
    vectors,
)

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

SECONDS_PER_ITEM = 0.001  # of the encoder: 1,000 items/s
BATCH = 4_096  # 4 s of the encoder; 20 s would be the default, too long for a short phase
K, THINK = 10, 0.02  # answers, and seconds between two queries of the reader
CHECKED = 20  # one query in so many is followed by a look at the rows that it found
IDLE, BLIND, ROOM = "idle", "no throttle", "makes room"
ROUNDS = (IDLE, BLIND, ROOM, IDLE, ROOM, BLIND, IDLE)
ALIGNMENTS: dict[str, Any] = {}  # that the reader has met, by their tags


@cache
def new_vectors(block: int) -> Any:
    """What the new model makes of a block of items: a linear map of the old vectors and noise."""
    old = vectors(block, BLOCK)
    mixing = np.random.default_rng(1).standard_normal((DIM, DIM)).astype(np.float32) / 16
    noise = np.random.default_rng(block + 7).standard_normal((BLOCK, DIM))
    return old @ mixing + 0.3 * noise.astype(np.float32)


def new_vector(number: int) -> Any:
    """(d,) of one item."""
    return new_vectors(number // BLOCK * BLOCK)[number % BLOCK]


def encode(texts: Any) -> Any:
    """An encoder that takes its time on another machine."""
    time.sleep(SECONDS_PER_ITEM * len(texts))
    return np.stack([new_vector(int(text.split()[-1])) for text in texts])


# --- in processes of their own -------------------------------------------------------------------


def read(url: str, place: str) -> None:
    """Search until killed; a line for each query: when, seconds, and whether all was well."""
    from fastfill.wiring import connect

    gallery = connect(url)
    queries = np.random.default_rng(3).standard_normal((64, DIM)).astype(np.float32)
    with Path(place).open("w", buffering=1) as log:
        for number in range(10**9):
            asked = time.perf_counter()
            try:
                hits = gallery.search(queries[number % len(queries)], K)
                seconds = time.perf_counter() - asked
                good = len(hits.ids) == K and bool(np.isfinite(hits.distances).all())
                if number % CHECKED == 0:
                    good &= right(gallery, hits.ids.tolist())
            except Exception as error:
                print(f"A query failed: {error!r}", file=sys.stderr, flush=True)
                seconds, good = time.perf_counter() - asked, False
            log.write(f"{time.time()} {seconds} {int(good)}\n")
            time.sleep(THINK)


def right(gallery: Any, ids: list[str]) -> bool:
    """Does every row have the vector that its marks say?"""
    from fastfill.migrate.ledger.alignments import Alignments

    rows = gallery.store.read(ids, new=True)
    for key, old, found, mark, model in zip(
        rows.ids, rows.old, rows.new, rows.generation, rows.model, strict=True
    ):
        wanted = new_vector(int(key.split("-")[1]))
        if mark == "aligned":
            if model not in ALIGNMENTS:
                ALIGNMENTS[model] = Alignments(gallery.store).load(model)
            wanted = ALIGNMENTS[model](old[None]).vectors[0]
        if not np.allclose(found, wanted, atol=1e-3):
            print(f"{key} is {mark} by {model}, but not its vector", file=sys.stderr, flush=True)
            return False
    return True


def work(url: str, seconds: float, phase: str) -> None:
    """Backfill for a while, as the command does; prints the rows, when it began and ended."""
    from fastfill.cli.backfill import NICE
    from fastfill.migrate import Migration
    from fastfill.wiring import connect

    if phase != BLIND:
        os.nice(NICE)
    new_vector(0)
    migration = Migration(connect(url), encode, encoder_name="slow")
    steps = migration.backfill(throttle=phase != BLIND, batch=BATCH, refit=None)
    began = ended = time.time()
    written, reasons = 0, set[str]()
    for progress in steps:
        reasons |= {progress.reason} if progress.reason else set()
        if progress.written > written and progress.reason is None:  # a whole batch is written
            written, ended = progress.written, time.time()
            if ended - began > seconds:
                break
    print(json.dumps([written, began, ended, sorted(reasons)[:5]]), flush=True)
    migration.stop.set()
    for _ in steps:
        pass


# --- the phases ----------------------------------------------------------------------------------


class Phase(NamedTuple):
    """What went on between two moments."""

    name: str
    began: float
    ended: float
    rows: int = 0
    busy: float = 0.0  # share of the cores


def cpu_seconds() -> float:
    """Seconds that the cores of this machine were busy since it started."""
    ticks = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def one_phase(name: str, url: str, seconds: float) -> Phase:
    """Leave the reader alone, or let a backfill run beside it."""
    if name == IDLE:
        began, spent = time.time(), cpu_seconds()
        time.sleep(seconds)
        busy = (cpu_seconds() - spent) / seconds / (os.cpu_count() or 1)
        print(f"{name}: the cores were {100 * busy:.0f} % busy", flush=True)
        return Phase(name, began, time.time(), busy=busy)
    command = [sys.executable, "-m", "benchmarks.serving", "--work", url, str(seconds), name]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    rows, began, ended, reasons = json.loads(answer)
    print(f"{name}: {rows:,} rows in {ended - began:.1f} s. {'; '.join(reasons)}", flush=True)
    return Phase(name, began, ended, rows)


def tidy(name: str, store: Any) -> None:
    """Each phase begins with a store in order."""
    store.optimize()
    if name == "lance":  # of PostgreSQL's index there is nothing to be put in order
        store.build_index("new", "l2")
        store.optimize()
    time.sleep(2)


def measure(store: str, place: str, rows: int, seconds: float) -> list[str]:
    """All phases on one store, as lines of a table."""
    from fastfill.migrate import Migration
    from fastfill.wiring import connect

    url = (fill_lance if store == "lance" else fill_postgres)(place, rows, False)
    gallery = connect(url, input="text", distance="l2")
    Migration(gallery, encode, encoder_name="slow").start(alignment=toy_alignment(), index=True)
    with tempfile.TemporaryDirectory(prefix="serving-") as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "benchmarks.serving", "--read", url, str(log)]
        reader = subprocess.Popen(command)
        try:
            time.sleep(5)  # what is read for the first time is no one's fault
            phases = []
            for name in ROUNDS:
                phases.append(one_phase(name, url, seconds))
                tidy(store, gallery.store)
        finally:
            reader.terminate()
            reader.wait()
        found = np.loadtxt(log)  # (n, 3): when, seconds, good
    return [line(store, name, phases, found) for name in dict.fromkeys(ROUNDS)]


def line(store: str, name: str, phases: list[Phase], found: Any) -> str:
    """The phases of one name together, against the idle ones and against no throttle."""

    def during(name: str) -> Any:
        mine = [
            (found[:, 0] >= p.began) & (found[:, 0] < p.ended) for p in phases if p.name == name
        ]
        return found[np.any(mine, axis=0)]

    def speed(name: str) -> float:
        mine = [phase for phase in phases if phase.name == name]
        return sum(p.rows for p in mine) / sum(p.ended - p.began for p in mine)

    p95, idle = (float(np.percentile(during(n)[:, 1], 95)) for n in (name, IDLE))
    share = "–" if name == IDLE else f"{100 * speed(name) / speed(BLIND):.0f} %"
    asked = during(name)
    return (
        f"| {store}, {name} | {np.median(asked[:, 1]) * 1e3:.1f} | {p95 * 1e3:.1f} | "
        f"{p95 / idle:.2f} | {speed(name):,.0f} | {share} | {len(asked):,} | "
        f"{int((asked[:, 2] == 0).sum())} |"
    )


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--read"]:
        read(sys.argv[2], sys.argv[3])
        return
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], float(sys.argv[3]), sys.argv[4])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", action="append", choices=["lance", "postgres"])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each phase")
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    lines = [
        "| store, backfill | median, ms | p95, ms | × idle | rows/s | of no throttle | queries | "
        "failed |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in options.store or ["lance", "postgres"]:
        if name == "postgres":
            from benchmarks.shared.postgres_server import PostgresServer

            server = PostgresServer()
            lines += measure(name, server.uri, options.rows, options.seconds)
            server.close()
        else:
            with tempfile.TemporaryDirectory(prefix="serving-") as folder:
                lines += measure(name, folder, options.rows, options.seconds)
    print("\n".join(lines))
    if options.write:
        from benchmarks.shared.sections import write_section

        command = " ".join(["python -m benchmarks.serving", *sys.argv[1:]])
        write_section("Queries during a backfill", command, "\n".join(lines))


if __name__ == "__main__":
    main()
