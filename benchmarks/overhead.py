"""python -m benchmarks.overhead --store lance --store postgres --rows 100000 --rows 1000000

Rows per second of `start` and of `backfill` with a free encoder, against a hand-written loop over
the same client that reads the rows and writes vectors and marks in the way that the client's docs
recommend, and nothing else: no compare-and-set, no fingerprints, no leases, no sweep. Each runs in
a process of its own, on a table of its own, so that the peak memory is its own too; it counts the
process, not the server of a store. One store with both numbers of rows takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.shared.live_tables import DIM, FILL, free, toy_alignment
from benchmarks.shared.overhead_loops import hand_chroma, hand_redis, hand_sqlite
from benchmarks.shared.postgres_by_hand import hand_postgres
from benchmarks.shared.qdrant_by_hand import hand_qdrant

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

BATCH = 65_536  # rows that LanceDB is given by hand
REMARKS = {
    "qdrant": "The server is Qdrant's engine behind a protocol in Python: one request at a time, "
    "each made into objects of Python, so marks of a point cost more than its vector. The loop by "
    "hand writes one payload for a whole batch when it backfills, which says of no point which "
    "content its vector is of; in the last row it writes each point whole, with marks of its own. "
    "FastFill writes marks of its own for each point before its vector, counts, marks it as "
    "written, and compares every point once more in the last sweep.",
}
MARKS = ("generation", "model", "variance", "priority", "fingerprint")


# --- by hand -------------------------------------------------------------------------------------


def hand_lance(place: str, rows: int, step: str) -> float:
    """`merge_insert` of whole rows in large batches, by falling priority when backfilling.

    Of the ways to write with this client it is the fastest by far: an update of some of the columns
    makes LanceDB read the others of all rows first.
    """
    import lancedb
    import pyarrow as pa

    table, align = lancedb.connect(place).open_table("items"), toy_alignment()
    began = time.perf_counter()
    if step == "start":
        kinds = [pa.string(), pa.string(), pa.float32(), pa.float32(), pa.string()]
        fields = [pa.field(f"ff_{n}", k) for n, k in zip(MARKS, kinds, strict=True)]
        table.add_columns([pa.field("vector_new", pa.list_(pa.float32(), DIM)), *fields])
    for block in _lance_blocks(lancedb.connect(place).open_table("items"), step):
        count = len(block)
        if step == "start":
            flat = block["vector"].combine_chunks().flatten().to_numpy().reshape(count, DIM)
            done = align(flat)
            new, variance = done.vectors, done.variance
        else:
            new, variance = free(block["text"].to_pylist()), np.zeros(count, np.float32)
        flat = pa.array(np.ascontiguousarray(new).ravel())
        source = pa.table(
            {
                "id": block["id"],
                "text": block["text"],
                "vector": block["vector"],
                "vector_new": pa.FixedSizeListArray.from_arrays(flat, DIM),
                "ff_generation": pa.repeat("aligned" if step == "start" else "new", count),
                "ff_model": pa.repeat("model", count),
                "ff_variance": variance,
                "ff_priority": variance,
                "ff_fingerprint": pa.repeat("0" * 32, count),
            }
        )
        table.merge_insert("id").when_matched_update_all().execute(source)
    table.optimize()
    return time.perf_counter() - began


def _lance_blocks(table: Any, step: str) -> Iterator[Any]:
    """The rows as they come, or by falling priority, in batches; the table stays at its version."""
    import pyarrow as pa

    names, batch = ["id", "text", "vector"], BATCH
    if step == "start":
        for block in table.search().select(names).limit(10**9).to_batches(batch):
            yield pa.Table.from_batches([block])
        return
    found = table.search().select(["_rowid", "ff_priority"]).limit(10**9).to_arrow()
    order = found["_rowid"].to_numpy()[np.argsort(-found["ff_priority"].to_numpy())]
    for first in range(0, len(order), batch):
        yield table.take_row_ids(order[first : first + batch].tolist()).select(names).to_arrow()


HAND: dict[str, Any] = {
    "lance": hand_lance,
    "postgres": hand_postgres,
    "chroma": hand_chroma,
    "redis": hand_redis,
    "sqlite": hand_sqlite,
    "qdrant": hand_qdrant,
}


# --- by FastFill ---------------------------------------------------------------------------------


def ours(url: str, step: str) -> float:
    """The same by `Migration`; the time of `start` is that of aligning, without any pairs."""
    from fastfill.migrate import Migration
    from fastfill.wiring import connect

    gallery = connect(url, input="text", distance="l2")
    migration, learned = Migration(gallery, free, encoder_name="free"), toy_alignment()
    began = time.perf_counter()
    if step == "start":
        migration.start(alignment=learned, index=False)
    else:
        for _ in migration.backfill(throttle=False, refit=None):  # the other loop has no map
            pass
    return time.perf_counter() - began


# --- measuring -----------------------------------------------------------------------------------


def one(name: str, place: str, rows: int, who: str, index: bool) -> None:
    """In this process: fill, start, backfill; prints seconds and peak memory."""
    url = FILL[name](place, rows, index)
    toy_alignment()  # imports and caches are not what is measured
    base = _peak()
    seconds = {}
    for step in ("start", "backfill"):
        if who == "ours":
            seconds[step] = ours(url, step)
        elif who == "by key":
            seconds[step] = hand_postgres(place, rows, step, by_key=True)
        elif who == "whole points":
            seconds[step] = hand_qdrant(place, rows, step, whole=True)
        else:
            seconds[step] = HAND[name](place, rows, step)
    print(json.dumps({**seconds, "base": base, "peak": _peak()}))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3  # MB


def measure(name: str, rows: int, who: str, index: bool) -> dict[str, float]:
    """Run `one` in a fresh process over a fresh store."""
    with tempfile.TemporaryDirectory(prefix="overhead-", ignore_cleanup_errors=True) as folder:
        place = folder
        server: Any = None
        if name == "postgres":
            from benchmarks.shared.postgres_server import PostgresServer

            server = PostgresServer()
            place = server.uri
        if name == "redis":
            from benchmarks.shared.crash_redis import TemporaryRedisServer

            server = TemporaryRedisServer()
            place = f"redis://127.0.0.1:{server.port}"
        if name == "qdrant":
            from benchmarks.shared.crash_qdrant import QdrantServer

            server = QdrantServer()
            place = f"qdrant://127.0.0.1:{server.port}"
        try:
            command = [sys.executable, "-m", "benchmarks.overhead", "--one", name, place, str(rows)]
            command += [who, "index" if index else "plain"]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        finally:
            if server is not None:
                server.close()
    return dict(json.loads(output.strip().splitlines()[-1]))


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    """Of every figure."""
    return {name: float(np.median([run[name] for run in runs])) for name in runs[0]}


def line(
    rows: int, step: str, hand: dict[str, float], mine: dict[str, float], how: str = ""
) -> str:
    """One line of the table."""
    speeds = [rows / found[step] for found in (hand, mine)]
    return (
        f"| {rows:,} | {step}{how} | {speeds[0]:,.0f} | {speeds[1]:,.0f} | "
        f"{100 * speeds[1] / speeds[0]:.0f} % | {hand['peak']:,.0f} | {mine['peak']:,.0f} |"
    )


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--one"]:
        name, place, rows, who, index = sys.argv[2:]
        one(name, place, int(rows), who, index == "index")
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", action="append", choices=list(HAND))
    parser.add_argument("--rows", action="append", type=int)
    parser.add_argument("--repeats", type=int, default=1, help="in turn; the medians are shown")
    parser.add_argument("--index", action="store_true", help="with an ANN index on the old column")
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    for name in options.store or ["lance", "postgres"]:
        lines = [
            "| rows | step | by hand, rows/s | FastFill, rows/s | share | MB by hand | MB |",
            "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
        ]
        for rows in options.rows or [100_000]:
            runs = [
                measure(name, rows, who, options.index)
                for _ in range(options.repeats)
                for who in ("hand", "ours")
            ]
            hand, mine = (median(runs[first::2]) for first in (0, 1))
            lines += [line(rows, step, hand, mine) for step in ("start", "backfill")]
            if name == "postgres":
                keys = measure(name, rows, "by key", options.index)
                lines.append(line(rows, "backfill", keys, mine, ", by hand in any order"))
            if name == "qdrant":
                each = measure(name, rows, "whole points", options.index)
                lines.append(line(rows, "backfill", each, mine, ", by hand with marks of its own"))
            print(name, *lines[2:], sep="\n", flush=True)
        if options.write:
            from benchmarks.shared.sections import write_section

            title = f"Overhead of a migration: {name}" + (", with an ANN index" * options.index)
            command = " ".join(["python -m benchmarks.overhead", *sys.argv[1:]])
            remark = ["", REMARKS[name]] if name in REMARKS else []
            write_section(title, command, "\n".join(lines + remark))


if __name__ == "__main__":
    main()
