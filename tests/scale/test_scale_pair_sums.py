"""Closed forms over pieces are those of all pairs in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastfill.align import Alignment
from fastfill.align.linear import fit_procrustes, fit_ridge
from fastfill.align.scaling import Scaling
from fastfill.errors import InputError, ShapeError
from fastfill.features import Distance, Features, Matrix, Pairs
from fastfill.scale import PairColumns, ParquetFolder, fit_over_pieces
from fastfill.scale.engines.local import LocalEngine
from fastfill.scale.operations import vector_array
from fastfill.scale.pair_sums import SumWork, fit_procrustes_over_pieces, fit_ridge_over_pieces

HERE = LocalEngine(1)


@pytest.fixture(scope="module")
def pairs() -> tuple[Matrix, Matrix]:
    """Noisy pairs whose means are far from zero."""
    rng = np.random.default_rng(3)
    old = (5 + rng.normal(size=(400, 8))).astype(np.float32)
    new = old @ rng.normal(size=(8, 6)) + rng.normal(size=(400, 6))
    return old, new.astype(np.float32)


@pytest.fixture
def columns(tmp_path: Path, pairs: tuple[Matrix, Matrix]) -> PairColumns:
    """The pairs in two files and seven pieces."""
    old, new = map(vector_array, pairs)
    table = pa.table({"old": old, "new": new})
    for name, start in (("a", 0), ("b", 200)):
        pq.write_table(table.slice(start, 200), tmp_path / f"{name}.parquet", row_group_size=60)
    return PairColumns(ParquetFolder(str(tmp_path)))


@pytest.mark.parametrize("distance", ["l2", "cosine"])
def test_moments_add_up_to_the_fit_in_memory(
    columns: PairColumns, pairs: tuple[Matrix, Matrix], distance: Distance
) -> None:
    """Weights, bias and the chosen penalty are those of `fit_ridge` and `fit_procrustes`."""
    old, new = pairs
    scaling = Scaling.of(Pairs(Features(old), Features(new)), distance)
    work, pieces = SumWork(columns, scaling), columns.source.pieces()
    x, y = scaling.inputs(old, None), scaling.targets(new)
    assert len(pieces) == 8
    for over_pieces, in_memory in (
        (fit_ridge_over_pieces, fit_ridge),
        (fit_procrustes_over_pieces, fit_procrustes),
    ):
        (fitted, rows), expected = over_pieces(work, pieces, HERE), in_memory(x, y)
        assert rows == 400
        assert np.allclose(fitted.weight, expected.weight, atol=1e-5)
        assert np.allclose(fitted.bias, expected.bias, atol=1e-4)
        assert fitted.facts == pytest.approx(expected.facts)


def test_an_alignment_of_all_pairs_has_the_error_of_a_sample(
    columns: PairColumns, pairs: tuple[Matrix, Matrix]
) -> None:
    """Its estimates are those of the fit in memory; its facts tell how many pairs there were."""
    old, new = pairs
    fitted = fit_over_pieces(columns, sample=150)
    whole = Alignment.fit(Pairs(Features(old), Features(new)), method="ridge")
    assert np.abs(fitted(old).h - whole(old).h).max() < 0.05 * np.abs(new).max()
    assert fitted.facts["pairs"] == 400
    assert 100 < fitted.facts["sampled_pairs"] < 200
    assert np.isfinite(fitted(old).variance).all()
    again = Alignment.from_bytes(fitted.to_bytes())
    assert np.array_equal(again(old).vectors, fitted(old).vectors)


def test_what_cannot_be_learned_is_refused(columns: PairColumns, tmp_path: Path) -> None:
    """A method that does not exist, and too few pairs."""
    with pytest.raises(InputError, match="Unknown method 'kernle'"):
        fit_over_pieces(columns, method="kernle")
    (tmp_path / "few").mkdir()
    table = pq.read_table(tmp_path / "a.parquet").slice(0, 5)
    pq.write_table(table, tmp_path / "few/few.parquet")
    with pytest.raises(ShapeError, match="5 pairs are too few"):
        fit_over_pieces(PairColumns(ParquetFolder(str(tmp_path / "few"))))
