"""The exact backfilling curve of a gallery in pieces: counts of pieces add up.

The first pass finds the items that are relevant to a query, with their vectors, and the place of
every row in the order; the second counts the rows of each piece between the relevant items (see
`metrics.shards`). The curve is that of the gallery in memory, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import InputError, LabelError, OrderError
from fastfill.evaluate import Curve
from fastfill.evaluate.simulation import as_fractions, backfilled_counts
from fastfill.features import Array, Distance, Ints, Matrix, check_finite
from fastfill.features.parquet_files import list_matrix
from fastfill.metrics import Metric, as_metrics
from fastfill.metrics.relevance import Relevance, from_lists
from fastfill.metrics.shards import GalleryShard, ShardCounts, ShardedCurve
from fastfill.scale.engines.local import LocalEngine
from fastfill.scale.packages import import_extra
from fastfill.scale.pieces import Engine, Piece, PieceSource, Tick


@dataclass(frozen=True)
class GalleryColumns:
    """Where aligned and new vectors, ranks and labels are, in a data set of pieces."""

    source: PieceSource
    aligned: str = "vector_aligned"
    new: str = "vector_new"
    rank: str = "vector_rank"
    label: str = "label"

    def shard(self, piece: Piece, table: Any) -> GalleryShard:
        """The vectors of a piece."""
        rows = np.arange(piece.first_row, piece.first_row + piece.rows)
        before, after = (self._matrix(table, name, piece) for name in (self.aligned, self.new))
        return GalleryShard(rows, before, after)

    def read(self, piece: Piece, columns: Sequence[str]) -> Any:
        """Columns of a whole piece."""
        import pyarrow as pa

        return pa.Table.from_batches(self.source.batches(piece, columns))

    def _matrix(self, table: Any, column: str, piece: Piece) -> Matrix:
        lists = list_matrix(table[column], piece.name, column_name=column)
        matrix = np.ascontiguousarray(lists, dtype=np.float32)
        check_finite(matrix, piece.name)
        return matrix


class Found(NamedTuple):
    """What the first pass finds in a piece."""

    ranks: Ints  # (s,) of all its rows
    which: Ints  # (r,) the label of each relevant row, by its place among those that are asked for
    relevant: GalleryShard  # these rows


@dataclass(frozen=True, eq=False)
class FindWork:
    """Ranks of all rows, and the rows that have a label which is asked for."""

    gallery: GalleryColumns
    asked: Array  # (l,) rising

    def __call__(self, piece: Piece) -> Found:
        """In one piece."""
        gallery = self.gallery
        columns = [gallery.label, gallery.rank, gallery.aligned, gallery.new]
        table = gallery.read(piece, columns)
        if table[gallery.rank].null_count:
            raise OrderError(f"{piece.name}: rows without a rank in {gallery.rank}. Order again.")
        labels = np.asarray(table[gallery.label].to_numpy())
        if (labels.dtype.kind in "OU") != (self.asked.dtype.kind == "U"):
            raise LabelError(
                f"{piece.name}: labels are {table[gallery.label].type}, and those of the queries "
                f"{self.asked.dtype}: no label could match."
            )
        which = np.minimum(np.searchsorted(self.asked, labels), len(self.asked) - 1)
        right = np.flatnonzero(self.asked[which] == labels)
        shard = gallery.shard(piece, table)
        relevant = GalleryShard(shard.rows[right], shard.before[right], shard.after[right])
        return Found(np.asarray(table[gallery.rank].to_numpy()), which[right], relevant)


@dataclass(frozen=True, eq=False)
class CountWork:
    """The rows of a piece between the relevant items of each query."""

    gallery: GalleryColumns
    curve: ShardedCurve

    def __call__(self, piece: Piece) -> ShardCounts:
        """Of one piece."""
        table = self.gallery.read(piece, [self.gallery.aligned, self.gallery.new])
        return self.curve.count(self.gallery.shard(piece, table))


def curves_over_pieces(
    gallery: GalleryColumns,
    queries: Matrix,
    query_labels: Array,
    *,
    metrics: str | Sequence[str] = ("cmc@1", "cmc@5", "map"),
    points: int = 21,
    distance: Distance = "l2",
    engine: Engine | None = None,
    tick: Tick | None = None,
) -> dict[str, Curve]:
    """The curve of every metric, along the order that the ranks of the data set are.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> from fastfill.scale import ParquetFolder
    >>> table = pa.table({"label": [0, 0, 1, 1], "vector_rank": [1, 0, 2, 3],
    ...     "vector_aligned": [[0.0], [4.0], [1.0], [5.0]],
    ...     "vector_new": [[0.0], [1.0], [4.0], [5.0]]})
    >>> folder = tempfile.mkdtemp()
    >>> pq.write_table(table, f"{folder}/a.parquet", row_group_size=2)
    >>> gallery, queries = GalleryColumns(ParquetFolder(folder)), np.float32([[1.25], [4.25]])
    >>> curves_over_pieces(gallery, queries, np.array([0, 1]), metrics="cmc@1", points=5)
    {'cmc@1': Curve(vector_rank: cmc@1 0.0000 → 1.0000, area 0.6250)}
    """
    import_extra("numba", "numba", "numba", "A curve over pieces")
    chosen, fractions = as_metrics(metrics), as_fractions(points)
    _check_metrics(chosen)
    engine, pieces = engine or LocalEngine(1), gallery.source.pieces()
    asked, which = np.unique(np.asarray(query_labels), return_inverse=True)
    found = list(engine.map(FindWork(gallery, asked), pieces))
    relevant = _together([part.relevant for part in found])
    relevance = _relevance(found, relevant.rows, len(asked), which)
    steps = _steps(np.concatenate([part.ranks for part in found]), fractions, gallery)
    del found
    curve = ShardedCurve(queries, relevant, relevance, steps, points, chosen, distance)
    counts = engine.map(CountWork(gallery, curve), pieces)
    scores = curve.scores(_counted(counts, len(pieces), tick))
    return {
        name: Curve(
            name, fractions, values.mean(axis=0), gallery.rank, values.astype("f"), scores.queries,
            scores.excluded,
        )
        for name, values in scores.values.items()
    }  # fmt: skip


def _check_metrics(metrics: Sequence[Metric]) -> None:
    for metric in metrics:
        if metric.name.startswith("agreement"):
            raise InputError(
                f"{metric.name} asks for the new neighbours of every query, which no piece knows "
                "alone: measure it on a sample in one file, or use a metric of labels."
            )


def _together(parts: Sequence[GalleryShard]) -> GalleryShard:
    rows = np.concatenate([part.rows for part in parts])
    before = np.concatenate([part.before for part in parts])
    after = np.concatenate([part.after for part in parts])
    return GalleryShard(rows, before, after)


def _relevance(found: Sequence[Found], rows: Ints, labels: int, which: Ints) -> Relevance:
    """The rows of each label that is asked for, and which label is each query's."""
    of_row = np.concatenate([part.which for part in found])
    lists = [rows[of_row == label] for label in range(labels)]
    items = sum(len(part.ranks) for part in found)
    none = np.full(len(which), -1)
    return from_lists(items, which, lists, [np.ones(len(part)) for part in lists], none)


def _steps(ranks: Ints, fractions: NDArray[np.float64], gallery: GalleryColumns) -> Ints:
    """The first stage at which each row is new."""
    if not np.array_equal(np.sort(ranks), np.arange(len(ranks))):
        raise OrderError(
            f"{gallery.source.name}: the ranks in {gallery.rank} are not one for each row, from 0 "
            f"to {len(ranks) - 1:,}: rows came or went. Order again."
        )
    counts = backfilled_counts(fractions, len(ranks))
    return np.searchsorted(counts, ranks, side="right").astype(np.int64)


def _counted(
    counts: Iterator[ShardCounts], pieces: int, tick: Tick | None
) -> Iterator[ShardCounts]:
    for done, counted in enumerate(counts, 1):
        yield counted
        if tick is not None:
            tick(done, pieces)
