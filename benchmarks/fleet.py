"""python -m benchmarks.fleet --rows 20000

Eight workers of `fastfill backfill` on one PostgreSQL, with an encoder that waits as one on a GPU
does. Three are killed (SIGKILL) at random moments, one is stopped (SIGSTOP) until its lease has run
out and then goes on, and the clocks of two are wrong (their `time.time`): one is an hour ahead, one
an hour behind. At the end every row must have the new model's own vector; a row may have been
encoded twice only where a worker that was killed or stopped held it. Counted are the time in which
workers do not encode, and how often a lease was written in vain: refused, or given up because
another worker had the same rows.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.shared.crash_model import OLD, new_model, old_model
from benchmarks.shared.paths import ROOT

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

WORKERS, KILLED, HOUR = 8, 3, 3_600
CLOCKS = (HOUR, -HOUR)  # seconds that those of the first workers are wrong by


@dataclass(frozen=True)
class Outcome:
    """What became of the rows, and of the workers' time."""

    rows: int
    right: int  # rows that are new, with the model's own vector
    twice: int  # rows that were encoded more than once
    unexplained: int  # of those, rows that no killed or stopped worker held
    idle: list[float]  # share of the time in which a worker that lived did not encode
    written: int  # leases
    in_vain: int  # of those, refused or not followed by a batch
    seconds: float


def fill(uri: str, rows: int) -> str:
    """A table of items; returns its URL."""
    import psycopg

    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(
            f"CREATE TABLE items (id text PRIMARY KEY, text text, vector vector({OLD}))"
        )
        with connection.cursor().copy("COPY items FROM STDIN") as copy:
            for n in range(rows):
                text = f"text of item {n}"
                copy.write_row((f"item-{n}", text, str(old_model(text).tolist())))
    return f"{uri}#items.vector"


def start(url: str) -> None:
    """Everything before the backfill."""
    from fastfill.migrate import Migration
    from fastfill.wiring import connect

    encoder = "benchmarks.shared.fleet_worker:encode"
    gallery = connect(url, id="id", input="text", distance="l2")
    migration = Migration(gallery, new_model, encoder_name=encoder)
    migration.start(pairs=100, method="ridge", index=False)
    gallery.store.close()


class Fleet:
    """The workers, and what is done to them."""

    def __init__(self, url: str, log: Path, *, lease: float, batch: int, slow: float) -> None:
        self._log, self._lease = log, lease
        paths = f"{ROOT / 'src'}:{ROOT}"
        base = {**os.environ, "PYTHONPATH": paths, "FASTFILL_FLEET_SLOW": str(slow),
                "OMP_NUM_THREADS": "1"}  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.shared.fleet_worker", str(log), url,
                   str(lease), str(batch)]  # fmt: skip
        self.workers = [
            subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**base, "FASTFILL_FLEET_CLOCK": str(wrong)},
            )
            for wrong in (*CLOCKS, *[0] * (WORKERS - len(CLOCKS)))
        ]  # fmt: skip
        self.disturbed: set[int] = set()

    def disturb(self, seed: int, within: float) -> None:
        """Kill some, stop one; each in the middle of encoding something."""
        rng = random.Random(seed)
        for worker in self.workers:  # all have begun
            _wait(partial(self._begun, worker))
        stopped, *killed = rng.sample(self.workers[len(CLOCKS) :], 1 + KILLED)
        self._hit(stopped, signal.SIGSTOP)
        until = time.monotonic() + self._lease + 2
        for worker in killed:
            time.sleep(rng.uniform(0, within))
            self._hit(worker, signal.SIGKILL)
        time.sleep(max(0.0, until - time.monotonic()))
        stopped.send_signal(signal.SIGCONT)

    def _begun(self, worker: subprocess.Popen[bytes]) -> bool:
        return "begin" in self._said(worker) or _over(worker)

    def _hit(self, worker: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """While it encodes, if it still does."""
        _wait(lambda: self._said(worker)[-1:] == ["begin"] or _over(worker))
        worker.send_signal(number)
        self.disturbed.add(worker.pid)

    def _said(self, worker: subprocess.Popen[bytes]) -> list[str]:
        path = self._log / f"{worker.pid}.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        words = [line.split()[1] for line in lines]
        return [word for word in words if word in ("begin", "end", "exit")]

    def finish(self) -> None:
        """Wait until all have ended."""
        for worker in self.workers:
            code = worker.wait()
            if code and worker.pid not in self.disturbed:
                raise RuntimeError(f"A worker that nobody disturbed ended with {code}.")


def _over(worker: subprocess.Popen[bytes]) -> bool:
    return worker.poll() is not None


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("The workers did nothing for five minutes.")
        time.sleep(0.005)


def run(
    uri: str, rows: int, *, lease: float, batch: int, slow: float, seed: int, within: float
) -> Outcome:
    """From an empty database to the end of the backfill."""
    url = fill(uri, rows)
    start(url)
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        began = time.perf_counter()
        fleet = Fleet(url, Path(folder), lease=lease, batch=batch, slow=slow)
        try:
            fleet.disturb(seed, within)
            fleet.finish()
        finally:
            for worker in fleet.workers:
                worker.kill()
                worker.wait()
        seconds = time.perf_counter() - began
        return _outcome(url, rows, Path(folder), fleet.disturbed, seconds)


def _outcome(url: str, rows: int, log: Path, disturbed: set[int], seconds: float) -> Outcome:
    holders: dict[str, list[int]] = defaultdict(list)
    written, in_vain, idle = 0, 0, []
    for path in log.iterdir():
        pid, lines = int(path.stem), [line.split() for line in path.read_text().splitlines()]
        for _, word, *names in lines:
            for name in names if word == "begin" else ():
                holders[name].append(pid)
        leases = _leases(lines)
        written, in_vain = written + len(leases), in_vain + leases.count(False)
        if pid not in disturbed:
            idle.append(_idle(lines))
    twice = {name: pids for name, pids in holders.items() if len(pids) > 1}
    unexplained = [name for name, pids in twice.items() if not disturbed & set(pids)]
    return Outcome(
        rows, _right(url), len(twice), len(unexplained), idle, written, in_vain, seconds
    )  # fmt: skip


def _leases(lines: list[list[str]]) -> list[bool]:
    """Of each lease that was written: was a batch embedded under it?"""
    useful: list[bool] = []
    for _, word, *names in lines:
        if word in ("saved", "refused") and names[0].startswith("leases"):
            useful.append(False)
        elif word == "begin" and useful:
            useful[-1] = True
    return useful


def _idle(lines: list[list[str]]) -> float:
    """From its first batch until it ends, the share in which a worker did not encode."""
    begins = [float(line[0]) for line in lines if line[1] == "begin"]
    ends = [float(line[0]) for line in lines if line[1] == "end"]
    busy = sum(end - begin for begin, end in zip(begins, ends, strict=True))
    return 1 - busy / (float(lines[-1][0]) - begins[0])


def _right(url: str) -> int:
    """Rows that are new, with the vector that the model gives for their text."""
    from fastfill.wiring import connect

    store, right = connect(url).store, 0
    for block in store.scan(None, batch=4_096, new=True):
        assert block.new is not None
        new = np.array([generation == "new" for generation in block.generation])
        same = np.isclose(block.new, new_model(block.inputs.tolist()), atol=1e-5).all(axis=1)
        right += int((new & same).sum())
    store.close()
    return right


def main() -> None:
    """Measure, print, write."""
    from benchmarks.shared.postgres_server import PostgresServer

    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--lease", type=float, default=10.0, help="seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    server = PostgresServer()
    try:
        found = run(
            server.uri, options.rows, lease=options.lease, batch=100, slow=0.01,
            seed=options.seed, within=3.0,
        )  # fmt: skip
    finally:
        server.close()
    body = (
        "| rows | new, with the right vector | encoded twice | of these unexplained | idle | "
        "leases written | in vain | seconds |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        f"| {found.rows:,} | {found.right:,} | {found.twice:,} | {found.unexplained:,} | "
        f"{100 * min(found.idle):.0f} to {100 * max(found.idle):.0f} % | {found.written:,} | "
        f"{found.in_vain:,} | {found.seconds:.0f} |\n\n"
        f"{WORKERS} workers, batches of 100 rows that take a second each, leases of "
        f"{options.lease:.0f} s; {KILLED} killed, one stopped for longer than its lease, one with "
        "a clock that is an hour ahead, one with a clock that is an hour behind. *Idle* is the "
        "share of the time from the first batch of a worker to its end in which it did not encode, "
        "of workers that were not disturbed. A lease is written *in vain* where no batch was "
        "embedded under it: it was refused, or another worker had the same rows."
    )
    print(body)
    assert (found.right, found.unexplained) == (found.rows, 0)
    if options.write:
        from benchmarks.shared.sections import write_section

        command = " ".join(["python -m benchmarks.fleet", *sys.argv[1:]])
        write_section("A fleet of workers on one server", command, body)


if __name__ == "__main__":
    main()
