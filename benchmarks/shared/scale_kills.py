"""`transform` and `order` in object storage under a writer, killed at random moments and resumed.

The storage speaks S3's protocol on the loopback, and holds everything in memory. A writer appends
all the time. Commands are killed (SIGKILL), the driver or one of its workers, and run again until
they end. Then no row may be lost or there twice, and every row that has an aligned vector must have
that of its own old vector; ranks must be those of an order of all rows that have one.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.shared.paths import ROOT
from fastfill.align import Alignment
from fastfill.features import Features, Matrix, Pairs
from fastfill.scale import Folder
from fastfill.scale.operations import vector_array

DIM, PIECE = 16, 400
MOST = 3  # kills of one command, before it is left alone
APPENDS = 12  # during one command
PATIENCE = 600  # seconds for one command


def vectors_of(ids: Any) -> Matrix:
    """The old vectors of items, told by their ids alone."""
    waves = np.random.default_rng(0).uniform(0.1, 3, DIM)
    return np.sin(np.asarray(ids)[:, None] * waves + 1).astype(np.float32)


def make_alignment() -> Alignment:
    """A map whose error differs from item to item."""
    old = vectors_of(np.arange(300))
    noise = np.random.default_rng(1).normal(size=old.shape).astype(np.float32)
    pairs = Pairs(Features(old), Features(old + np.abs(old[:, :1]) * noise))
    return Alignment.fit(pairs, method="ridge")


def rows_table(first: int, count: int) -> Any:
    """Ids and vectors."""
    import pyarrow as pa

    ids = np.arange(first, first + count)
    return pa.table({"id": ids, "vector": vector_array(vectors_of(ids))})


@contextmanager
def object_storage() -> Iterator[str]:
    """A bucket; where it is and who may use it is in the environment."""
    import boto3  # type: ignore[import-untyped]
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    settings = {
        "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in settings}
    os.environ |= settings
    try:
        client = boto3.client("s3", endpoint_url=address)
        client.create_bucket(Bucket="kills")
        client.close()
        yield "s3://kills"
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        server.stop()


class World(Protocol):
    """A data set that grows, and what two commands make of it."""

    rows: int

    def append(self) -> None:
        """What the writer does."""
        ...

    def commands(self) -> list[list[str]]:
        """Transform, and order."""
        ...

    def check(self, alignment: Alignment) -> int:
        """Raise where a row is wrong; returns how many have an aligned vector."""
        ...


@dataclass
class LanceWorld:
    """A table, to which the commands add columns."""

    bucket: str
    rows: int = 0

    @property
    def _uri(self) -> str:
        return f"{self.bucket}/db/items.lance"

    def append(self) -> None:
        """One more fragment."""
        import lance

        lance.write_dataset(rows_table(self.rows, PIECE), self._uri, mode="append")
        self.rows += PIECE

    def commands(self) -> list[list[str]]:
        """The table is its own output."""
        url = f"lance://{self.bucket}/db#items.vector"
        return [["transform", "map.safetensors", url], ["order", "map.safetensors", url]]

    def check(self, alignment: Alignment) -> int:
        """Rows that were appended after a commit have nothing in its columns."""
        import lance

        data = lance.dataset(self._uri)
        table = data.to_table()
        check_rows(table, alignment, table["id"].to_numpy(), self.rows)
        added = [name for name in table.column_names if name not in ("id", "vector")]
        data.drop_columns(added)  # for the next round
        return int(len(table) - table["vector_aligned"].null_count)


@dataclass
class FolderWorld:
    """A folder of Parquet files, of which the commands make two others."""

    bucket: str
    rows: int = 0
    round: int = 0

    def append(self) -> None:
        """One more file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(rows_table(self.rows, PIECE), sink, row_group_size=PIECE // 2)
        Folder(self.bucket).child("gallery").write(f"{self.rows:09d}.parquet", sink.getvalue())
        self.rows += PIECE

    def commands(self) -> list[list[str]]:
        """Other folders in each round."""
        self.round += 1
        aligned, order = (f"{self.bucket}/{name}-{self.round}" for name in ("aligned", "order"))
        return [
            ["transform", "map.safetensors", f"{self.bucket}/gallery", "-o", aligned],
            ["order", "map.safetensors", aligned, "-o", order],
        ]

    def check(self, alignment: Alignment) -> int:
        """The order holds the rows that were there when the last `transform` began."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = Folder(self.bucket).child(f"order-{self.round}")
        names = sorted(name for name in folder.names() if name.endswith(".parquet"))
        parts = [pq.read_table(pa.BufferReader(folder.read(name))) for name in names]
        table = pa.concat_tables(parts)
        check_rows(table, alignment, table["id"].to_numpy(), len(table))
        if len(table) % PIECE or len(table) > self.rows:
            raise AssertionError(f"{len(table)} rows, of {self.rows} in files of {PIECE}")
        return len(table)


def check_rows(table: Any, alignment: Alignment, ids: Any, rows: int) -> None:
    """Each id once; vectors of their own; ranks of an order."""
    if not np.array_equal(np.sort(ids), np.arange(rows)):
        raise AssertionError(f"{len(ids)} rows with {len(set(ids.tolist()))} ids, not {rows}")
    done = table.filter(table["vector_aligned"].is_valid())
    mine = np.stack(done["vector_aligned"].to_numpy())
    if not np.allclose(mine, alignment(vectors_of(done["id"].to_numpy())).vectors, atol=1e-5):
        raise AssertionError("rows have the aligned vectors of others")
    ranks = table["vector_rank"].drop_null().to_numpy()
    if not np.array_equal(np.sort(ranks), np.arange(len(ranks))) or len(ranks) < len(done):
        raise AssertionError(f"{len(ranks)} ranks of {len(done)} rows are no order")


@dataclass
class Tally:
    """What has been done."""

    drivers: int = 0  # killed
    workers: int = 0  # killed
    rounds: int = 0
    rows: int = 0  # at the end
    appended: int = 0  # while commands ran


@dataclass
class Killer:
    """Runs commands, and kills them."""

    place: Path
    kills: int
    rng: random.Random
    lasts: float = 6.0  # seconds within which a kill comes
    tally: Tally = field(default_factory=Tally)

    def finish(self, words: list[str]) -> None:
        """Run a command until it ends by itself."""
        for attempt in itertools.count():
            process = self._start(words)
            wanted = self.tally.drivers + self.tally.workers < self.kills and attempt < MOST
            if wanted:
                self._kill_within(process)
            _, said = process.communicate(timeout=PATIENCE)
            # Killed between its commit and its end, a command finds its columns there.
            if process.returncode == 0 or (attempt and "already" in said):
                return
            if process.returncode != -signal.SIGKILL:
                raise AssertionError(f"{words[0]} ended with {process.returncode}: {said}")

    def _start(self, words: list[str]) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        return subprocess.Popen(
            [sys.executable, "-m", "fastfill", *words, "--workers", "2"], cwd=self.place,
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _kill_within(self, process: subprocess.Popen[str]) -> None:
        """The driver, or a worker of it where it has one."""
        import psutil

        with suppress(subprocess.TimeoutExpired):
            process.wait(self.rng.uniform(0.2, self.lasts))
        if process.poll() is not None:
            self.lasts = max(1.0, 0.8 * self.lasts)  # it was done before
            return
        with suppress(psutil.NoSuchProcess):
            workers = [
                child for child in psutil.Process(process.pid).children()
                if "spawn_main" in " ".join(child.cmdline())
            ]  # fmt: skip
            if workers and self.rng.random() < 0.5:
                self.rng.choice(workers).kill()
                self.tally.workers += 1
                return
        process.kill()
        self.tally.drivers += 1


@contextmanager
def writing(world: World, pause: float) -> Iterator[None]:
    """A writer that appends again and again; not for ever, or a slow machine never commits."""
    over = threading.Event()

    def write() -> None:
        for _ in range(APPENDS):
            if over.wait(pause):
                return
            world.append()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def kill_rounds(
    world: World, place: Path, *, kills: int, rows: int, seed: int = 0, pause: float = 1.5
) -> Tally:
    """Rounds of transform and order under a writer, until so many kills are done."""
    alignment = make_alignment()
    alignment.save(place / "map.safetensors")
    while world.rows < rows:
        world.append()
    killer = Killer(place, kills, random.Random(seed))
    tally = killer.tally
    while tally.drivers + tally.workers < kills:
        for words in world.commands():
            before = world.rows
            with writing(world, pause):
                killer.finish(words)
            tally.appended += world.rows - before
        tally.rows = world.check(alignment)
        tally.rounds += 1
    return tally
