"""A data set in object storage to which a writer appends, as a Lance table or a Parquet folder."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np

from benchmarks.shared.live_tables import toy_alignment, vectors
from fastfill.align import Alignment
from fastfill.scale import Folder
from fastfill.scale.operations import vector_array

PIECE = 50_000  # rows that are there from the beginning, in one fragment or row group
APPENDED = 1_000  # rows of one write meanwhile
PAUSE = 2.0  # seconds between two writes, at least
REST = 5  # times what a write takes, before the next one: or a slow machine never commits


@dataclass(frozen=True)
class Checked:
    """What was found at the end."""

    rows: int  # that are there, each once
    aligned: int  # of them
    off: float  # largest difference from the aligned vectors of one process
    moved: float  # largest difference from the rank of an exact sort, as a share of all rows


@dataclass
class StorageWorld:
    """Blocks of rows, each with vectors of its own."""

    place: str  # s3://BUCKET/FOLDER
    blocks: list[tuple[int, int]] = field(default_factory=list)  # first row, and how many

    @property
    def rows(self) -> int:
        """Written so far."""
        return sum(count for _, count in self.blocks)

    def fill(self, rows: int) -> None:
        """What is there from the beginning."""
        while self.rows < rows:
            self.append(min(PIECE, rows - self.rows))

    def append(self, count: int = APPENDED) -> None:
        """Write one more block."""
        import pyarrow as pa

        first = self.rows
        ids = np.arange(first, first + count)
        self._write(pa.table({"id": ids, "vector": vector_array(vectors(first, count))}), first)
        self.blocks.append((first, count))

    def _write(self, table: Any, first: int) -> None:
        raise NotImplementedError

    def words(self) -> list[list[str]]:
        """The commands: transform and order."""
        raise NotImplementedError

    def results(self) -> Any:
        """A table of id, vector_aligned, vector_variance and vector_rank."""
        raise NotImplementedError

    def clean(self) -> None:
        """Take the results away."""
        raise NotImplementedError

    def check(self, least: int) -> Checked:
        """Raise where a row is lost, there twice, or another's; `least` rows must be aligned."""
        table, alignment = self.results().sort_by("id"), toy_alignment()
        ids = table["id"].to_numpy()
        if not np.array_equal(ids, np.arange(len(ids))) or len(ids) > self.rows:
            raise AssertionError(f"{len(ids):,} rows with {len(np.unique(ids)):,} ids")
        there = [block for block in self.blocks if block[0] < len(ids)]
        parts = [self._compare(table.slice(*block), alignment, *block) for block in there]
        aligned = sum(count for count, _ in parts)
        if aligned < least:
            raise AssertionError(f"{aligned:,} rows are aligned, of {least:,}")
        off = max(away for _, away in parts)
        return Checked(len(ids), aligned, off, _moved(table, aligned))

    def _compare(self, table: Any, alignment: Alignment, first: int, count: int) -> Any:
        """Rows of a block that are aligned, all or none, and how far they are off."""
        if table["vector_aligned"].null_count == count:
            return 0, 0.0
        if len(table) != count or table["vector_aligned"].null_count:
            raise AssertionError(f"rows from {first:,} on are aligned in part")
        found = table["vector_aligned"].combine_chunks().flatten().to_numpy().reshape(count, -1)
        wanted = alignment(vectors(first, count)).vectors
        return count, float(np.abs(found - wanted).max())


def _moved(table: Any, aligned: int) -> float:
    """How far ranks are from those of an exact sort; they must be an order."""
    ranked = table.filter(table["vector_rank"].is_valid())
    ranks = ranked["vector_rank"].to_numpy()
    if not np.array_equal(np.sort(ranks), np.arange(len(ranks))) or len(ranks) < aligned:
        raise AssertionError(f"{len(ranks):,} ranks of {aligned:,} rows are no order")
    if ranked["vector_variance"].null_count:  # of rows that came between the two commands
        return 0.0
    exact = np.empty(len(ranks), dtype=np.int64)
    scores = ranked["vector_variance"].to_numpy()
    exact[np.argsort(-scores, kind="stable")] = np.arange(len(ranks))
    return float(np.abs(ranks - exact).max() / len(ranks))


@dataclass
class LanceStorage(StorageWorld):
    """A table, to which the commands add columns."""

    @property
    def uri(self) -> str:
        """For Lance itself."""
        return f"{self.place}/db/items.lance"

    @property
    def url(self) -> str:
        """For FastFill."""
        return f"lance://{self.place}/db#items.vector"

    def _write(self, table: Any, first: int) -> None:
        import lance

        lance.write_dataset(table, self.uri, mode="append")

    def words(self) -> list[list[str]]:
        """The table is its own output."""
        order = ["order", "map.safetensors", self.url, "--policy", "sigma"]
        return [["transform", "map.safetensors", self.url], order]

    def results(self) -> Any:
        """All rows, also those that were appended after a command had begun."""
        import lance

        columns = ["id", "vector_aligned", "vector_variance", "vector_rank"]
        return lance.dataset(self.uri).to_table(columns=columns)

    def clean(self) -> None:
        """Drop the added columns, and their files."""
        import lance

        data = lance.dataset(self.uri)
        added = [name for name in data.schema.names if name not in ("id", "vector")]
        if added:
            data.drop_columns(added)
        data = lance.dataset(self.uri)
        data.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


@dataclass
class FolderStorage(StorageWorld):
    """A folder of files, of which the commands make two others."""

    def _write(self, table: Any, first: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=PIECE)
        self._folder("in").write(f"{first:09d}.parquet", sink.getvalue())

    def _folder(self, name: str) -> Folder:
        return Folder(self.place).child(name)

    def words(self) -> list[list[str]]:
        """The order is made of the aligned rows."""
        key = ["--key", "id"]
        source, aligned, order = (f"{self.place}/{name}" for name in ("in", "aligned", "order"))
        return [
            ["transform", "map.safetensors", source, "-o", aligned, *key],
            ["order", "map.safetensors", aligned, "-o", order, "--policy", "sigma", *key],
        ]

    def results(self) -> Any:
        """Both outputs joined: the rows that were there when `transform` last began."""
        aligned, order = (self._table(name).sort_by("id") for name in ("aligned", "order"))
        if not np.array_equal(aligned["id"].to_numpy(), order["id"].to_numpy()):
            raise AssertionError("the order has other rows than those that are aligned")
        return aligned.append_column("vector_rank", order["vector_rank"])

    def _table(self, name: str) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = self._folder(name)
        files = sorted(file for file in folder.names() if file.endswith(".parquet"))
        wanted = ["id", "vector_rank"] if name == "order" else None
        parts = [
            pq.read_table(pa.BufferReader(folder.read(file)), columns=wanted) for file in files
        ]
        return pa.concat_tables(parts)

    def clean(self) -> None:
        """Delete both."""
        self._folder("aligned").clear()
        self._folder("order").clear()


@contextmanager
def appending(world: StorageWorld) -> Iterator[None]:
    """A writer that appends all the time."""
    over = threading.Event()

    def write() -> None:
        took = 0.0
        while not over.wait(max(PAUSE, REST * took)):
            began = time.perf_counter()
            world.append()
            took = time.perf_counter() - began

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()
