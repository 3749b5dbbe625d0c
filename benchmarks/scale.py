"""python -m benchmarks.scale --rows 200000

Aligning and ordering a data set in pieces of 50,000 rows × 256, as a Lance table and as a folder of
Parquet files, by every engine, against a plain loop that reads, maps, writes and sorts in one
process and can neither be killed nor resumed. CPU seconds and memory are those of all processes of
a run; what starting an engine takes is measured by the same run on 2,000 rows. Data are files on
disk: 5,000,000 rows need 25 GB of it.

With `--kills N`, the same commands run in object storage on the loopback while a writer appends,
and are killed N times, driver or worker, at random moments: see `shared/scale_kills.py`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.live_tables import DIM, toy_alignment, vectors
from benchmarks.shared.process_tree import TreeUse, run_measured
from benchmarks.shared.scale_kills import PIECE as PIECE_ROWS
from benchmarks.shared.scale_kills import FolderWorld, LanceWorld, kill_rounds, object_storage

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

PIECE = 50_000
ENGINES = ("plain", "local", "ray", "daft")
SAMPLE = 97  # one row in so many is compared
FEW = 2_000  # rows of the run that tells what a start takes


def blocks(rows: int) -> Iterator[Any]:
    """Tables of one piece each."""
    import pyarrow as pa

    from fastfill.scale.operations import vector_array

    for first in range(0, rows, PIECE):
        count = min(PIECE, rows - first)
        ids = np.arange(first, first + count)
        yield pa.table({"id": ids, "vector": vector_array(vectors(first, count))})


def fill(place: Path, rows: int) -> None:
    """The same rows as a Lance table and as a folder of Parquet files, four pieces to a file."""
    import lance
    import pyarrow.parquet as pq

    (place / "parquet").mkdir()
    writer, files = None, 0
    for number, block in enumerate(blocks(rows)):
        lance.write_dataset(block, str(place / "db/items.lance"), mode="append")
        if number % 4 == 0:
            if writer is not None:
                writer.close()
            writer = pq.ParquetWriter(place / f"parquet/part-{files:04d}.parquet", block.schema)
            files += 1
        assert writer is not None
        writer.write_table(block, row_group_size=PIECE)
    if writer is not None:
        writer.close()


# --- one run, in a process of its own ----------------------------------------------------------


def one(kind: str, engine: str, place: Path) -> None:
    """Align and order; threads that wait for each other would count as CPU time."""
    from fastfill.scale.engines.threads import one_thread_for_blas

    one_thread_for_blas()
    if engine == "plain":
        plain_lance(place) if kind == "lance" else plain_parquet(place)
    else:
        by_pieces(kind, engine, place)


def by_pieces(kind: str, engine: str, place: Path) -> None:
    """As the commands do it."""
    from fastfill.scale import (
        LanceTable,
        open_engine,
        order_folder,
        order_table,
        transform_folder,
        transform_table,
    )

    alignment, runner = toy_alignment(), open_engine(engine, workers=2)
    if kind == "lance":
        table = LanceTable.from_url(f"lance://{place / 'db'}#items.vector")
        transform_table(alignment, table, engine=runner)
        order_table(alignment, table, policy="sigma", engine=runner)
        return
    source, aligned = str(place / "parquet"), str(place / "aligned")
    transform_folder(alignment, source, aligned, key="id", engine=runner)
    order_folder(alignment, aligned, str(place / "order"), key="id", policy="sigma", engine=runner)


def plain_lance(place: Path) -> None:
    """One `add_columns` for the vectors, one for the ranks."""
    import lance
    import pyarrow as pa

    from fastfill.scale.operations import vector_array

    alignment, data = toy_alignment(), lance.dataset(str(place / "db/items.lance"))

    def align(batch: Any) -> Any:
        aligned = alignment(_matrix(batch["vector"]))
        columns = {"vector_aligned": vector_array(aligned.vectors)}
        return pa.record_batch({**columns, "vector_variance": aligned.variance})

    data.add_columns(align, read_columns=["vector"], batch_size=16_384)
    variance = data.to_table(columns=["vector_variance"])["vector_variance"].to_numpy()
    data.add_columns(pa.table({"vector_rank": _ranks(variance)}).to_reader())


def plain_parquet(place: Path) -> None:
    """Batch by batch into one file, then one sort."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    from fastfill.scale.operations import vector_array

    alignment, writer, variances = toy_alignment(), None, []
    (place / "aligned").mkdir()
    (place / "order").mkdir()
    for batch in ds.dataset(place / "parquet").to_batches(batch_size=16_384):
        aligned = alignment(_matrix(batch["vector"]))
        variances.append(aligned.variance)
        columns = {"id": batch["id"], "vector_aligned": vector_array(aligned.vectors)}
        table = pa.table({**columns, "vector_variance": aligned.variance})
        writer = writer or pq.ParquetWriter(place / "aligned/all.parquet", table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    ranks = _ranks(np.concatenate(variances))
    order = pa.table({"id": np.arange(len(ranks)), "vector_rank": ranks})
    pq.write_table(order, place / "order/all.parquet")


def _matrix(column: Any) -> Any:
    return column.flatten().to_numpy().reshape(-1, DIM)


def _ranks(scores: Any) -> Any:
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return ranks


# --- all runs ------------------------------------------------------------------------------------


def results(kind: str, place: Path) -> tuple[Any, Any]:
    """A sample of the aligned vectors, and all ranks, in the order of the ids."""
    import lance
    import pyarrow as pa
    import pyarrow.parquet as pq

    if kind == "lance":
        data = lance.dataset(str(place / "db/items.lance"))
        every = np.arange(0, data.count_rows(), SAMPLE)
        aligned = data.take(every, columns=["vector_aligned"])
        return aligned, data.to_table(columns=["vector_rank"])["vector_rank"].to_numpy()
    parts = []
    for file in sorted((place / "aligned").glob("*.parquet")):
        table = pq.read_table(file, columns=["id", "vector_aligned"])
        rows = np.flatnonzero(table["id"].to_numpy() % SAMPLE == 0)
        parts.append(table.take(rows))
    order = pq.read_table(place / "order", columns=["id", "vector_rank"]).sort_by("id")
    aligned = pa.concat_tables(parts).sort_by("id").select(["vector_aligned"])
    return aligned, order["vector_rank"].to_numpy()


def clean(kind: str, place: Path, version: int) -> int:
    """Take the results away again; returns the version of the table that is then the latest."""
    import shutil
    from datetime import timedelta

    import lance

    if kind == "parquet":
        shutil.rmtree(place / "aligned")
        shutil.rmtree(place / "order")
        return version
    data = lance.dataset(str(place / "db/items.lance"), version=version)
    data.restore()
    data = lance.dataset(data.uri)
    data.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    return int(data.version)


def used(kind: str, engine: str, place: Path) -> TreeUse:
    """What one run takes."""
    return run_measured(
        [sys.executable, "-m", "benchmarks.scale", "--one", kind, engine, str(place)]
    )


def compare(kind: str, place: Path, few: Path) -> list[str]:
    """The lines of one format."""
    import lance

    versions = [lance.dataset(str(where / "db/items.lance")).version for where in (place, few)]
    lines, base, expected = [], None, None
    for engine in ENGINES:
        start = used(kind, engine, few)
        versions[1] = clean(kind, few, versions[1])
        use = used(kind, engine, place)
        aligned, ranks = results(kind, place)
        found = np.stack(aligned["vector_aligned"].to_numpy()), ranks
        base, expected = base or (use, start), expected or found
        lines.append(_line(kind, engine, (use, start), base, found, expected))
        print(lines[-1], flush=True)
        versions[0] = clean(kind, place, versions[0])
    return lines


def _line(kind: str, engine: str, run: Any, base: Any, mine: Any, expected: Any) -> str:
    (use, start), (plain, plain_start) = run, base
    off = float(np.abs(mine[0] - expected[0]).max())
    moved = float(np.abs(mine[1] - expected[1]).max()) / len(mine[1])
    assert np.array_equal(np.sort(mine[1]), np.arange(len(mine[1])))
    work = (use.cpu - start.cpu) / (plain.cpu - plain_start.cpu)
    return (
        f"| {kind} | {engine} | {use.seconds:.0f} | {use.cpu:.1f} | {start.cpu:.1f} | "
        f"{use.cpu / plain.cpu:.2f} | {work:.2f} | {use.peak:,.0f} | {off:.1e} | "
        f"{100 * moved:.2f} % |"
    )


def measure(rows: int) -> str:
    """All engines on both formats."""
    lines = [
        "| data | engine | seconds | CPU s | of them start | CPU / plain | without start | MB | "
        "off by | ranks off by |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        place, few = Path(folder, "all"), Path(folder, "few")
        for where, count in ((place, rows), (few, FEW)):
            where.mkdir()
            fill(where, count)
        for kind in ("lance", "parquet"):
            lines += compare(kind, place, few)
    lines.append(
        f"\n{rows:,} rows × {DIM}, two workers. *Start*: the CPU seconds of the same run on "
        f"{FEW:,} rows. *Off by*: the largest difference of an aligned number from the plain "
        "loop's, whose batches end elsewhere; and the largest difference of a rank from the exact "
        "sort's, as a share of all rows."
    )
    return "\n".join(lines)


def kill(kills: int) -> str:
    """Both formats in object storage."""
    lines = [
        "| data | drivers killed | workers killed | rounds | rows appended meanwhile | rows at the "
        "end | lost or there twice |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind, world in (("lance", LanceWorld), ("parquet", FolderWorld)):
        with tempfile.TemporaryDirectory() as folder, object_storage() as bucket:
            made = world(bucket)
            tally = kill_rounds(made, Path(folder), kills=kills, rows=20 * PIECE_ROWS)
        lines.append(
            f"| {kind} | {tally.drivers} | {tally.workers} | {tally.rounds} | {tally.appended:,} | "
            f"{made.rows:,} | 0 |"
        )
        print(lines[-1], flush=True)
    lines.append(
        "\nA round is `transform` and `order`, run again after each kill until they end, while a "
        "writer appends; then all rows are looked at."
    )
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--one"]:
        kind, engine, place = sys.argv[2:]
        one(kind, engine, Path(place))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, help="kill commands so often, instead of measuring")
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    if options.kills is None:
        title, body = "Data sets in pieces", measure(options.rows)
    else:
        title, body = "Data sets in pieces, killed under a writer", kill(options.kills)
    if options.write:
        from benchmarks.shared.sections import write_section

        command = " ".join(["python -m benchmarks.scale", *sys.argv[1:]])
        write_section(title, command, body)


if __name__ == "__main__":
    main()
