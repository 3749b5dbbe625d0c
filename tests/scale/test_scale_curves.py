"""Curves of galleries in pieces are those of galleries in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastfill.align import Aligned
from fastfill.errors import InputError, LabelError, OrderError
from fastfill.evaluate import backfill_curves
from fastfill.features import Distance
from fastfill.order import Order
from fastfill.scale import GalleryColumns, ParquetFolder, curves_over_pieces, open_engine
from fastfill.scale.operations import vector_array

ROWS, QUERIES, DIM = 240, 30, 4
METRICS = "cmc@1,map,ndcg@5"


@pytest.fixture
def table() -> pa.Table:
    """Aligned and new vectors, ranks and labels; many distances are ties."""
    rng = np.random.default_rng(3)
    new = rng.integers(-3, 4, size=(ROWS, DIM)).astype(np.float32) + np.float32(0.5)
    aligned = new + rng.integers(-1, 2, size=new.shape).astype(np.float32)
    columns = {"vector_aligned": vector_array(aligned), "vector_new": vector_array(new)}
    ranks, labels = rng.permutation(ROWS), rng.integers(0, 9, size=ROWS)
    return pa.table({**columns, "vector_rank": ranks, "label": labels})


@pytest.fixture
def gallery(tmp_path: Path, table: pa.Table) -> GalleryColumns:
    """The same in two files of several row groups."""
    for number, start in enumerate((0, 100)):
        part = table.slice(start, 100 if number == 0 else None)
        (tmp_path / "gallery").mkdir(exist_ok=True)
        pq.write_table(part, tmp_path / f"gallery/{number}.parquet", row_group_size=40)
    return GalleryColumns(ParquetFolder(str(tmp_path / "gallery")))


@pytest.mark.parametrize("distance", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_curve_is_that_of_the_gallery_in_memory(
    gallery: GalleryColumns, table: pa.Table, distance: Distance, workers: int
) -> None:
    """To the last bit, with queries whose label no item has."""
    rng = np.random.default_rng(4)
    queries = rng.normal(size=(QUERIES, DIM)).astype(np.float32)
    labels = rng.integers(5, 12, size=QUERIES)
    engine = open_engine("local", workers=workers)
    curves = curves_over_pieces(
        gallery, queries, labels, metrics=METRICS, points=5, distance=distance, engine=engine
    )
    before, after = (np.stack(table[f"vector_{part}"].to_numpy()) for part in ("aligned", "new"))
    order = Order(np.argsort(table["vector_rank"].to_numpy()))
    aligned, new_labels = Aligned(before, np.zeros(ROWS, dtype="f")), table["label"].to_numpy()
    expected = backfill_curves(
        aligned, after, new_labels, policy=order, queries=queries, query_labels=labels,
        metrics=METRICS, points=5, distance=distance,
    )  # fmt: skip
    assert curves.keys() == expected.keys()
    for name, curve in curves.items():
        assert np.array_equal(curve.values, expected[name].values), name
        assert curve.excluded == expected[name].excluded > 0


def test_what_cannot_be_counted_is_named(gallery: GalleryColumns, tmp_path: Path) -> None:
    """Ranks that are not an order, labels of another kind, and agreement."""
    queries = np.ones((2, DIM), dtype=np.float32)
    with pytest.raises(InputError, match="agreement@5 asks for the new neighbours"):
        curves_over_pieces(gallery, queries, np.array([1, 2]), metrics="agreement@5")
    with pytest.raises(LabelError, match=r"0\.parquet, row group 0: labels are int64"):
        curves_over_pieces(gallery, queries, np.array(["a", "b"]))
    (tmp_path / "gallery/1.parquet").unlink()
    with pytest.raises(OrderError, match=r"rows came or went\. Order again"):
        curves_over_pieces(gallery, queries, np.array([1, 2]))
