"""python -m benchmarks.scale_storage --rows 500000

Aligning and ordering a data set in object storage, in pieces of 50,000 rows × 256, as a Lance table
and as a folder of Parquet files, by Ray and by Daft, while a writer appends 1,000 rows every two
seconds; against a plain loop in one process on the same storage, to which nobody writes. A tenth of
the rows, to which nobody writes, tells what memory grows with, and whether both make the same as
the processes of this machine (`local`). Then the commands are killed (SIGKILL) on 20,000 rows under
the writer, workers and drivers, at random moments, and run again until they end. After each run all
rows are looked at.

Each run fills a server of its own, and is kept in `--kept FILE` as soon as it is done; `--only`
names some (`lance:ray`, `lance:ray:killed`). The section is written when all are there.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.shared.live_tables import DIM
from benchmarks.shared.process_tree import TreeUse
from benchmarks.shared.saved_runs import run_missing
from benchmarks.shared.scale_kills import KILLS, PAUSE, appending, finish_killed
from benchmarks.shared.scale_runs import used
from benchmarks.shared.storage_server import storage_server
from benchmarks.shared.storage_worlds import Checked, FolderStorage, LanceStorage, StorageWorld

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

WORLDS: dict[str, Any] = {"lance": LanceStorage, "parquet": FolderStorage}
ENGINES = ("ray", "daft")
MEASURED = [f"{kind}:{engine}" for kind in WORLDS for engine in ("plain", *ENGINES)]
LOCAL = [f"{kind}:local" for kind in WORLDS]  # a tenth alone, to be compared with
KILLED = [f"{kind}:{engine}:killed" for kind in WORLDS for engine in ENGINES]
EVERY = [*MEASURED, *LOCAL, *KILLED]
PIECE = 50_000  # rows
KILLED_ROWS = 20_000  # in four pieces, where commands are killed
FEW = 2_000  # rows of the run that tells what a start takes, in four pieces for all workers
STARTS = 5  # Ray gives up after 30 s where others use the machine too

HEAD = """\
| data | engine | seconds | CPU s | of them start | CPU / plain | without start | server's CPU s | \
largest process, MB: a tenth | all | all processes, MB | rows aligned | off by | ranks off by | \
as local |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | \
--- |"""
HEAD_KILLED = """\
| data | engine | workers killed | drivers killed | rows before | rows appended meanwhile | \
rows at the end, each once | of them aligned | lost | off by |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def run(name: str, rows: int) -> dict[str, Any]:
    """One run, on a server of its own."""
    kind, engine, *killed = name.split(":")
    with storage_server() as server:
        if killed:
            world = filled(kind, f"{server.bucket}/killed", KILLED_ROWS, KILLED_ROWS // 4)
            return run_killed(kind, engine, world)
        tenth = filled(kind, f"{server.bucket}/tenth", rows // 10)
        if engine == "local":
            return {"alone": asdict(undisturbed(kind, engine, tenth)[1])}
        few = filled(kind, f"{server.bucket}/few", FEW, FEW // 4)
        if engine == "plain":
            undisturbed(kind, engine, few)  # what is compiled once is not measured
        found: dict[str, Any] = {"few": undisturbed(kind, engine, few)[0]}
        found["tenth"], found["alone"] = undisturbed(kind, engine, tenth)
        world = filled(kind, f"{server.bucket}/all", rows)
        cpu = server.cpu
        with nullcontext() if engine == "plain" else appending(world):
            found["all"] = measured(kind, engine, world)
        found |= {"server": server.cpu - cpu, "busy": world.check(rows)}
    return {key: each if key == "server" else asdict(each) for key, each in found.items()}


def filled(kind: str, place: str, rows: int, piece: int = PIECE) -> StorageWorld:
    """A data set in object storage."""
    world: StorageWorld = WORLDS[kind](place, piece)
    world.fill(rows)
    return world


def measured(kind: str, engine: str, world: StorageWorld) -> TreeUse:
    """What one run takes, tried again where its engine did not start."""
    for _ in range(STARTS - 1):
        try:
            return used(kind, engine, world.place)
        except RuntimeError:
            world.clean()
    return used(kind, engine, world.place)


def undisturbed(kind: str, engine: str, world: StorageWorld) -> tuple[TreeUse, Checked]:
    """One run beside no writer, and what it made, which is taken away."""
    use = measured(kind, engine, world)
    checked = world.check(world.rows)
    world.clean()
    return use, checked


def run_killed(kind: str, engine: str, world: StorageWorld) -> dict[str, Any]:
    """The commands under a writer, killed within the time that they take undisturbed."""
    rows = world.rows
    use, _ = undisturbed(kind, engine, world)
    with tempfile.TemporaryDirectory() as folder:
        killer = finish_killed(world, Path(folder), engine=engine, lasts=use.seconds / 4)
    facts = {"workers": killer.workers, "drivers": killer.drivers, "before": rows}
    return {**facts, "appended": world.rows - rows, **asdict(world.check(rows))}


def line(name: str, runs: dict[str, Any]) -> str:
    """The line of a run that was measured."""
    kind, engine = name.split(":")
    ran, plain, local = runs[name], runs[f"{kind}:plain"], runs[f"{kind}:local"]
    same = ran["alone"]["digest"] == local["alone"]["digest"]
    if engine != "plain" and not same:
        raise AssertionError(f"{name} makes something else than {kind}:local")
    every, few, end = ran["all"], ran["few"], ran["busy"]
    work = (every["cpu"] - few["cpu"]) / (plain["all"]["cpu"] - plain["few"]["cpu"])
    return (
        f"| {kind} | {engine} | {every['seconds']:.0f} | {every['cpu']:.1f} | {few['cpu']:.1f} | "
        f"{every['cpu'] / plain['all']['cpu']:.2f} | {work:.2f} | {ran['server']:.0f} | "
        f"{ran['tenth']['largest']:,.0f} | {every['largest']:,.0f} | {every['peak']:,.0f} | "
        f"{end['aligned']:,} | {end['off']:.1e} | {100 * end['moved']:.2f} % | "
        f"{'' if engine == 'plain' else 'yes'} |"
    )


def killed_line(name: str, ran: dict[str, Any]) -> str:
    """The line of a run that was killed; its check would have failed for a row that is lost."""
    kind, engine, _ = name.split(":")
    return (
        f"| {kind} | {engine} | {ran['workers']} | {ran['drivers']} | {ran['before']:,} | "
        f"{ran['appended']:,} | {ran['rows']:,} | {ran['aligned']:,} | 0 | {ran['off']:.1e} |"
    )


def report(runs: dict[str, Any], rows: int) -> str:
    """Both tables."""
    lines = [HEAD, *(line(name, runs) for name in MEASURED), ""]
    lines += [HEAD_KILLED, *(killed_line(name, runs[name]) for name in KILLED), ""]
    lines.append(
        f"{rows:,} rows × {DIM} at first, two workers; a writer appends 1,000 rows every "
        f"{PAUSE:.0f} s, or less often where writes are slow, except beside the plain loop. The "
        "storage is moto on the loopback of the same machine: a Python process that computes on "
        "one core and reads a whole object for every part of it that is asked for. Its CPU "
        "seconds are in a column of their own and in no other; the seconds by the clock hold the "
        f"waiting for it. *Start*: the CPU seconds of the same run on {FEW:,} rows in four pieces. "
        "*Largest process*: at its worst moment, with a tenth of the rows and with all. *Off by*: "
        "the largest difference of an aligned number from what one process makes of the same "
        "vector, over all rows; of a rank from the exact sort's, as a share of all rows. *As "
        "local*: the same bits as by processes of this machine, vectors and ranks, where nobody "
        "writes. The "
        f"second table is of the commands `transform` and `order` in pieces of "
        f"{KILLED_ROWS // 4:,} rows, each killed up to {KILLS} times while the writer appends."
    )
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--only", action="append", choices=EVERY, help="these runs")
    parser.add_argument("--kept", type=Path, help="a file that keeps what is done")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = options.kept or Path(folder, "runs.json")
        names = options.only or EVERY
        runs = run_missing(kept, names, partial(run, rows=options.rows), 1)
    if set(EVERY) <= runs.keys():
        from benchmarks.shared.sections import write_section

        command = f"python -m benchmarks.scale_storage --rows {options.rows}"
        title = "Data sets in object storage, under a writer and killed"
        write_section(title, command, report(runs, options.rows))


if __name__ == "__main__":
    main()
