"""The benchmark of learning over pieces compares what it says, on a toy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import scale_learning as bench
from fastfill.scale.engines.local import LocalEngine

ROWS, ITEMS = 2_000, 400


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without processes."""
    monkeypatch.setattr(bench, "engine", lambda: LocalEngine(1))


def test_maps_are_compared_with_those_in_memory(tmp_path: Path) -> None:
    """Over pieces and over two folders the map is the same, that of other pairs is another."""
    bench.fill_pairs(tmp_path, ROWS)
    some = ROWS // 5
    assert pq.read_table(tmp_path / f"pairs-{some}").num_rows == some
    bench.fill_halves(tmp_path, some, 200)
    assert pq.read_table(tmp_path / "new")["id"].to_pylist() != list(range(some))
    bench.fit_matched(tmp_path, str(some))
    bench.fit_pieces(tmp_path, str(some))
    bench.fit_memory(tmp_path, str(ROWS))
    assert bench.weights_off(tmp_path, some) < bench.ROUNDING
    assert bench.maps_off(tmp_path, f"matched-{some}", f"pieces-{some}") < bench.ROUNDING
    assert bench.maps_off(tmp_path, f"memory-{ROWS}", f"pieces-{some}") > 0.01


def test_curves_are_compared_with_those_in_memory(tmp_path: Path) -> None:
    """They rise, and are equal."""
    bench.fill_gallery(tmp_path, ITEMS)
    bench.curve_pieces(tmp_path, str(ITEMS))
    bench.curve_memory(tmp_path, str(ITEMS))
    pieces, memory = (np.load(tmp_path / f"{kind}.npy") for kind in ("pieces", "memory"))
    assert np.array_equal(pieces, memory)
    assert pieces.shape == (2, bench.POINTS)
    assert (pieces[:, -1] > pieces[:, 0]).all()
