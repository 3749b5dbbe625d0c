"""A gallery of 300 items in pieces: a folder of Parquet files, and a Lance table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scale_world import gallery_table

from fastfill.align import Alignment
from fastfill.features import Features, Matrix, Pairs
from fastfill.scale import LanceTable

ROWS, OLD, NEW = 300, 6, 5


@pytest.fixture(scope="session")
def alignment() -> Alignment:
    """A ridge map from 6 to 5 dimensions, whose error differs from item to item."""
    rng = np.random.default_rng(1)
    old = rng.normal(size=(200, OLD)).astype(np.float32)
    new = old[:, :NEW] + np.abs(old[:, :1]) * rng.normal(size=(200, NEW)).astype(np.float32)
    return Alignment.fit(Pairs(Features(old), Features(new)), method="ridge")


@pytest.fixture(scope="session")
def vectors() -> Matrix:
    """Old vectors of the gallery."""
    return np.random.default_rng(2).normal(size=(ROWS, OLD)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, vectors: Matrix) -> Path:
    """Three files of 120, 120 and 60 rows, in row groups of 50: eight pieces."""
    place = tmp_path / "gallery"
    (place / "more").mkdir(parents=True)
    table = gallery_table(vectors)
    for name, start, rows in (("a", 0, 120), ("b", 120, 120), ("more/c", 240, 60)):
        part = table.slice(start, rows)
        pq.write_table(part, place / f"{name}.parquet", row_group_size=50)
    return place


@pytest.fixture
def lance_table(tmp_path: Path, vectors: Matrix) -> LanceTable:
    """Six fragments of 50 rows."""
    lance = pytest.importorskip("lance")
    place = tmp_path / "db"
    lance.write_dataset(gallery_table(vectors), str(place / "photos.lance"), max_rows_per_file=50)
    return LanceTable.from_url(f"lance://{place}#photos.vector")
