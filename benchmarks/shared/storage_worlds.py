"""A data set in object storage that grows, as a Lance table or a Parquet folder, and its check.

The check fails where a row is lost or there twice, where it has the aligned vector of another one,
or where ranks are no order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np

from benchmarks.shared.live_tables import toy_alignment, vectors
from benchmarks.shared.scale_runs import lance_uri, lance_url
from fastfill.align import Alignment
from fastfill.scale import Folder
from fastfill.scale.operations import vector_array

RESULTS = ["id", "vector_aligned", "vector_variance", "vector_rank"]
WRITES = 5  # tries of one append
Block = tuple[int, int]  # its first row, and how many


@dataclass(frozen=True)
class Checked:
    """What was found at the end."""

    rows: int  # that are there, each once
    aligned: int  # of them
    off: float  # largest difference from the aligned vectors of one process
    moved: float  # largest difference from the rank of an exact sort, as a share of all rows
    digest: str  # of the aligned vectors and the ranks


@dataclass
class StorageWorld:
    """Blocks of rows, each with vectors of its own."""

    place: str  # s3://BUCKET/FOLDER
    piece: int  # rows that are there from the beginning, in one fragment or row group
    appended: int = 1_000  # rows of one write meanwhile
    blocks: list[Block] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Written so far."""
        return sum(count for _, count in self.blocks)

    def fill(self, rows: int) -> None:
        """What is there from the beginning."""
        while self.rows < rows:
            self.append(min(self.piece, rows - self.rows))

    def append(self, count: int | None = None) -> None:
        """Write one more block."""
        import pyarrow as pa

        first, count = self.rows, count or self.appended
        ids = np.arange(first, first + count)
        self._write(pa.table({"id": ids, "vector": vector_array(vectors(first, count))}), first)
        self.blocks.append((first, count))

    def _write(self, table: Any, first: int) -> None:
        raise NotImplementedError

    def words(self) -> list[list[str]]:
        """The commands: transform and order."""
        raise NotImplementedError

    def results(self) -> Iterator[Any]:
        """Tables of id, vector_aligned, vector_variance and vector_rank, by rising id."""
        raise NotImplementedError

    def clean(self) -> None:
        """Take the results away."""
        raise NotImplementedError

    def check(self, least: int) -> Checked:
        """Raise where something is wrong; `least` rows must be aligned."""
        alignment, made = toy_alignment(), hashlib.blake2b()
        rows = aligned = 0
        off, marks = 0.0, []
        for first, table in _in_blocks(self.results(), self.blocks):
            found = _own_vectors(table, first)
            rows += len(table)
            if found is not None:
                aligned += len(found)
                off = max(off, _difference(found, alignment, first))
                made.update(found)
            marks.append(table.select(RESULTS[2:]))
        if aligned < least:
            raise AssertionError(f"{aligned:,} rows are aligned, of {least:,}")
        ranks, moved = _checked_ranks(marks, aligned)
        made.update(ranks)
        return Checked(rows, aligned, off, moved, made.hexdigest())


def _in_blocks(tables: Iterable[Any], blocks: Iterable[Block]) -> Iterator[tuple[int, Any]]:
    """The same rows, cut as they were written; no more of them than there are blocks."""
    import pyarrow as pa

    parts, held = iter(tables), None
    for first, count in blocks:
        while held is None or len(held) < count:
            part = next(parts, None)
            if part is None:
                break
            held = part if held is None else pa.concat_tables([held, part])
        if held is None or not len(held):
            return
        yield first, held.slice(0, count)
        held = held.slice(count)
    if (held is not None and len(held)) or next(parts, None) is not None:
        raise AssertionError("there are more rows than were written")


def _own_vectors(table: Any, first: int) -> Any:
    """The aligned vectors of a block, None where it has none; it has all or none."""
    ids, column = table["id"].to_numpy(), table["vector_aligned"]
    if not np.array_equal(ids, np.arange(first, first + len(ids))):
        raise AssertionError(f"rows from {first:,} on are lost, or there twice")
    if column.null_count == len(ids):
        return None
    if column.null_count:
        raise AssertionError(f"rows from {first:,} on are aligned in part")
    return column.combine_chunks().flatten().to_numpy().reshape(len(ids), -1)


def _difference(found: Any, alignment: Alignment, first: int) -> float:
    wanted = alignment(vectors(first, len(found))).vectors
    return float(np.abs(found - wanted).max())


def _checked_ranks(marks: list[Any], aligned: int) -> tuple[Any, float]:
    """The ranks, and how far they are from those of an exact sort; they must be an order."""
    import pyarrow as pa

    table = pa.concat_tables(marks)
    ranked = table.filter(table["vector_rank"].is_valid())
    ranks = ranked["vector_rank"].to_numpy()
    if not np.array_equal(np.sort(ranks), np.arange(len(ranks))) or len(ranks) < aligned:
        raise AssertionError(f"{len(ranks):,} ranks of {aligned:,} rows are no order")
    if ranked["vector_variance"].null_count:  # of rows that came between the two commands
        return ranks, 0.0
    exact = np.empty(len(ranks), dtype=np.int64)
    scores = ranked["vector_variance"].to_numpy()
    exact[np.argsort(-scores, kind="stable")] = np.arange(len(ranks))
    return ranks, float(np.abs(ranks - exact).max() / len(ranks))


@dataclass
class LanceStorage(StorageWorld):
    """A table, to which the commands add columns."""

    @property
    def _uri(self) -> str:
        return lance_uri(self.place)

    def _write(self, table: Any, first: int) -> None:
        import lance

        for tries in range(WRITES, 0, -1):
            try:
                lance.write_dataset(table, self._uri, mode="append" if first else "create")
                return
            except OSError as error:  # added columns came in between: Lance asks for another try
                if tries == 1 or "Retryable commit conflict" not in str(error):
                    raise

    def words(self) -> list[list[str]]:
        """The table is its own output."""
        url = lance_url(self.place)
        order = ["order", "map.safetensors", url, "--policy", "sigma"]
        return [["transform", "map.safetensors", url], order]

    def results(self) -> Iterator[Any]:
        """All rows, also those that were appended after a command had begun."""
        import lance
        import pyarrow as pa

        data = lance.dataset(self._uri)
        if data.count_rows() != self.rows:
            raise AssertionError(f"{data.count_rows():,} rows, of {self.rows:,}")
        for batch in data.to_batches(columns=RESULTS, batch_size=self.piece):
            yield pa.Table.from_batches([batch])

    def clean(self) -> None:
        """Drop the added columns, and their files."""
        import lance

        data = lance.dataset(self._uri)
        added = [name for name in data.schema.names if name not in ("id", "vector")]
        if added:
            data.drop_columns(added)
        data = lance.dataset(self._uri)
        data.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


@dataclass
class FolderStorage(StorageWorld):
    """A folder of files, of which the commands make two others."""

    def _write(self, table: Any, first: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=self.piece)
        self._folder("parquet").write(f"{first:09d}.parquet", sink.getvalue())

    def _folder(self, name: str) -> Folder:
        return Folder(self.place).child(name)

    def words(self) -> list[list[str]]:
        """The order is made of the aligned rows."""
        key = ["--key", "id"]
        source, aligned, order = (
            f"{self.place}/{name}" for name in ("parquet", "aligned", "order")
        )
        return [
            ["transform", "map.safetensors", source, "-o", aligned, *key],
            ["order", "map.safetensors", aligned, "-o", order, "--policy", "sigma", *key],
        ]

    def results(self) -> Iterator[Any]:
        """Both outputs joined: the rows that were there when `transform` last began."""
        import pyarrow as pa

        order = pa.concat_tables(list(self._tables("order", ["id", "vector_rank"])))
        place = 0
        for table in self._tables("aligned", RESULTS[:3]):
            ranked = order.slice(place, len(table))
            if not ranked["id"].equals(table["id"]):
                raise AssertionError("the order has other rows than those that are aligned")
            place += len(table)
            yield table.append_column("vector_rank", ranked["vector_rank"])
        if place != len(order):
            raise AssertionError(f"{len(order):,} rows in the order, of {place:,}")

    def _tables(self, name: str, columns: list[str]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = self._folder(name)
        for file in sorted(each for each in folder.names() if each.endswith(".parquet")):
            with pq.ParquetFile(pa.BufferReader(folder.read(file))) as opened:
                for batch in opened.iter_batches(self.piece, columns=columns):
                    yield pa.Table.from_batches([batch])

    def clean(self) -> None:
        """Delete both."""
        self._folder("aligned").clear()
        self._folder("order").clear()
