"""The order of a whole data set by two passes over its pieces: scores, then ranks.

The first pass aligns and scores, or takes the errors that `transform` has written; what it leaves
is eight bytes a row and a histogram for each piece. The histograms together say where each piece's
rows come (see `histogram`), and the second pass gives every row its rank without looking at a
vector. `mixed` takes its turns between them.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Ints
from fastfill.order import mixed_scores
from fastfill.scale.folders import Folder, read_at_once
from fastfill.scale.histogram import ScoreHistogram, first_ranks, ranks_in_piece
from fastfill.scale.operations import BY_VARIANCE, ScoreRows, random_scores, tagged
from fastfill.scale.pieces import Engine, Piece, PieceWork, Tick, digest, finish_pieces
from fastfill.scale.sources import VectorSource

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class ScoreWork:
    """Scores of every row of a piece, kept with their histogram."""

    source: VectorSource
    operation: ScoreRows
    folder: Folder

    def file_name(self, piece: Piece) -> str:
        """Random scores depend on where a piece begins, others on the piece alone."""
        place = piece.first_row if self.operation.policy == "random" else ""
        return f"score-{digest(piece.identity, self.operation.fingerprint, place)}.npz"

    def __call__(self, piece: Piece) -> None:
        """Score one piece, and align it first where its σ² has not been written yet."""
        operation = self.operation
        written = operation.policy in BY_VARIANCE and self.source.has_variance(
            piece, operation.spec
        )
        column = operation.spec.variance_column if written else operation.spec.column
        parts, done = [], 0
        for batch in self.source.batches(piece, [column]):
            parts.append(self.operation.scores(batch, piece, done))
            done += batch.num_rows
        save_scores(self.folder, self.file_name(piece), np.concatenate(parts))


@dataclass(frozen=True)
class RankPlan:
    """Where the rows of each piece come in the order of all rows, by the scores of some work."""

    scored: PieceWork
    key: str  # of the pieces and their scores: with others the ranks are others
    rows: int

    @property
    def file_name(self) -> str:
        """The file that holds the first rank in each bucket of each piece."""
        return f"plan-{self.key}.npz"

    @classmethod
    def make(cls, scored: PieceWork, pieces: Sequence[Piece]) -> RankPlan:
        """Read the histograms of finished pieces, and write the plan."""
        names = [scored.file_name(piece) for piece in pieces]
        plan = cls(scored, digest(*names), sum(piece.rows for piece in pieces))
        if plan.file_name not in scored.folder.names():
            counted = read_at_once(partial(load_histogram, scored.folder), names)
            ranks = first_ranks(counted)
            arrays = {str(piece.number): part for piece, part in zip(pieces, ranks, strict=True)}
            _save(scored.folder, plan.file_name, arrays)
        return plan

    def ranks(self, piece: Piece) -> tuple[Ints, Scores]:
        """The rank and the score of each row of a piece."""
        folder = self.scored.folder
        with folder.open(self.file_name) as file, np.load(file) as arrays:
            first = arrays[str(piece.number)]
        with folder.open(self.scored.file_name(piece)) as file, np.load(file) as arrays:
            scores = arrays["scores"]
        return ranks_in_piece(scores, first), scores


@dataclass(frozen=True)
class TurnWork:
    """The scores of `mixed`, from the ranks by σ² and random numbers."""

    plan: RankPlan
    seed: int
    folder: Folder

    def file_name(self, piece: Piece) -> str:
        """Depends on all pieces, as the ranks do."""
        return f"turn-{digest(self.plan.key, piece.number, self.seed)}.npz"

    def __call__(self, piece: Piece) -> None:
        """An item's turn is the earlier of its two turns."""
        ranks, _ = self.plan.ranks(piece)
        chance = random_scores(self.seed, piece.first_row, piece.rows)
        turns = mixed_scores(ranks / self.plan.rows, chance)
        save_scores(self.folder, self.file_name(piece), turns)


@dataclass(frozen=True)
class RankRows:
    """Adds `COLUMN_rank`, 0 for the first to be backfilled, and `COLUMN_score`."""

    plan: RankPlan
    column: str

    @property
    def reads(self) -> list[str]:
        """Nothing: a row's rank is found by its place in its piece."""
        return []

    @property
    def job(self) -> str:
        """Whatever the policy: another one orders again."""
        return order_job(self.column)

    @property
    def fingerprint(self) -> str:
        """Of the ranks of all pieces."""
        return digest("rank", self.plan.key, self.column)

    @property
    def tags(self) -> dict[str, str]:
        """The ranks of all pieces: there is no order of some."""
        return dict.fromkeys(rank_columns(self.column), self.fingerprint)

    def __call__(self, batch: Any, piece: Piece, first_row: int) -> Any:
        """Ranks and scores."""
        import pyarrow as pa

        ranks, scores = _ranks(self.plan, piece)
        rows = slice(first_row, first_row + batch.num_rows)
        return tagged([pa.array(ranks[rows]), pa.array(scores[rows])], self.tags)


def order_job(column: str) -> str:
    """What an order does, for people.

    >>> order_job("vector")
    'order by vector'
    """
    return f"order by {column}"


def rank_columns(column: str) -> tuple[str, str]:
    """Those that an order adds.

    >>> rank_columns("vector")
    ('vector_rank', 'vector_score')
    """
    return f"{column}_rank", f"{column}_score"


@lru_cache(maxsize=1)
def _ranks(plan: RankPlan, piece: Piece) -> tuple[Ints, Scores]:
    """Read once for all batches of a piece."""
    return plan.ranks(piece)


def plan_order(
    source: VectorSource,
    pieces: Sequence[Piece],
    operation: ScoreRows,
    folder: Folder,
    engine: Engine,
    tick: Tick | None = None,
) -> RankPlan:
    """Score the pieces that are not scored yet, and say where each of them comes."""
    scored = ScoreWork(source, operation, folder)
    finish_pieces(scored, pieces, engine, tick)
    plan = RankPlan.make(scored, pieces)
    if operation.policy != "mixed":
        return plan
    turns = TurnWork(plan, operation.seed, folder)
    finish_pieces(turns, pieces, engine)
    return RankPlan.make(turns, pieces)


def save_scores(folder: Folder, name: str, scores: Scores) -> None:
    """The scores of a piece with their histogram, which is read without them."""
    counted = ScoreHistogram.of(scores)
    _save(folder, name, {"scores": scores, "buckets": counted.buckets, "counts": counted.counts})


def load_histogram(folder: Folder, name: str) -> ScoreHistogram:
    """The histogram of a piece that was scored."""
    with folder.open(name) as file, np.load(file) as arrays:
        return ScoreHistogram(arrays["buckets"], arrays["counts"])


def _save(folder: Folder, name: str, arrays: dict[str, NDArray[Any]]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    folder.write(name, buffer.getbuffer())
