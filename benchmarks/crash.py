"""python -m benchmarks.crash --store lance --store postgres --store qdrant --kills 60 --each 10

Kills workers of a migration (SIGKILL) at random moments in each of its phases, on stores that have
a server the server too, under a storm of inserts, updates and deletes by an application that knows
nothing of the migration; resumes until done, and checks after every kill and at the end:

- the owner's rows are exactly what the application wrote: none lost, none resurrected, no old
  vector or other value changed;
- every row whose marks fit its content has the right vector: the new model's own for `new`, that
  of the alignment whose tag it carries for `aligned`, whether that is the present one or, while
  rows are aligned again after a refit, one before it;
- when it is complete, every row has exactly the new model's vector; when it is rolled back, only
  the owner's columns are left.

A worker is also stalled (SIGSTOP) in the middle of encoding while others finish and complete: what
it writes when it wakes up must not count. With FASTFILL_HARNESS_NO_CAS=1 the workers' adapters do
not compare and set, and this harness then fails: that is how one knows that it can.

On `postgres-side` a trigger of the owner's table refuses every write but the application's, so that
`auto` keeps everything beside it, and a sweep must find what a pass over the whole table does. On
`postgres-noted` the owner allows a trigger besides, and a sweep by its notes must find the same.

Qdrant's server is here its embedded engine behind a process that speaks its protocol.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.shared.crash_chroma import ChromaWorld, TemporaryChromaServer
from benchmarks.shared.crash_model import new_model
from benchmarks.shared.crash_qdrant import QdrantServer, QdrantWorld
from benchmarks.shared.crash_redis import RedisWorld, TemporaryRedisServer
from benchmarks.shared.crash_sqlite import SqliteWorld
from benchmarks.shared.crash_worlds import (
    LOST_AFTER,
    Item,
    LanceWorld,
    PostgresNotedWorld,
    PostgresSideWorld,
    PostgresWorld,
    Storm,
    World,
)
from benchmarks.shared.crash_worlds import item as make_item
from benchmarks.shared.paths import ROOT
from benchmarks.shared.postgres_server import PostgresServer
from fastfill.adapters.lance.deadline import answered_within
from fastfill.adapters.postgres.side_sweep import SWEPT
from fastfill.align import Alignment
from fastfill.gallery import Rows, Settled, load_state
from fastfill.wiring import open_store

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

PHASES = (
    "pairs",
    "adding columns",
    "aligning",
    "claiming",
    "encoding",
    "writing",
    "re-aligning",
    "completing",
    "rolling back",
)
ITEMS = 300


@dataclass
class Tally:
    """What has been done so far on one store."""

    kills: Counter[str] = field(default_factory=Counter)
    server_kills: int = 0
    stalls: int = 0
    checks: int = 0
    lives: int = 0
    operations: int = 0
    refused: int = 0  # operations of the application that the store refused


def check(world: World, truth: dict[str, Item]) -> None:
    """The invariants, at a moment when no one writes."""
    found = world.everything()
    lost, extra = truth.keys() - found.keys(), found.keys() - truth.keys()
    assert not lost, f"items lost: {sorted(lost)[:5]}"
    assert not extra, f"items resurrected: {sorted(map(str, extra))[:5]}"
    for key, value in truth.items():
        assert found[key] == value, f"{key}: the owner's {value} has become {found[key]}"
    store = open_store(world.url)
    try:
        _check_vectors(store)
    finally:
        store.close()


def _check_vectors(store: Any) -> None:
    state = load_state(store)
    if state is None or state.phase in ("rolling back", "rolled back"):
        return
    store.bind(state.columns)
    if store.describe().new_dim != state.dim:
        return
    for tag in state.alignments or (None,):
        document = store.load(f"alignment/{tag}")
        alignment = None if document is None else Alignment.from_bytes(document.value)
        loose = _loose(store, Settled(tag, state.model))
        for rows in store.scan(None, batch=10_000, new=True):
            settled = rows.take(np.array([key not in loose for key in rows.ids], dtype=bool))
            _check_rows(settled, alignment)
            if state.phase == "started":
                _check_tags(rows, state.alignments)
    if state.phase == "complete":
        loose = _loose(store, state.settled)
        assert not loose, f"complete, but not settled: {sorted(map(str, loose))[:5]}"


def _loose(store: Any, settled: Settled) -> set[Any]:
    """Ids of rows that would be work to do if `settled` were right.

    Where a sweep looks only at what was written since the one before, a whole pass must agree.
    """

    def look() -> set[Any]:
        found = store.unsettled(settled, batch=10_000, changed=True)
        return {key for rows in found for key in rows.ids}

    loose, horizon = look(), store.load(SWEPT)
    if horizon is not None:
        store.remove([SWEPT])
        whole = look()
        assert loose == whole, f"a sweep has missed: {sorted(map(str, whole ^ loose))[:5]}"
        store.remove([SWEPT])
        store.save(SWEPT, horizon.value, 0)
    return loose


def _check_tags(rows: Rows, tags: tuple[str, ...]) -> None:
    pairs = zip(rows.generation, rows.model, strict=True)
    lost = {model for generation, model in pairs if generation == "aligned"} - set(tags)
    assert not lost, f"rows aligned by a map that the state does not name: {lost}"


def _check_rows(rows: Rows, alignment: Alignment | None) -> None:
    assert rows.new is not None
    for generation in set(rows.generation):
        part = rows.take(np.array([g == generation for g in rows.generation], dtype=bool))
        assert part.new is not None
        if generation == "new":
            expected = new_model(part.inputs.tolist())
        elif generation == "aligned":
            assert alignment is not None, "aligned rows without an alignment"
            expected = alignment(part.old).vectors
        else:
            continue
        wrong = ~np.isclose(part.new, expected, rtol=1e-4, atol=1e-4).all(axis=1)
        assert not wrong.any(), f"wrong {generation} vectors: {part.ids[wrong][:5].tolist()}"


def check_end(world: World, truth: dict[str, Item], ending: str) -> None:
    """What must hold when a life is over."""
    check(world, truth)
    left_over = world.left_over() if isinstance(world, PostgresNotedWorld) else []
    assert not left_over, f"left after the end: {left_over}"
    store = open_store(world.url)
    try:
        state = load_state(store)
        assert state is not None
        store.bind(state.columns)
        if ending == "rollback":
            assert state.phase == "rolled back", state.phase
            left = set(state.columns.added) & set(store.describe().columns)
            assert not left, f"columns left after the rollback: {left}"
            return
        assert state.phase == "complete", state.phase
        assert store.counts() == {("new", state.model): len(truth)}, store.counts()
    finally:
        store.close()


class Worker:
    """A process with a migration in it, whose announcements are read."""

    def __init__(self, world: World, ending: str, **environment: str) -> None:
        path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.shared.crash_worker", world.url, ending],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={
                **os.environ,
                **getattr(world, "environment", {}),
                "PYTHONPATH": path,
                "OMP_NUM_THREADS": "1",
                **environment,
            },
            text=True,
        )

    def lines(self) -> Any:
        """The announcements, one by one, until the process ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line.strip()

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Wait for it: exit status and what it complained about."""
        errors = self._process.stderr.read() if self._process.stderr else ""
        status = self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        return status, errors


def kill_in(worker: Worker, target: str, rng: random.Random, timeout: float = 300.0) -> str | None:
    """Kill the worker in the middle of a step; the step it died in, None if it ended by itself."""
    wait_for, seen, inside = rng.randint(1, 4), 0, ""
    timer = threading.Timer(timeout, worker.signal, [signal.SIGKILL])
    timer.start()
    for line in worker.lines():
        inside = line[1:] if line.startswith("+") else ""
        if line == f"+{target}":
            seen += 1
            if seen == wait_for:
                time.sleep(rng.choice([0.0, rng.uniform(0, 0.004), rng.uniform(0, 0.03)]))
                worker.signal(signal.SIGKILL)
    timer.cancel()
    status, errors = worker.end()
    if status == -signal.SIGKILL:
        return inside or "between steps"
    if status != 0:
        raise AssertionError(f"a worker failed by itself:\n{errors[-3000:]}")
    return None


def live_once(world: World, storm: Storm, ending: str, tally: Tally, options: Any) -> None:
    """One migration from its start to its end, with a kill in nearly every run."""
    rng = options.rng
    for run in range(100):
        if ending == "complete" and run == options.storm_runs:
            storm.end()  # whoever writes old vectors only, for ever, is never complete
        reachable = [phase for phase in _aims(options) if phase not in _out_of_reach(ending, storm)]
        needy = sorted(reachable, key=lambda phase: (tally.kills[phase], rng.random()))
        target = needy[rng.choice([0, 0, min(1, len(needy) - 1)])] if needy and run < 25 else ""
        began = time.monotonic()
        # Under the storm there is always something left to do: a worker does not end by itself.
        timeout = rng.uniform(5, 15) * (1 + run / 5) if not storm.ended else options.patience
        until = ending if storm.ended or ending == "rollback" else "backfill"
        died_in = kill_in(Worker(world, until), target, rng, timeout)
        if not options.quiet:
            took = time.monotonic() - began
            print(f"  aimed at {target}, died {died_in} after {took:.1f} s", file=sys.stderr)
        if died_in is not None:
            tally.kills[died_in] += 1
            if options.server and rng.random() < 0.2:
                world.kill_server()
                tally.server_kills += 1
        over = died_in is None and until == ending
        with storm.calm():
            if over:
                check_end(world, storm.truth, ending)
            else:
                check(world, storm.truth)
        tally.checks += 1
        if over:
            return
    raise AssertionError("100 runs were not enough")


def _aims(options: Any) -> tuple[str, ...]:
    return (options.aim,) if options.aim else PHASES


def _out_of_reach(ending: str, storm: Storm) -> set[str]:
    other = {"rolling back"} if ending == "complete" else {"completing"}
    return other if storm.ended else other | {"completing"}


def stall_one(world: World, storm: Storm, tally: Tally, options: Any) -> None:
    """A worker falls asleep while encoding, wakes up when all is over, and must change nothing."""
    sleeper = Worker(world, "complete", FASTFILL_HARNESS_SLOW="0.05")
    encoding = 0
    for line in sleeper.lines():
        encoding += line == "+encoding"
        if encoding == 2:
            sleeper.signal(signal.SIGSTOP)
            break
    time.sleep(1.5)  # the lease runs out, the application goes on writing
    storm.end()
    kill_in(Worker(world, "complete"), "", options.rng)
    sleeper.signal(signal.SIGCONT)
    for _ in sleeper.lines():
        pass
    sleeper.end()  # it may well complain that the migration is over
    tally.stalls += 1
    check(world, storm.truth)


class PostgresSideServer(PostgresServer):
    """For tables that FastFill must not write to, but beside."""


class PostgresNotedServer(PostgresServer):
    """For tables of which it is told by a trigger what is written to them."""


SERVERS: dict[str, Any] = {
    "lance": lambda: None,
    "postgres": PostgresServer,
    "postgres-side": PostgresSideServer,
    "postgres-noted": PostgresNotedServer,
    "qdrant": QdrantServer,
    "chroma": TemporaryChromaServer,
    "redis": TemporaryRedisServer,
    "sqlite": lambda: None,
}


def make_world(name: str, items: dict[str, Item], server: Any, rng: random.Random) -> World:
    """A fresh collection on the server, or in a folder.

    On Qdrant its vector may have no name; on SQLite the table and the journal are of any kind.
    """
    if name == "lance":
        return LanceWorld(items)
    if name == "sqlite":
        return SqliteWorld(items, rng)
    if isinstance(server, PostgresServer):
        worlds: dict[type, type[PostgresWorld]] = {
            PostgresSideServer: PostgresSideWorld,
            PostgresNotedServer: PostgresNotedWorld,
        }
        return worlds.get(type(server), PostgresWorld)(items, server)
    if isinstance(server, TemporaryChromaServer):
        return ChromaWorld(items, server)
    if isinstance(server, TemporaryRedisServer):
        return RedisWorld(items, server)
    return QdrantWorld(items, server, rng.choice(["", "vector"]))


def run_store(name: str, options: Any) -> Tally:
    """Lives until every phase has had its kills."""
    tally, rng = Tally(), options.rng
    server = SERVERS[name]()
    options.server = server
    try:
        while not _enough(tally, options):
            ending = "complete" if tally.lives % 3 != 2 else "rollback"
            stalled = options.only_stall or (tally.lives % 3 == 1 and options.stalls)
            items = {f"item-{n}": make_item(f"text {n}", n % 5) for n in range(options.items)}
            world = make_world(name, items, server, rng)
            storm = Storm(world, items, seed=rng.randrange(10**9), pause=options.pause)
            try:
                if stalled:
                    ending = "complete"
                    stall_one(world, storm, tally, options)
                else:
                    live_once(world, storm, ending, tally, options)
                    storm.end()
                    # The storm has gone on after the end: what it wrote then is not settled.
                    check(world, storm.truth)
            finally:
                storm.end()
            tally.lives += 1
            tally.operations += storm.operations
            tally.refused += len(storm.errors)
            world.close()
            if not options.quiet:
                print(f"{name}: {dict(tally.kills)}", file=sys.stderr)
    finally:
        if server is not None:
            server.close()
    return tally


def _enough(tally: Tally, options: Any) -> bool:
    if options.only_stall:
        return tally.stalls > 0
    short = any(tally.kills[phase] < options.each for phase in _aims(options))
    return not short and sum(tally.kills.values()) >= options.kills


def main() -> None:
    """Run it, and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--store", action="append", choices=list(SERVERS))
    parser.add_argument("--kills", type=int, default=60, help="at least, on each store")
    parser.add_argument("--each", type=int, default=10, help="at least, in each phase")
    parser.add_argument("--aim", choices=PHASES, help="kill in this phase alone")
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--pause", type=float, default=0.01, help="between two operations")
    parser.add_argument("--storm-runs", type=int, default=6, help="runs under the storm")
    parser.add_argument("--patience", type=float, default=300.0, help="with a run after the storm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-stalls", dest="stalls", action="store_false")
    parser.add_argument("--only-stall", action="store_true", help="one stalled worker, no kills")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    options.rng = random.Random(options.seed)
    with answered_within(LOST_AFTER):
        tallies = {name: run_store(name, options) for name in options.store or SERVERS}
    body = _table(tallies)
    print(body)
    if options.write:
        from benchmarks.shared.sections import write_section

        command = " ".join(["python -m benchmarks.crash", *sys.argv[1:]])
        only = f" ({', '.join(options.store)})" if options.store else ""
        write_section(f"Nothing lost: kills under a storm of writes{only}", command, body)


def _table(tallies: dict[str, Tally]) -> str:
    lines = ["| | " + " | ".join(tallies) + " |", "| --- |" + " ---: |" * len(tallies)]
    for phase in (*PHASES, "between steps"):
        counts = [str(tally.kills[phase]) for tally in tallies.values()]
        lines.append(f"| kills while {phase} | {' | '.join(counts)} |")
    for label, name in (
        ("kills of the server as well", "server_kills"),
        ("workers stalled and woken up too late", "stalls"),
        ("migrations", "lives"),
        ("checks of all rows, none failed", "checks"),
        ("operations of the application", "operations"),
        ("of these refused by the store", "refused"),
    ):
        counts = [str(getattr(tally, name)) for tally in tallies.values()]
        lines.append(f"| {label} | {' | '.join(counts)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
