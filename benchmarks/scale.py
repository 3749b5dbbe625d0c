"""python -m benchmarks.scale --rows 200000

Aligning and ordering a data set in pieces of 50,000 rows × 256, as a Lance table and as a folder of
Parquet files, by every engine, against a plain loop that reads, maps, writes and sorts in one
process and can neither be killed nor resumed. CPU seconds and memory are those of all processes of
a run, start included. The full size is 5,000,000 rows, which needs 60 GB of disk.
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

NEEDS_GPU = False
NEEDS_DATA: tuple[str, ...] = ()

PIECE = 50_000
ENGINES = ("plain", "local", "ray", "daft")
SAMPLE = 97  # one row in so many is compared


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


def clean(kind: str, place: Path, versions: int) -> None:
    """Take the results away again."""
    import shutil

    import lance

    if kind == "parquet":
        shutil.rmtree(place / "aligned")
        shutil.rmtree(place / "order")
        return
    uri = str(place / "db/items.lance")
    lance.dataset(uri, version=versions).restore()


def compare(kind: str, rows: int, place: Path) -> list[str]:
    """The lines of one format."""
    import lance

    versions = lance.dataset(str(place / "db/items.lance")).version
    lines, base, expected = [], None, None
    for engine in ENGINES:
        command = [sys.executable, "-m", "benchmarks.scale", "--one", kind, engine, str(place)]
        use = run_measured(command)
        aligned, ranks = results(kind, place)
        vectors_ = np.stack(aligned["vector_aligned"].to_numpy())
        base, expected = base or use, expected or (vectors_, ranks)
        lines.append(_line(kind, engine, use, base, (vectors_, ranks), expected))
        print(lines[-1], flush=True)
        clean(kind, place, versions)
    return lines


def _line(kind: str, engine: str, use: TreeUse, base: TreeUse, mine: Any, expected: Any) -> str:
    off = float(np.abs(mine[0] - expected[0]).max())
    moved = float(np.abs(mine[1] - expected[1]).max()) / len(mine[1])
    assert np.array_equal(np.sort(mine[1]), np.arange(len(mine[1])))
    return (
        f"| {kind} | {engine} | {use.seconds:.0f} | {use.cpu:.0f} | {use.cpu / base.cpu:.2f} | "
        f"{use.peak:,.0f} | {off:.1e} | {100 * moved:.2f} % |"
    )


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--one"]:
        kind, engine, place = sys.argv[2:]
        one(kind, engine, Path(place))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    lines = [
        "| data | engine | seconds | CPU s | CPU / plain | MB | off by | ranks off by |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        fill(Path(folder), options.rows)
        for kind in ("lance", "parquet"):
            lines += compare(kind, options.rows, Path(folder))
    lines.append(
        f"\n{options.rows:,} rows × {DIM}, two workers. *Off by*: the largest difference of an "
        "aligned number from the plain loop's, whose batches end elsewhere; and the largest "
        "difference of a rank from the exact sort's, as a share of all rows."
    )
    if options.write:
        from benchmarks.shared.sections import write_section

        command = " ".join(["python -m benchmarks.scale", *sys.argv[1:]])
        write_section("Data sets in pieces", command, "\n".join(lines))


if __name__ == "__main__":
    main()
