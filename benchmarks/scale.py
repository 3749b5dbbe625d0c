"""python -m benchmarks.scale --rows 200000

Aligning and ordering a data set in pieces of 50,000 rows × 256, as a Lance table and as a folder of
Parquet files, by every engine, against a plain loop that reads, maps, writes and sorts in one
process and can neither be killed nor resumed. CPU seconds and memory are those of all processes of
a run; what starting an engine takes is measured by the same run on 2,000 rows. Data are files on
disk: 5,000,000 rows need 25 GB of it. The same in object storage, under a writer and killed:
`scale_storage`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.live_tables import DIM, vectors
from benchmarks.shared.scale_runs import used

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


def compare(kind: str, place: Path, few: Path) -> list[str]:
    """The lines of one format."""
    import lance

    versions = [lance.dataset(str(where / "db/items.lance")).version for where in (place, few)]
    lines, base, expected = [], None, None
    for engine in ENGINES:
        start = used(kind, engine, str(few))
        versions[1] = clean(kind, few, versions[1])
        use = used(kind, engine, str(place))
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


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--no-write", dest="write", action="store_false", help="only print")
    options = parser.parse_args()
    body = measure(options.rows)
    if options.write:
        from benchmarks.shared.sections import write_section

        command = " ".join(["python -m benchmarks.scale", *sys.argv[1:]])
        write_section("Data sets in pieces", command, body)


if __name__ == "__main__":
    main()
