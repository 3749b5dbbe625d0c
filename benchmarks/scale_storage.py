"""python -m benchmarks.scale_storage --rows 200000

Aligning and ordering a data set in object storage, in pieces of 50,000 rows × 256: a Lance table by
Ray, and a folder of Parquet files by Ray and by Daft, while a writer appends 1,000 rows every two
seconds. First a run that is measured, against a plain loop in one process on the same storage, to
which nobody writes. Then the commands are killed (SIGKILL), a worker or the driver with all that it
has started, at random moments, and run again until they end. After each of both all rows are
compared with what one process makes of them.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.live_tables import DIM, toy_alignment
from benchmarks.shared.paths import ROOT
from benchmarks.shared.process_tree import TreeUse, run_measured
from benchmarks.shared.storage_server import StorageServer, storage_server
from benchmarks.shared.storage_worlds import (
    APPENDED,
    PAUSE,
    Checked,
    FolderStorage,
    LanceStorage,
    StorageWorld,
    appending,
)

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

RUNS = ("lance:ray", "parquet:ray", "parquet:daft")  # data and engine
WORLDS: dict[str, Any] = {"lance": LanceStorage, "parquet": FolderStorage}
FEW = 2_000  # rows of the run that tells what a start takes
KILLS = 3  # of each command
PATIENCE = 900  # seconds for one command
STARTS = 5  # Ray gives up after 30 s where others use the machine too


# --- one run, in a process of its own ----------------------------------------------------------


def one(kind: str, engine: str, place: str) -> None:
    """Align and order, as the commands do it or by a plain loop."""
    from fastfill.scale import (
        LanceTable,
        open_engine,
        order_folder,
        order_table,
        transform_folder,
        transform_table,
    )
    from fastfill.scale.engines.threads import one_thread_for_blas

    one_thread_for_blas()
    if engine == "plain":
        plain_lance(place) if kind == "lance" else plain_parquet(place)
        return
    alignment, runner = toy_alignment(), open_engine(engine, workers=2)
    if kind == "lance":
        table = LanceTable.from_url(LanceStorage(place).url)
        transform_table(alignment, table, engine=runner)
        order_table(alignment, table, policy="sigma", engine=runner)
        return
    source, aligned, order = (f"{place}/{name}" for name in ("in", "aligned", "order"))
    transform_folder(alignment, source, aligned, key="id", engine=runner)
    order_folder(alignment, aligned, order, key="id", policy="sigma", engine=runner)


def plain_lance(place: str) -> None:
    """One `add_columns` for the vectors, one for the ranks."""
    import lance
    import pyarrow as pa

    from fastfill.scale.operations import vector_array

    alignment, data = toy_alignment(), lance.dataset(LanceStorage(place).uri)

    def align(batch: Any) -> Any:
        aligned = alignment(_matrix(batch["vector"]))
        columns = {"vector_aligned": vector_array(aligned.vectors)}
        return pa.record_batch({**columns, "vector_variance": aligned.variance})

    data.add_columns(align, read_columns=["vector"], batch_size=16_384)
    variance = data.to_table(columns=["vector_variance"])["vector_variance"].to_numpy()
    data.add_columns(pa.table({"vector_rank": _ranks(variance)}).to_reader())


def plain_parquet(place: str) -> None:
    """Batch by batch into one object, then one sort."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    from fastfill.scale import Folder
    from fastfill.scale.operations import vector_array

    folder, alignment, writer, variances = Folder(place), toy_alignment(), None, []
    source = ds.dataset(folder.child("in").path, filesystem=folder.system)
    for batch in source.to_batches(batch_size=16_384):
        aligned = alignment(_matrix(batch["vector"]))
        variances.append(aligned.variance)
        columns = {"id": batch["id"], "vector_aligned": vector_array(aligned.vectors)}
        table = pa.table({**columns, "vector_variance": aligned.variance})
        target = f"{folder.child('aligned').path}/all.parquet"
        writer = writer or pq.ParquetWriter(target, table.schema, filesystem=folder.system)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    ranks = _ranks(np.concatenate(variances))
    order = pa.table({"id": np.arange(len(ranks)), "vector_rank": ranks})
    pq.write_table(order, f"{folder.child('order').path}/all.parquet", filesystem=folder.system)


def _matrix(column: Any) -> Any:
    return column.flatten().to_numpy().reshape(-1, DIM)


def _ranks(scores: Any) -> Any:
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return ranks


# --- kills ---------------------------------------------------------------------------------------


@dataclass
class Killer:
    """Runs commands and kills them."""

    place: Path
    engine: str
    rng: random.Random
    lasts: float  # seconds within which a kill comes
    drivers: int = 0  # killed
    workers: int = 0  # killed

    def finish(self, words: list[str]) -> None:
        """Run a command until it ends by itself."""
        for attempt in itertools.count():
            process = self._start(words)
            if attempt < KILLS:
                self._kill_within(process, worker=attempt % 2 == 0)
            _, said = process.communicate(timeout=PATIENCE)
            # Killed between its commit and its end, a command finds its columns there.
            if process.returncode == 0 or (attempt and "already" in said):
                return
            if process.returncode != -signal.SIGKILL and "run again" not in said.lower():
                raise AssertionError(f"{words[0]} ended with {process.returncode}: {said}")

    def _start(self, words: list[str]) -> subprocess.Popen[str]:
        options = ["--engine", self.engine, "--workers", "2"]
        return subprocess.Popen(
            [sys.executable, "-m", "fastfill", *words, *options], cwd=self.place,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _kill_within(self, process: subprocess.Popen[str], worker: bool) -> None:
        """A worker where there is one and it is wanted, otherwise the driver with everything."""
        import psutil

        with suppress(subprocess.TimeoutExpired):
            process.wait(self.rng.uniform(0.3, 1.0) * self.lasts)
        if process.poll() is not None:
            self.lasts *= 0.8  # it was done before
            return
        children = psutil.Process(process.pid).children(recursive=True)
        busy = [child for child in children if _works(child)]
        if worker and busy:
            self._kill([self.rng.choice(busy)])
            self.workers += 1
            return
        process.kill()
        self._kill(children)
        self.drivers += 1

    def _kill(self, processes: list[Any]) -> None:
        import psutil

        for each in processes:
            with suppress(psutil.NoSuchProcess):
                each.kill()


def _works(process: Any) -> bool:
    """Does this process do pieces?"""
    import psutil

    with suppress(psutil.Error):
        line = " ".join(process.cmdline())
        return line.startswith("ray::") or "udf_worker" in line or "daft" in line
    return False


# --- all runs ------------------------------------------------------------------------------------


@dataclass
class Places:
    """The same data set in three sizes."""

    few: StorageWorld
    quarter: StorageWorld
    every: StorageWorld

    @classmethod
    def fill(cls, kind: str, bucket: str, rows: int) -> Places:
        """Fill all three."""
        sizes = {"few": FEW, "quarter": rows // 4, "every": rows}
        worlds = {name: WORLDS[kind](f"{bucket}/{kind}-{name}") for name in sizes}
        for name, world in worlds.items():
            world.fill(sizes[name])
        return cls(**worlds)


def used(kind: str, engine: str, world: StorageWorld) -> TreeUse:
    """What one run takes, tried again where its engine did not start."""
    words = ["--one", kind, engine, world.place]
    for left in reversed(range(STARTS)):
        with suppress(*[RuntimeError] * bool(left)):
            return run_measured([sys.executable, "-m", "benchmarks.scale_storage", *words])
        world.clean()
    raise AssertionError("unreachable")


def measured(kind: str, engine: str, places: Places) -> tuple[list[TreeUse], Checked]:
    """Runs in all three sizes, the last one under a writer unless it is the plain loop."""
    uses = []
    for world in (places.few, places.quarter):
        uses.append(used(kind, engine, world))
        world.clean()
    world, rows = places.every, places.every.rows
    if engine == "plain":
        uses.append(used(kind, engine, world))
    else:
        with appending(world):
            uses.append(used(kind, engine, world))
    checked = world.check(rows)
    world.clean()
    return uses, checked


def killed(kind: str, engine: str, world: StorageWorld, lasts: float) -> str:
    """The line of a run that was killed."""
    rows = world.rows
    with tempfile.TemporaryDirectory() as folder:
        toy_alignment().save(Path(folder, "map.safetensors"))
        killer = Killer(Path(folder), engine, random.Random(0), lasts)
        with appending(world):
            for words in world.words():
                killer.finish(words)
    checked = world.check(rows)
    world.clean()
    return (
        f"| {kind} | {engine} | {killer.drivers} | {killer.workers} | {world.rows - rows:,} | "
        f"{checked.rows:,} | {checked.aligned:,} | 0 | {checked.off:.1e} |"
    )


def _line(kind: str, engine: str, uses: list[TreeUse], plain: list[TreeUse], end: Checked) -> str:
    few, quarter, every = uses
    work = (every.cpu - few.cpu) / (plain[2].cpu - plain[0].cpu)
    return (
        f"| {kind} | {engine} | {every.seconds:.0f} | {every.cpu:.1f} | {few.cpu:.1f} | "
        f"{every.cpu / plain[2].cpu:.2f} | {work:.2f} | {quarter.peak:,.0f} | {every.peak:,.0f} | "
        f"{end.aligned:,} | {end.off:.1e} | {100 * end.moved:.2f} % |"
    )


def measure(rows: int, runs: Sequence[str]) -> str:
    """Some runs, or all."""
    lines = [
        "| data | engine | seconds | CPU s | of them start | CPU / plain | without start | MB at a "
        "quarter | MB | rows aligned | off by | ranks off by |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    ended = [
        "| data | engine | drivers killed | workers killed | rows appended meanwhile | rows at the "
        "end, each once | of them aligned | lost | off by |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    most = 0.0
    for kind in WORLDS:
        engines = [run.partition(":")[2] for run in runs if run.startswith(f"{kind}:")]
        if not engines:
            continue
        with storage_server() as server:
            most = max(most, _measure(server, kind, engines, rows, lines, ended))
    return "\n".join([*lines, "", *ended, "", _legend(rows, most)])


def _measure(
    server: StorageServer,
    kind: str,
    engines: Sequence[str],
    rows: int,
    lines: list[str],
    ended: list[str],
) -> float:
    """Both tables of one format; returns the MB of the server."""
    places = Places.fill(kind, server.bucket, rows)
    plain, most = None, 0.0
    for engine in ("plain", *engines):
        uses, checked = measured(kind, engine, places)
        plain = plain or uses
        lines.append(_line(kind, engine, uses, plain, checked))
        print(lines[-1], flush=True)
        if engine != "plain":
            ended.append(killed(kind, engine, places.every, uses[2].seconds / 2))
            print(ended[-1], flush=True)
        most = max(most, server.megabytes)
    return most


def _legend(rows: int, most: float) -> str:
    return (
        f"{rows:,} rows × {DIM} at first, two workers; a writer appends {APPENDED:,} rows every "
        f"{PAUSE:.0f} s, or less often where writes are slow, except beside the plain loop. The "
        f"storage is moto on the loopback of the "
        f"same machine, a Python process ({most:,.0f} MB at most) whose CPU seconds are not "
        f"counted. *Start*: the CPU seconds of the same run on {FEW:,} rows. *MB*: all processes "
        "of a run together, with a quarter of the rows and with all. *Off by*: the largest "
        "difference of an aligned number from what one process makes of the same vector, over all "
        "rows; of a rank from the exact sort's, as a share of all rows. The second table is of "
        f"the commands `transform` and `order`, each killed up to {KILLS} times."
    )


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--run", action="append", choices=RUNS, help="only these")
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    body = measure(options.rows, options.run or RUNS)
    if options.write:
        from benchmarks.shared.sections import write_section

        command = " ".join(["python -m benchmarks.scale_storage", *sys.argv[1:]])
        write_section("Data sets in object storage, under a writer and killed", command, body)


if __name__ == "__main__":
    main()
