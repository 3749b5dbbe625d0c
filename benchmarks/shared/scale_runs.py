"""python -m benchmarks.shared.scale_runs lance ray FOLDER

One run: align and order the data set of a folder, here or in object storage, by an engine or by a
plain loop. The folder holds a Lance table, `db/items.lance`, or Parquet files, `parquet`, of which
`aligned` and `order` are made.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.shared.live_tables import DIM, toy_alignment
from benchmarks.shared.process_tree import TreeUse, run_measured
from fastfill.scale import Folder

BATCH = 16_384


def used(kind: str, engine: str, place: str) -> TreeUse:
    """What one run takes, in a process of its own."""
    words = ["-m", "benchmarks.shared.scale_runs", kind, engine, place]
    return run_measured([sys.executable, *words])


def lance_uri(place: str) -> str:
    """The table, for Lance itself."""
    return f"{place}/db/items.lance"


def lance_url(place: str) -> str:
    """Its column of vectors, for FastFill."""
    return f"lance://{place}/db#items.vector"


def by_pieces(kind: str, engine: str, place: str) -> None:
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
        table = LanceTable.from_url(lance_url(place))
        transform_table(alignment, table, engine=runner)
        order_table(alignment, table, policy="sigma", engine=runner)
        return
    source, aligned, order = (f"{place}/{name}" for name in ("parquet", "aligned", "order"))
    transform_folder(alignment, source, aligned, key="id", engine=runner)
    order_folder(alignment, aligned, order, key="id", policy="sigma", engine=runner)


def plain_lance(place: str) -> None:
    """One `add_columns` for the vectors, one for the ranks."""
    import lance
    import pyarrow as pa

    from fastfill.scale.operations import vector_array

    alignment, data = toy_alignment(), lance.dataset(lance_uri(place))

    def align(batch: Any) -> Any:
        aligned = alignment(_matrix(batch["vector"]))
        columns = {"vector_aligned": vector_array(aligned.vectors)}
        return pa.record_batch({**columns, "vector_variance": aligned.variance})

    data.add_columns(align, read_columns=["vector"], batch_size=BATCH)
    variance = data.to_table(columns=["vector_variance"])["vector_variance"].to_numpy()
    data.add_columns(pa.table({"vector_rank": _ranks(variance)}).to_reader())


def plain_parquet(place: str) -> None:
    """File by file, batch by batch, then one sort."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    from fastfill.scale.operations import vector_array

    alignment, variances = toy_alignment(), []
    source, target = Folder(place).child("parquet"), _empty_folder(place, "aligned")
    for file in ds.dataset(source.path, filesystem=source.system).get_fragments():
        tables = []
        for batch in file.to_batches(batch_size=BATCH):
            aligned = alignment(_matrix(batch["vector"]))
            variances.append(aligned.variance)
            columns = {"id": batch["id"], "vector_aligned": vector_array(aligned.vectors)}
            tables.append(pa.table({**columns, "vector_variance": aligned.variance}))
        path = f"{target.path}/{file.path.rpartition('/')[2]}"
        pq.write_table(pa.concat_tables(tables), path, filesystem=target.system)
    ranks = _ranks(np.concatenate(variances))
    order = pa.table({"id": np.arange(len(ranks)), "vector_rank": ranks})
    target = _empty_folder(place, "order")
    pq.write_table(order, f"{target.path}/all.parquet", filesystem=target.system)


def _empty_folder(place: str, name: str) -> Folder:
    folder = Folder(place).child(name)
    if folder.is_local:
        folder.system.create_dir(folder.path)
    return folder


def _matrix(column: Any) -> Any:
    return column.flatten().to_numpy().reshape(-1, DIM)


def _ranks(scores: Any) -> Any:
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return ranks


def main(kind: str, engine: str, place: str) -> None:
    """Align and order; threads that wait for each other would count as CPU time."""
    from fastfill.scale.engines.threads import one_thread_for_blas

    one_thread_for_blas()
    if engine == "plain":
        plain_lance(place) if kind == "lance" else plain_parquet(place)
    else:
        by_pieces(kind, engine, place)


if __name__ == "__main__":
    main(*sys.argv[1:])
