"""Maps in closed form from more pairs than one machine holds: their moments add up over pieces.

A linear map depends on its pairs by sums alone, and so do the leave-one-out errors from which the
penalty of ridge is chosen, once the map is known: two passes over the pieces for `ridge`, one for
`procrustes`. What is learned beside the map (its scaling, the model of its error, the penalty, the
reference pairs) is learned from a random sample of the pairs, and so are maps of other methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfill.align import MIN_PAIRS, Alignment
from fastfill.align.item_folds import RidgePath, Sums
from fastfill.align.linear import LAMBDAS, LinearMap, procrustes_map
from fastfill.align.methods import METHOD_NAMES
from fastfill.align.scaling import Scaling
from fastfill.align.task import Look
from fastfill.errors import InputError, ShapeError, unknown_choice
from fastfill.features import Distance, Features, Ints, Matrix, Pairs, check_finite
from fastfill.features.parquet_files import list_matrix
from fastfill.scale.engines.local import LocalEngine
from fastfill.scale.operations import random_scores
from fastfill.scale.pieces import Engine, Piece, PieceSource

SAMPLE = 5_000  # pairs from which the error of a closed form is learned
LARGE_SAMPLE = 50_000  # pairs from which the best method is chosen, and networks are learned
CLOSED = ("ridge", "procrustes")


class PairBlock(NamedTuple):
    """Some pairs, and their places in the data set."""

    old: Matrix  # (n, d_old)
    new: Matrix  # (n, d_new)
    places: Ints  # (n,)


@dataclass(frozen=True)
class PairColumns:
    """Where the vectors of both models are, in a data set of pieces."""

    source: PieceSource
    old: str = "old"
    new: str = "new"

    def blocks(self, piece: Piece) -> Iterator[PairBlock]:
        """Pairs of some rows at a time; rows that lack a vector are none."""
        import pyarrow.compute as pc

        first = 0
        for batch in self.source.batches(piece, [self.old, self.new]):
            both = pc.and_(batch.column(self.old).is_valid(), batch.column(self.new).is_valid())
            there = np.flatnonzero(both.to_numpy(zero_copy_only=False))
            kept = batch if len(there) == batch.num_rows else batch.filter(both)
            if len(there):
                old, new = (self._matrix(kept, c, piece, first) for c in (self.old, self.new))
                yield PairBlock(old, new, piece.first_row + first + there)
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
        for old, new, _ in self.pairs.blocks(piece):
            yield self.scaling.inputs(old, None, piece.name), self.scaling.targets(new)

    def __call__(self, piece: Piece) -> Sums | None:
        """Of all its pairs; None where it has none."""
        return _added(map(Sums.of, self.looks(piece)))


def _added(sums: Iterable[Sums | None]) -> Sums | None:
    there = [one for one in sums if one is not None]
    return reduce(add, there) if there else None


def total_sums(work: SumWork, pieces: Sequence[Piece], engine: Engine) -> Sums:
    """Of all pieces, added up in their order."""
    total = None
    for one in engine.map(work, pieces):
        total = _added([total, one])
    if total is None:
        raise ShapeError(f"{work.pairs.source.name}: no row has vectors of both models.")
    return total


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
        taken = []
        for old, new, places in self.pairs.blocks(piece):
            first = int(places[0])
            scores = random_scores(self.seed, first, int(places[-1]) - first + 1)
            rows = scores[places - first] < self.share
            taken.append((old[rows], new[rows]))
        return taken


def sampled_pairs(
    pairs: PairColumns, pieces: Sequence[Piece], wanted: int, seed: int, engine: Engine
) -> Pairs:
    """About so many random pairs; where many rows are none, rows are looked at more than once."""
    share = wanted / max(1, sum(piece.rows for piece in pieces))
    while True:
        work = SampleWork(pairs, share, seed)
        taken = [part for parts in engine.map(work, pieces) for part in parts]
        rows = sum(len(old) for old, _ in taken)
        if share >= 1 or rows >= wanted / 2:
            break
        share = min(1.0, share * 1.2 * wanted / max(rows, wanted / 20))
    if rows < MIN_PAIRS:
        raise ShapeError(f"{pairs.source.name}: {rows} pairs are too few to learn from.")
    old, new = (np.concatenate(side) for side in zip(*taken, strict=True))
    return Pairs(Features(old, name=pairs.old), Features(new, name=pairs.new))


def fit_ridge_over_pieces(
    work: SumWork, pieces: Sequence[Piece], engine: Engine
) -> tuple[LinearMap, int]:
    """That of `fit_ridge` on all pairs together, without its residuals, and their number."""
    sums = total_sums(work, pieces, engine)
    path = RidgePath(sums)
    errors: NDArray[np.float64] = reduce(add, engine.map(LeftOutWork(work, path), pieces))
    lam = float(LAMBDAS[int(np.argmin(errors))])
    fitted = path.map(lam)
    return LinearMap(fitted.weight, fitted.bias, fitted.residuals, {"lambda": lam}), sums.rows


def fit_procrustes_over_pieces(
    work: SumWork, pieces: Sequence[Piece], engine: Engine
) -> tuple[LinearMap, int]:
    """That of `fit_procrustes` on all pairs together, without its residuals, and their number."""
    sums = total_sums(work, pieces, engine)
    return procrustes_map(*sums.centred, *sums.means), sums.rows


def fit_over_pieces(
    pairs: PairColumns,
    *,
    method: str = "ridge",
    distance: Distance = "l2",
    seed: int = 0,
    models: tuple[str, str] = ("old", "new"),
    sample: int | None = None,
    engine: Engine | None = None,
) -> Alignment:
    """An alignment from pairs in pieces: rows that have a vector of both models.

    The map of `ridge` and `procrustes` is that of all pairs, and its σ² that of a sample of them.
    Other methods learn from a sample, and `auto` chooses on one; memory is that of the sample and
    of a piece, however many pairs there are.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> from fastfill.scale import ParquetFolder
    >>> old = np.random.default_rng(0).normal(size=(200, 3)).astype("float32")
    >>> folder = tempfile.mkdtemp()
    >>> table = pa.table({"old": old.tolist(), "new": (old * 2).tolist()})
    >>> pq.write_table(table, f"{folder}/pairs.parquet", row_group_size=50)
    >>> fit_over_pieces(PairColumns(ParquetFolder(folder)))
    Alignment(ridge, 3→3, l2, 200 pairs)
    """
    if method not in METHOD_NAMES:
        raise InputError(unknown_choice("method", method, METHOD_NAMES))
    engine, pieces = engine or LocalEngine(1), pairs.source.pieces()
    wanted = sample or (SAMPLE if method in CLOSED else LARGE_SAMPLE)
    like = Alignment.fit(
        sampled_pairs(pairs, pieces, wanted, seed, engine), method=method, distance=distance,
        seed=seed, models=models,
    )  # fmt: skip
    if like.method not in CLOSED:
        return like
    work = SumWork(pairs, like.scaling)
    fit = fit_ridge_over_pieces if like.method == "ridge" else fit_procrustes_over_pieces
    return with_map(like, *fit(work, pieces, engine))


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
