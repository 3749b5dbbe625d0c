"""Pairs whose halves lie in two folders, matched by id without either of them in memory.

The rows of both folders are dealt into parts by a hash of their id, so that both halves of a pair
come to the same part; then every part is matched alone, and written as a file of pairs.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import IdError, some
from fastfill.features import Ints
from fastfill.scale.folders import Folder
from fastfill.scale.pair_sums import PairColumns
from fastfill.scale.parquet_folder import ParquetFolder
from fastfill.scale.pieces import Engine, Piece, Tick, digest, finish_pieces

PART_ROWS = 200_000  # of a part, on each side, more or less


@dataclass(frozen=True)
class DealWork:
    """Deals the rows of a piece into parts, one row group for each, by a hash of their id."""

    source: ParquetFolder
    folder: Folder
    key: str
    column: str
    parts: int

    def file_name(self, piece: Piece) -> str:
        """Named by what it depends on."""
        return f"{digest(piece.identity, self.key, self.column, self.parts)}.parquet"

    def __call__(self, piece: Piece) -> None:
        """One piece; empty parts are row groups too, so that a part's number is its row group."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_batches(self.source.batches(piece, [self.key, self.column]))
        if table[self.key].null_count:
            raise IdError(f"{piece.name}: rows without an id in {self.key}. Remove those rows.")
        part = part_of(table[self.key].to_numpy(), self.parts)
        order = np.argsort(part, kind="stable")
        begins = np.searchsorted(part[order], np.arange(self.parts + 1))
        dealt, sink = table.take(order), pa.BufferOutputStream()
        with pq.ParquetWriter(sink, table.schema) as writer:
            for first, end in pairwise(begins):
                writer.write_table(dealt.slice(first, end - first), row_group_size=1 << 30)
        self.folder.write(self.file_name(piece), sink.getvalue())


def part_of(ids: NDArray[Any], parts: int) -> Ints:
    """The part of each id, the same on every machine.

    >>> part_of(np.array(["a", "b"]), 7).tolist(), part_of(np.array([1, 2]), 1).tolist()
    ([4, 4], [0, 0])
    """
    if ids.dtype.kind in "iu":
        mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
        return np.asarray(mixed % np.uint64(parts)).astype(np.int64)
    return np.array([zlib.crc32(str(key).encode()) % parts for key in ids], dtype=np.int64)


@dataclass(frozen=True)
class MatchWork:
    """Matches a part: the rows of both sides with the same id, written as pairs."""

    sides: tuple[DealWork, DealWork]
    files: tuple[tuple[str, ...], tuple[str, ...]]
    folder: Folder

    def file_name(self, piece: Piece) -> str:
        """A piece is a part."""
        return f"pairs-{piece.number:06d}-{digest(self.files)}.parquet"

    def __call__(self, piece: Piece) -> None:
        """Read the part of every dealt piece of both sides."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        old, new = (self._side(side, piece.number) for side in (0, 1))
        keys = old.column(0).to_numpy(), new.column(0).to_numpy()
        for side, ids in zip(self.sides, keys, strict=True):
            _check_once(ids, side)
        _, left, right = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
        halves = [old.column(1).take(left), new.column(1).take(right)]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(dict(zip(("old", "new"), halves, strict=True))), sink)
        self.folder.write(self.file_name(piece), sink.getvalue())

    def _side(self, number: int, part: int) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        work, tables = self.sides[number], []
        for name in self.files[number]:
            with work.folder.open(name) as file:
                tables.append(pq.ParquetFile(file).read_row_group(part))
        return pa.concat_tables(tables)


def _check_once(ids: NDArray[Any], side: DealWork) -> None:
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise IdError(
            f"{side.source.url}: the ids {some(values[counts > 1])} are there more than once. An "
            "item has one vector in each folder."
        )


def matched_pairs(
    old: str,
    new: str,
    work: str,
    *,
    key: str = "id",
    column: str = "vector",
    engine: Engine,
    tick: Tick | None = None,
) -> PairColumns:
    """The pairs of two folders of Parquet files, as a folder of pairs below the folder `work`.

    Work that was killed goes on where it was; take the folder away when the pairs are learned from.
    """
    sources = (ParquetFolder(old), ParquetFolder(new))
    pieces = [source.pieces() for source in sources]
    rows = max(sum(piece.rows for piece in side) for side in pieces)
    parts, place = max(1, rows // PART_ROWS), Folder(work)
    dealt = [
        DealWork(source, place.child(name), key, column, parts)
        for source, name in zip(sources, ("old", "new"), strict=True)
    ]
    for side, those in zip(dealt, pieces, strict=True):
        finish_pieces(side, those, engine)
    names = tuple(
        tuple(side.file_name(piece) for piece in those)
        for side, those in zip(dealt, pieces, strict=True)
    )
    match = MatchWork((dealt[0], dealt[1]), (names[0], names[1]), place.child("pairs"))
    finish_pieces(match, _parts(parts), engine, tick)
    return PairColumns(ParquetFolder(f"{work.rstrip('/')}/pairs"))


def _parts(number: int) -> Sequence[Piece]:
    return [Piece(f"part {i} of the ids", str(i), i, 0, 0) for i in range(number)]
