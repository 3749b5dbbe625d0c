"""python -m benchmarks.serving --store lance --store postgres --rows 60000

Queries while a backfill runs: a reader process searches the added column all the time. Its p95
latency is measured idle, under a backfill that does not look at it, and under one that makes room
(the default), all in the same run; and no query may fail or return a vector of neither model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks.overhead import DIM, alignment, fill_lance, fill_postgres

SECONDS_PER_ITEM = 0.0005  # of the encoder: 2,000 items/s, a fast model on a good GPU
BATCH = 2_048  # about a second of the encoder, so that a short run has many batches
K = 10


def encode(texts: Any) -> Any:
    """An encoder that takes its time on another machine."""
    time.sleep(SECONDS_PER_ITEM * len(texts))
    return np.broadcast_to(np.linspace(0.1, 1, DIM, dtype=np.float32), (len(texts), DIM))


def read(url: str, seconds: float) -> None:
    """In a process of its own: search until told to stop; prints latencies and failures."""
    from fastfill.wiring import connect

    gallery = connect(url)
    queries = np.random.default_rng(3).standard_normal((64, DIM)).astype(np.float32)
    found: list[float] = []
    wrong, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        query = queries[len(found) % len(queries)]
        asked = time.perf_counter()
        hits = gallery.search(query, K)
        found.append(time.perf_counter() - asked)
        wrong += len(hits.ids) != K or not np.isfinite(hits.distances).all()
        time.sleep(0.02)
    print(json.dumps({"latencies": found, "wrong": wrong}))


def backfill(url: str, seconds: float, make_room: bool) -> float:
    """Rows per second of a backfill that is stopped after some seconds, as the command does it."""
    command = [sys.executable, "-m", "benchmarks.serving", "--backfill", url, str(seconds)]
    command += ["room"] if make_room else ["blind"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def work(url: str, seconds: float, make_room: bool) -> None:
    """In a process of its own: backfill for a while; prints rows per second."""
    from fastfill.cli.migrate import POLITE
    from fastfill.migrate import Migration
    from fastfill.wiring import connect

    if make_room:
        os.nice(POLITE)
    migration = Migration(connect(url), encode, encoder_name="slow")
    began, written = time.monotonic(), 0
    for progress in migration.backfill(make_room=make_room, batch=BATCH):
        written = progress.written
        if time.monotonic() - began > seconds:
            migration.stop.set()
    print(written / (time.monotonic() - began))


def measure(name: str, place: str, rows: int, seconds: float) -> list[str]:
    """Three phases on one store."""
    from fastfill.migrate import Migration
    from fastfill.wiring import connect

    url = (fill_lance if name == "lance" else fill_postgres)(place, rows, False)
    gallery = connect(url, input="text", distance="l2")
    Migration(gallery, encode, encoder_name="slow").start(alignment=alignment(), index=True)
    lines, idle, fastest = [], 0.0, 0.0
    for label, make_room in (("idle", None), ("no throttle", False), ("makes room", True)):
        command = [sys.executable, "-m", "benchmarks.serving", "--read", url, str(seconds)]
        reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        speed = 0.0 if make_room is None else backfill(url, seconds, make_room)
        output = json.loads(reader.communicate()[0].strip().splitlines()[-1])
        p95 = float(np.percentile(output["latencies"][5:], 95)) * 1e3
        idle, fastest = idle or p95, fastest or speed
        share = f"{100 * speed / fastest:.0f} %" if fastest else "–"
        lines.append(
            f"| {name}, {label} | {p95:.1f} | {p95 / idle:.2f} | {speed:,.0f} | {share} | "
            f"{len(output['latencies']):,} | {output['wrong']} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--read"]:
        read(sys.argv[2], float(sys.argv[3]))
        return
    if sys.argv[1:2] == ["--backfill"]:
        work(sys.argv[2], float(sys.argv[3]), sys.argv[4] == "room")
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", action="append", choices=["lance", "postgres"])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    lines = [
        "| store, backfill | p95, ms | × idle | rows/s | of the fastest | queries | failed |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in options.store or ["lance", "postgres"]:
        if name == "postgres":
            from benchmarks._crash_worlds import PostgresServer

            server = PostgresServer()
            lines += measure(name, server.uri, options.rows, options.seconds)
            server.close()
        else:
            with tempfile.TemporaryDirectory(prefix="serving-") as folder:
                lines += measure(name, folder, options.rows, options.seconds)
    if options.write:
        from benchmarks._results import write_section

        command = " ".join(["python -m benchmarks.serving", *sys.argv[1:]])
        write_section("Queries during a backfill", command, "\n".join(lines))


if __name__ == "__main__":
    main()
