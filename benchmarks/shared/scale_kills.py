"""Commands on a data set in object storage under a writer, killed at random moments and resumed.

A command is killed (SIGKILL) a few times, one of its workers or the driver with all that it has
started, and run again until it ends by itself, while rows are appended all the time.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.shared.live_tables import toy_alignment
from benchmarks.shared.paths import ROOT
from benchmarks.shared.storage_worlds import StorageWorld

KILLS = 3  # of each command
PATIENCE = 900  # seconds for one command
PAUSE = 2.0  # seconds between two writes, at least
REST = 5  # times what a write takes, before the next one: or a slow machine does nothing else
WORKERS = ("ray::_do", "ray::IDLE", "spawn_main", "udf_worker")  # what processes do pieces


@contextmanager
def appending(world: StorageWorld) -> Iterator[None]:
    """A writer that appends all the time."""
    over, failed = threading.Event(), list[BaseException]()

    def write() -> None:
        took = 0.0
        while not over.wait(max(PAUSE, REST * took)):
            began = time.perf_counter()
            try:
                world.append()
            except BaseException as error:
                failed.append(error)
                return
            took = time.perf_counter() - began

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()
    if failed:
        raise failed[0]


@dataclass
class Killer:
    """Runs commands and kills them."""

    place: Path  # where they run
    engine: str
    rng: random.Random
    lasts: float  # seconds within which a kill comes, once there is a worker
    kills: int = KILLS  # of each command, at most
    drivers: int = 0  # killed
    workers: int = 0  # killed

    def finish(self, words: list[str]) -> None:
        """Run a command until it ends by itself."""
        for attempt in itertools.count():
            process = self._start(words)
            if attempt < self.kills:
                self._kill_within(process, worker=attempt % 2 == 1)
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
        while process.poll() is None and not _workers_of(process.pid):
            time.sleep(0.02)
        with suppress(subprocess.TimeoutExpired):
            process.wait(self.rng.uniform(0.0, 1.0) * self.lasts)
        if process.poll() is not None:
            self.lasts *= 0.5  # it was done before
            return
        busy = _workers_of(process.pid)
        if worker and busy:
            _kill([self.rng.choice(busy)])
            self.workers += 1
            return
        children = _children(process.pid)
        process.kill()
        _kill(children)
        self.drivers += 1


def _children(pid: int) -> list[Any]:
    """All processes that this one has started; none where it is gone."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def _workers_of(pid: int) -> list[Any]:
    return [child for child in _children(pid) if _works(child)]


def _kill(processes: list[Any]) -> None:
    import psutil

    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.kill()


def _works(process: Any) -> bool:
    """Does this process do pieces?"""
    import psutil

    with suppress(psutil.Error):
        line = " ".join(process.cmdline())
        return any(word in line for word in WORKERS)
    return False


def finish_killed(
    world: StorageWorld, place: Path, *, engine: str, lasts: float, kills: int = KILLS
) -> Killer:
    """Transform and order under a writer, each killed some times; returns what was killed."""
    toy_alignment().save(place / "map.safetensors")
    killer = Killer(place, engine, random.Random(0), lasts, kills)
    with appending(world):
        for words in world.words():
            killer.finish(words)
    return killer
