"""A LanceDB table before a migration: its indexes, the disk under it, the rights on its folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastfill.adapters.lance.context import LanceContext
from fastfill.adapters.lance.search import DISTANCE_OF
from fastfill.gallery import Id, Inspection, RepeatedIds, VectorIndex
from fastfill.gallery.repeated_ids import NAMED

ID_ROWS = 1 << 17  # of a scan's steps over the ids alone


def inspect_table(context: LanceContext, sample: int, seed: int) -> Inspection:
    """Look at the vector column and draw random rows; changes nothing."""
    folder = Path(context.path)
    local = folder.is_dir()
    column = context.columns.old
    ids = _random_ids(context, sample, seed)
    return Inspection(
        kind=str(context.table.schema.field(column).type) if column in context.names() else "",
        ids=ids,
        dims={context.dim(column): len(ids)} if column in context.names() else {},
        indexes=_indexes(context),
        stored_bytes=_bytes_under(folder / f"{context.table_name}.lance") if local else None,
        free_bytes=shutil.disk_usage(folder).free if local else None,
        missing_permissions=_missing_permissions(folder) if local else (),
        software=(f"LanceDB {lancedb.__version__}",),
    )


def _random_ids(context: LanceContext, sample: int, seed: int) -> list[Id]:
    rows = context.table.count_rows()
    rng = np.random.default_rng(seed)
    offsets = np.sort(rng.choice(rows, size=min(sample, rows), replace=False))
    if not len(offsets):
        return []
    key = context.columns.id
    with context.connection.errors():
        taken = context.table.take_offsets(offsets.tolist()).select([key]).to_arrow()
    return list(taken[key].to_pylist())


def repeated_ids(context: LanceContext) -> RepeatedIds:
    """One scan of the ids; a million of them takes less than a second."""
    key = context.columns.id
    blocks = [table[key] for table in context.scan(None, [key], ID_ROWS)]
    if not blocks:
        return RepeatedIds()
    ids = pa.chunked_array([chunk for block in blocks for chunk in block.chunks])
    there = ids.drop_null()
    missing = len(ids) - len(there)
    if pc.count_distinct(there).as_py() == len(there):
        return RepeatedIds(missing=missing)
    counts = pc.value_counts(there)
    several = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    return RepeatedIds(len(several), tuple(several[:NAMED].to_pylist()), missing)


def _indexes(context: LanceContext) -> tuple[VectorIndex, ...]:
    facts = []
    for index in context.table.list_indices():
        if list(index.columns) == [context.columns.old]:
            stats = context.table.index_stats(index.name)
            distance = DISTANCE_OF.get(str(getattr(stats, "distance_type", "")).lower())
            unindexed = int(getattr(stats, "num_unindexed_rows", 0) or 0)
            facts.append(VectorIndex(index.name, str(index.index_type), distance, True, unindexed))
    return tuple(facts)


def _bytes_under(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _missing_permissions(folder: Path) -> tuple[str, ...]:
    return () if os.access(folder, os.W_OK | os.X_OK) else (f"write to the folder {folder}",)
