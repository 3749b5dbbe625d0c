"""python -m benchmarks.scale_embedding --rows 60000

Embedding a folder of Parquet files by four Ray actors with a CPU encoder, two of which are killed
on the way: is every row there exactly once, with the vector that one process gives it, and how much
of all the CPU time of the run is spent in the encoder itself?
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

from benchmarks.shared.counting_encoder import CountingEncoder
from benchmarks.shared.process_tree import run_measured

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

PIECE = 2_000
ACTORS, KILLED = 4, 2


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
    operation = EmbedRows(CountingEncoder(str(place / "log")), "counting", "text", "vector_new")
    engine = RayEngine(workers=ACTORS, actors=ACTORS)
    embed_folder(operation, str(place / "texts"), str(place / "out"), engine=engine)


def _kill(log: Path) -> None:
    while len(list(log.iterdir())) < ACTORS:
        time.sleep(0.05)
    for file in sorted(log.iterdir())[:KILLED]:
        os.kill(int(file.stem), signal.SIGKILL)


def check(place: Path) -> tuple[bool, float, int]:
    """Is all as it should be; CPU seconds of the encoder; processes that have used it."""
    import pyarrow.parquet as pq

    table = pq.read_table(place / "out").sort_by("id")
    ids, texts = table["id"].to_numpy(), table["text"].to_pylist()
    mine = np.stack(table["vector_new"].to_numpy())
    logs = list((place / "log").iterdir())
    seconds = sum(float(line.split()[1]) for file in logs for line in file.open())
    encode = CountingEncoder(str(place / "log"))()
    alone = np.concatenate([encode(texts[i : i + PIECE]) for i in range(0, len(texts), PIECE)])
    right = np.array_equal(ids, np.arange(len(ids))) and np.allclose(mine, alone, atol=1e-5)
    return right, seconds, len(logs)


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--one"]:
        one(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-embedding-") as folder:
        place = Path(folder)
        fill(place, options.rows)
        command = [sys.executable, "-m", "benchmarks.scale_embedding", "--one", folder]
        use = run_measured(command)
        right, encoding, processes = check(place)
    assert right, "rows are missing, there twice, or have other vectors"
    assert processes == ACTORS + KILLED, "the killed actors were not replaced"
    body = (
        f"| rows | actors | killed | rows there once | processes | CPU s | in the encoder |\n"
        f"| ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        f"| {options.rows:,} | {ACTORS} | {KILLED} | {options.rows:,} | {processes} | "
        f"{use.cpu:.0f} | {100 * encoding / use.cpu:.0f} % |\n\n"
        f"Pieces of {PIECE:,} rows. The rest of the CPU time is the start of Ray and of five "
        "Python processes, two more for the killed ones, reading and writing."
    )
    if options.write:
        from benchmarks.shared.sections import write_section

        said = " ".join(["python -m benchmarks.scale_embedding", *sys.argv[1:]])
        write_section("Embedding by actors that are killed", said, body)
    else:
        print(body)


if __name__ == "__main__":
    main()
