"""python -m benchmarks.scale_embedding --rows 400000

Embedding a folder of Parquet files by four Ray actors, two of which are killed on the way, with an
encoder that waits a fixed time for each row, as one on a GPU does while the CPU is free. Is every
row there exactly once, with the right vector, and how near does the run come to four encoders that
never wait for anything? The clock runs from the first batch that begins to the last that ends.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks.shared.process_tree import run_measured
from benchmarks.shared.waiting_encoder import WaitingEncoder

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

PIECE = 2_000
ACTORS, KILLED = 4, 2
SLOW = 0.5e-3  # seconds for a row: a second for a piece


def fill(place: Path, rows: int) -> None:
    """One file in row groups of one piece."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (place / "texts").mkdir()
    (place / "log").mkdir()
    table = pa.table({"id": range(rows), "text": [f"text of item {i}" for i in range(rows)]})
    pq.write_table(table, place / "texts/all.parquet", row_group_size=PIECE)


def one(place: Path) -> None:
    """Embed by actors, and kill some of them when each has done something."""
    from fastfill.scale import EmbedRows, embed_folder
    from fastfill.scale.engines.ray import RayEngine

    killer = threading.Thread(target=_kill, args=(place / "log",), daemon=True)
    killer.start()
    encoder = WaitingEncoder(str(place / "log"), SLOW)
    operation = EmbedRows(encoder, "waiting", "text", "vector_new")
    engine = RayEngine(workers=ACTORS, actors=ACTORS)
    embed_folder(operation, str(place / "texts"), str(place / "out"), engine=engine)


def _kill(log: Path) -> None:
    while len([file for file in log.iterdir() if file.stat().st_size]) < ACTORS:
        time.sleep(0.05)
    for file in sorted(log.iterdir())[:KILLED]:
        os.kill(int(file.stem), signal.SIGKILL)
        time.sleep(3 * PIECE * SLOW)


def check(place: Path) -> tuple[bool, float, int]:
    """Is all as it should be; from the first batch to the last, seconds; encoders opened."""
    import pyarrow.parquet as pq

    table = pq.read_table(place / "out").sort_by("id")
    ids, texts = table["id"].to_numpy(), table["text"].to_pylist()
    mine = np.stack(table["vector_new"].to_numpy())
    logs = list((place / "log").iterdir())
    calls = [line.split() for file in logs for line in file.read_text().splitlines()]
    seconds = max(float(call[2]) for call in calls) - min(float(call[1]) for call in calls)
    alone = WaitingEncoder(str(place / "log"), 0.0)()(texts)
    right = np.array_equal(ids, np.arange(len(ids))) and np.array_equal(mine, alone)
    return right, seconds, len(logs)


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--one"]:
        one(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-embedding-") as folder:
        place = Path(folder)
        fill(place, options.rows)
        command = [sys.executable, "-m", "benchmarks.scale_embedding", "--one", folder]
        use = run_measured(command)
        right, seconds, processes = check(place)
    assert right, "rows are missing, there twice, or have other vectors"
    assert processes == ACTORS + KILLED, "the killed actors were not replaced"
    ideal = options.rows * SLOW / ACTORS
    body = (
        f"| rows | actors | killed | rows there once | encoders opened | seconds | ideal | share | "
        "CPU s |\n"
        f"| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        f"| {options.rows:,} | {ACTORS} | {KILLED} | {options.rows:,} | {processes} | "
        f"{seconds:.1f} | {ideal:.1f} | {100 * ideal / seconds:.0f} % | {use.cpu:.0f} |\n\n"
        f"Pieces of {PIECE:,} rows, for each of which an encoder waits {PIECE * SLOW:.0f} s. "
        "*Ideal* is the time of encoders that never wait for a row, are not killed, and load in no "
        "time; the CPU seconds are those of the whole run, with the start of Ray."
    )
    print(body)
    if options.write:
        from benchmarks.shared.sections import write_section

        said = " ".join(["python -m benchmarks.scale_embedding", *sys.argv[1:]])
        write_section("Embedding by actors that are killed", said, body)


if __name__ == "__main__":
    main()
