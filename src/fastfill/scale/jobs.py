"""Whole data sets: align, order or embed every piece, and commit.

A job can be killed at any time and run again: it goes on with the pieces that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fastfill.align import Alignment
from fastfill.errors import StoreError
from fastfill.scale.embedding import EmbedRows
from fastfill.scale.engines.local import LocalEngine
from fastfill.scale.folders import Folder
from fastfill.scale.lance_columns import (
    LanceWork,
    TableChangedError,
    check_made_by,
    check_no_ranks,
)
from fastfill.scale.lance_table import LanceTable
from fastfill.scale.operations import AlignmentSpec, AlignRows, Operation, ScoreRows
from fastfill.scale.ordering import RankRows, ScoreWork, order_job, plan_order, rank_columns
from fastfill.scale.parquet_folder import ParquetFolder, ParquetWork, output_of
from fastfill.scale.pieces import Engine, Piece, Tick, finish_pieces

COMMITS = 30  # tries of a commit that others are in the way of
ROUNDS = 2  # in which fragments that others have appended are done too
FEW_ROWS = 65_536  # aligned and ranked sooner than processes start
KEPT = "_pieces"  # the folder of what an order needs beside its output

HERE = LocalEngine(1)

T = TypeVar("T")


@dataclass(frozen=True)
class JobResult:
    """What a job has done: how large the data set is, and how much of it was left to do."""

    rows: int
    pieces: int
    done: int  # pieces that had not been finished before
    left: int = field(default=0, repr=False)  # rows that others appended to a table meanwhile


def transform_folder(
    alignment: Alignment,
    source: str,
    output: str,
    *,
    column: str = "vector",
    key: str | None = None,
    estimates: bool = False,
    engine: Engine = HERE,
    tick: Tick | None = None,
) -> JobResult:
    """Align the vectors of a folder of Parquet files, into a folder of the same row groups.

    The output has all columns of the input, or only its `key`, and the columns `COLUMN_aligned`
    and `COLUMN_variance`.

    >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> from fastfill.features import Features, Pairs
    >>> old = np.random.default_rng(0).normal(size=(60, 4)).astype("float32")
    >>> alignment = Alignment.fit(Pairs(Features(old), Features(old + 1)), method="ridge")
    >>> folder, output = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> table = pa.table({"id": range(60), "vector": old.tolist()})
    >>> pq.write_table(table, f"{folder}/a.parquet", row_group_size=20)
    >>> transform_folder(alignment, folder, output, key="id")
    JobResult(rows=60, pieces=3, done=3)
    >>> pq.read_table(output).column_names
    ['id', 'vector_aligned', 'vector_variance']
    """
    operation = AlignRows(AlignmentSpec.of(alignment, column), estimates)
    work = ParquetWork(ParquetFolder(source), operation, Folder(output), key)
    return _write_files(work, work.source.pieces(), engine, tick)


def order_folder(
    alignment: Alignment,
    source: str,
    output: str,
    *,
    column: str = "vector",
    key: str | None = None,
    policy: str = "mixed",
    seed: int = 0,
    engine: Engine = HERE,
    tick: Tick | None = None,
) -> JobResult:
    """The order in which to backfill the rows of a folder: `COLUMN_rank` and `COLUMN_score`.

    What `transform_folder` has written by the same alignment can be the source: `sigma` and
    `mixed` then take its errors, and map nothing again.
    """
    folder = ParquetFolder(source)
    target, pieces = Folder(output), folder.pieces()
    scores = ScoreRows(AlignmentSpec.of(alignment, column), policy, seed)
    output_of(order_job(column), target, folder, key).claim()
    plan = plan_order(folder, pieces, scores, target.child(KEPT), engine, tick)
    work = ParquetWork(folder, RankRows(plan, column), target, key)
    result = _write_files(work, pieces, engine, None)
    target.child(KEPT).clear()
    return result


def embed_folder(
    operation: EmbedRows,
    source: str,
    output: str,
    *,
    key: str | None = None,
    engine: Engine = HERE,
    tick: Tick | None = None,
) -> JobResult:
    """Embed the inputs of a folder of Parquet files, into a folder of the same row groups."""
    work = ParquetWork(ParquetFolder(source), operation, Folder(output), key)
    return _write_files(work, work.source.pieces(), engine, tick)


def _write_files(
    work: ParquetWork, pieces: list[Piece], engine: Engine, tick: Tick | None
) -> JobResult:
    work.output.claim()
    done = finish_pieces(work, pieces, engine, tick)
    work.commit(pieces)
    return _result(pieces, done)


def transform_table(
    alignment: Alignment,
    table: LanceTable,
    *,
    estimates: bool = False,
    engine: Engine = HERE,
    tick: Tick | None = None,
) -> JobResult:
    """Add `COLUMN_aligned` and `COLUMN_variance` to a Lance table, in one version of it.

    Where the same alignment has added them before, the rows without them are filled in.
    """
    operation = AlignRows(AlignmentSpec.of(alignment, table.column), estimates)

    def aligned(source: LanceTable, pieces: list[Piece]) -> Operation:
        check_made_by(source, operation, "another alignment, or with or without its penalty")
        return operation

    return _add_columns(table, aligned, engine, tick, rest=SomeHere(engine))


def order_table(
    alignment: Alignment,
    table: LanceTable,
    *,
    policy: str = "mixed",
    seed: int = 0,
    engine: Engine = HERE,
    tick: Tick | None = None,
) -> JobResult:
    """Add `COLUMN_rank` and `COLUMN_score`, the order of backfilling, to a Lance table.

    `sigma` and `mixed` take the errors that `transform_table` has added by the same alignment.
    Rows that others append while all are scored are ranked too, later ones are not.
    """
    scores = ScoreRows(AlignmentSpec.of(alignment, table.column), policy, seed)
    columns, folder = rank_columns(table.column), table.work_folder
    first = table.latest()
    check_no_ranks(first, columns)
    finish_pieces(ScoreWork(first, scores, folder), first.pieces(), engine, tick)

    def ranks(source: LanceTable, pieces: list[Piece]) -> Operation:
        check_no_ranks(source, columns)
        plan = plan_order(source, pieces, scores, folder, SomeHere(engine))
        return RankRows(plan, table.column)

    return _add_columns(table, ranks, engine, None, rounds=1)


def embed_table(
    operation: EmbedRows,
    table: LanceTable,
    *,
    engine: Engine = HERE,
    tick: Tick | None = None,
) -> JobResult:
    """Add a column of new vectors to a Lance table.

    Where the same encoder has added it before, of the same inputs and ranks, the rows without new
    vectors are filled in.
    """

    def embedded(source: LanceTable, pieces: list[Piece]) -> Operation:
        check_made_by(source, operation, "another encoder, other inputs or other ranks")
        return operation

    return _add_columns(table, embedded, engine, tick)


@dataclass(frozen=True)
class SomeHere:
    """Leaves a few rows to this process, as those that were appended while the others were done."""

    engine: Engine

    def map(self, work: Callable[[Piece], T], pieces: Sequence[Piece]) -> Iterator[T]:
        """The results in the order of the pieces."""
        few = sum(piece.rows for piece in pieces) <= FEW_ROWS
        return (HERE if few else self.engine).map(work, pieces)


def _add_columns(
    table: LanceTable,
    operation_for: Callable[[LanceTable, list[Piece]], Operation],
    engine: Engine,
    tick: Tick | None,
    *,
    rest: Engine | None = None,
    rounds: int = ROUNDS,
) -> JobResult:
    """Until a commit succeeds: do the fragments that are not finished as they are now.

    From the second time on `rest` does them. Those that others append while the last round runs
    are left, or a writer that never rests would never let a commit through.
    """
    done, work, columns = 0, None, None
    for attempt in range(COMMITS):
        source = table.latest()
        present = source.pieces()
        if work is None or columns is None or attempt < rounds or not columns.hold(present):
            work = LanceWork(source, operation_for(source, present))
            missing = source.without(present, work.operation)
            done += finish_pieces(work, missing, engine, tick)
            columns, engine = work.finished(missing), rest or engine
        try:
            committed = columns.commit(source, present)
        except TableChangedError:
            continue
        table.work_folder.clear()
        return _table_result(committed, work.operation, done)
    raise StoreError(
        f"{table.name}: other writers were faster {COMMITS} times, so nothing was committed. Run "
        "again when the table is less busy: finished fragments are kept."
    )


def _table_result(table: LanceTable, operation: Operation, done: int) -> JobResult:
    """What a version of a table has in the columns, and what it has not."""
    pieces = table.pieces()
    left = table.without(pieces, operation)
    rows = sum(piece.rows for piece in left)
    return JobResult(sum(p.rows for p in pieces) - rows, len(pieces) - len(left), done, rows)


def _result(pieces: list[Piece], done: int) -> JobResult:
    return JobResult(sum(piece.rows for piece in pieces), len(pieces), done)
