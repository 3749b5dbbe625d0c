"""Pairs in two folders, in any order and cut in any way, are matched by id."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastfill.align import Alignment
from fastfill.errors import IdError, InputError, ShapeError
from fastfill.features import Features, Pairs
from fastfill.scale import PairColumns, ParquetFolder, fit_over_pieces, matched_pairs
from fastfill.scale import matching as matching_module
from fastfill.scale.engines.local import LocalEngine
from fastfill.scale.operations import vector_array

HERE = LocalEngine(1)
ROWS = 300


def write(place: Path, ids: list[object], vectors: np.ndarray, rows: int) -> str:
    """A folder of one file in row groups."""
    place.mkdir()
    table = pa.table({"id": ids, "vector": vector_array(vectors)})
    pq.write_table(table, place / "a.parquet", row_group_size=rows)
    return str(place)


@pytest.mark.parametrize("kind", [int, str])
def test_two_folders_are_matched_by_id(
    tmp_path: Path, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every item of both is a pair once, and the map is that of one folder with both columns."""
    monkeypatch.setattr(matching_module, "PART_ROWS", 50)
    rng = np.random.default_rng(0)
    old = rng.normal(size=(ROWS, 4)).astype(np.float32)
    new = (old[:, :3] + 0.1 * rng.normal(size=(ROWS, 3))).astype(np.float32)
    mixed = rng.permutation(ROWS)[: ROWS - 40]
    first = write(tmp_path / "old", [kind(i) for i in range(ROWS)], old, 70)
    second = write(tmp_path / "new", [kind(i) for i in mixed], new[mixed], 33)
    pairs = matched_pairs(first, second, str(tmp_path / "work"), engine=HERE)
    pieces = pairs.source.pieces()
    blocks = [block for piece in pieces for block in pairs.blocks(piece)]
    found = {tuple(a): tuple(b) for block in blocks for a, b in zip(*block[:2], strict=True)}
    assert found == {tuple(old[i]): tuple(new[i]) for i in mixed}
    assert sum(piece.rows for piece in pieces) == len(mixed)
    assert len(list((tmp_path / "work/pairs").iterdir())) == 6
    both = Pairs(Features(old[mixed]), Features(new[mixed]))
    expected = Alignment.fit(both, method="procrustes")
    learned = fit_over_pieces(pairs, method="procrustes")
    assert np.allclose(learned(old).h, expected(old).h, atol=1e-4)
    assert learned.facts["pairs"] == len(mixed)


def test_an_id_that_is_there_twice_is_named(tmp_path: Path) -> None:
    """With its folder."""
    vectors = np.ones((3, 2), dtype=np.float32)
    first = write(tmp_path / "old", ["a", "b", "c"], vectors, 3)
    second = write(tmp_path / "new", ["a", "b", "b"], vectors, 3)
    with pytest.raises(IdError, match=r"new: the ids b are there more than once"):
        matched_pairs(first, second, str(tmp_path / "work"), engine=HERE)


def test_rows_without_a_new_vector_are_no_pairs(tmp_path: Path) -> None:
    """Of a backfill that has begun, the embedded rows teach; none at all is an error."""
    rng = np.random.default_rng(1)
    old = rng.normal(size=(ROWS, 4)).astype(np.float32)
    missing = rng.random(ROWS) < 0.7
    missing[100:160] = True  # a whole row group
    new = vector_array(old[:, :3] * 2, missing)
    table = pa.table({"vector": vector_array(old), "vector_new": new})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    pairs = PairColumns(ParquetFolder(str(tmp_path)), "vector", "vector_new")
    for method in ("ridge", "auto", "kernel"):
        learned = fit_over_pieces(pairs, method=method, sample=60)
        errors = ((learned(old).h - old[:, :3] * 2) ** 2).sum(axis=1)
        assert errors.mean() < 0.1 * (old[:, :3] * 2).var(axis=0).sum(), method
    assert fit_over_pieces(pairs, sample=60).facts["pairs"] == (~missing).sum()
    none = table.set_column(1, "vector_new", vector_array(old, np.ones(ROWS, dtype=bool)))
    pq.write_table(none, tmp_path / "a.parquet")
    with pytest.raises(ShapeError, match="0 pairs are too few"):
        fit_over_pieces(pairs)
    with pytest.raises(InputError, match="Unknown method 'rigde'"):
        fit_over_pieces(pairs, method="rigde")
