"""Maps in closed form from more pairs than one machine holds: their moments add up over pieces.

A linear map depends on its pairs by sums alone, and so do the leave-one-out errors from which the
penalty of ridge is chosen, once the map is known: two passes over the pieces for `ridge`, one for
`procrustes`. What is learned beside the map (its scaling, the model of its error, the penalty, the
reference pairs) is learned from a random sample of the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.align import MIN_PAIRS, Alignment
from fastfill.align.item_folds import RidgePath, Sums
from fastfill.align.linear import LAMBDAS, LinearMap, procrustes_map
from fastfill.align.scaling import Scaling
from fastfill.align.task import Look
from fastfill.errors import InputError, ShapeError, unknown_choice
from fastfill.features import Distance, Features, Matrix, Pairs, check_finite
from fastfill.features.parquet_files import list_matrix
from fastfill.scale.engines.local import LocalEngine
from fastfill.scale.operations import random_scores
from fastfill.scale.pieces import Engine, Piece, PieceSource

SAMPLE = 5_000  # pairs from which the error of the map is learned
METHODS = ("ridge", "procrustes")


@dataclass(frozen=True)
class PairColumns:
    """Where the vectors of both models are, in a data set of pieces."""

    source: PieceSource
    old: str = "old"
    new: str = "new"

    def blocks(self, piece: Piece) -> Iterator[tuple[Matrix, Matrix]]:
        """Old and new vectors of some rows at a time."""
        first = 0
        for batch in self.source.batches(piece, [self.old, self.new]):
            yield (
                self._matrix(batch, self.old, piece, first),
                self._matrix(batch, self.new, piece, first),
            )
            first += batch.num_rows

    def _matrix(self, batch: Any, column: str, piece: Piece, first: int) -> Matrix:
        lists = list_matrix(batch.column(column), piece.name, first, column_name=column)
        matrix = np.ascontiguousarray(lists, dtype=np.float32)
        check_finite(matrix, piece.name, first)
        return matrix


@dataclass(frozen=True)
class SumWork:
    """The sums of a piece, in the units of learning."""

    pairs: PairColumns
    scaling: Scaling

    def looks(self, piece: Piece) -> Iterator[Look]:
        """Scaled inputs and targets."""
        for old, new in self.pairs.blocks(piece):
            yield self.scaling.inputs(old, None, piece.name), self.scaling.targets(new)

    def __call__(self, piece: Piece) -> Sums:
        """Of all its rows."""
        return reduce(add, map(Sums.of, self.looks(piece)))


@dataclass(frozen=True, eq=False)
class LeftOutWork:
    """The leave-one-out errors of a piece for every penalty."""

    sums: SumWork
    path: RidgePath

    def __call__(self, piece: Piece) -> NDArray[np.float64]:
        """Summed over its rows, (λ,)."""
        return sum(
            (self.path.left_out_errors(look) for look in self.sums.looks(piece)),
            np.zeros(len(LAMBDAS)),
        )


@dataclass(frozen=True)
class SampleWork:
    """Each row with the same probability, by the seed, however the rows are cut in pieces."""

    pairs: PairColumns
    share: float
    seed: int

    def __call__(self, piece: Piece) -> list[tuple[Matrix, Matrix]]:
        """The sampled rows of a piece."""
        taken, first = [], piece.first_row
        for old, new in self.pairs.blocks(piece):
            rows = random_scores(self.seed, first, len(old)) < self.share
            taken.append((old[rows], new[rows]))
            first += len(old)
        return taken


def fit_ridge_over_pieces(work: SumWork, pieces: Sequence[Piece], engine: Engine) -> LinearMap:
    """That of `fit_ridge` on all rows together, without its residuals."""
    path = RidgePath(reduce(add, engine.map(work, pieces)))
    errors: NDArray[np.float64] = reduce(add, engine.map(LeftOutWork(work, path), pieces))
    lam = float(LAMBDAS[int(np.argmin(errors))])
    fitted = path.map(lam)
    return LinearMap(fitted.weight, fitted.bias, fitted.residuals, {"lambda": lam})


def fit_procrustes_over_pieces(work: SumWork, pieces: Sequence[Piece], engine: Engine) -> LinearMap:
    """That of `fit_procrustes` on all rows together, without its residuals."""
    sums = reduce(add, engine.map(work, pieces))
    return procrustes_map(*sums.centred, *sums.means)


def fit_over_pieces(
    pairs: PairColumns,
    *,
    method: str = "ridge",
    distance: Distance = "l2",
    seed: int = 0,
    models: tuple[str, str] = ("old", "new"),
    sample: int = SAMPLE,
    engine: Engine | None = None,
) -> Alignment:
    """An alignment whose map is that of all pairs, and whose σ² is that of a sample of them.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> from fastfill.scale import ParquetFolder
    >>> old = np.random.default_rng(0).normal(size=(200, 3)).astype("float32")
    >>> folder = tempfile.mkdtemp()
    >>> table = pa.table({"old": old.tolist(), "new": (old * 2).tolist()})
    >>> pq.write_table(table, f"{folder}/pairs.parquet", row_group_size=50)
    >>> fit_over_pieces(PairColumns(ParquetFolder(folder)))
    Alignment(ridge, 3→3, l2, 200 pairs)
    """
    if method not in METHODS:
        raise InputError(unknown_choice("closed form", method, METHODS))
    engine = engine or LocalEngine(1)
    pieces = pairs.source.pieces()
    rows = sum(piece.rows for piece in pieces)
    if rows < MIN_PAIRS:
        raise ShapeError(f"{pairs.source.name}: {rows} pairs are too few to learn from.")
    taken = [
        part
        for parts in engine.map(SampleWork(pairs, sample / rows, seed), pieces)
        for part in parts
    ]
    old, new = (np.concatenate(side) for side in zip(*taken, strict=True))
    like = Alignment.fit(
        Pairs(Features(old, name=pairs.old), Features(new, name=pairs.new)),
        method=method, distance=distance, seed=seed, models=models,
    )  # fmt: skip
    work = SumWork(pairs, like.scaling)
    fit = fit_ridge_over_pieces if method == "ridge" else fit_procrustes_over_pieces
    return with_map(like, fit(work, pieces, engine), rows)


def with_map(like: Alignment, fitted: LinearMap, pairs: int) -> Alignment:
    """The same alignment with another linear map, learned from so many pairs."""
    arrays = like.arrays | {"out.weight": fitted.weight, "out.bias": fitted.bias}
    facts = {**like.facts, "pairs": pairs, "training": fitted.facts,
             "sampled_pairs": like.facts["pairs"]}  # fmt: skip
    return Alignment(
        like.method, arrays, like.scaling, like.calibration, head=like.head,
        penalty=like.penalty, reference=like.reference, pair_distance=like.pair_distance,
        facts=facts,
    )  # fmt: skip
