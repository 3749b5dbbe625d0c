"""Embed the rows of a piece with an encoder that each process opens once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.errors import EncoderError, FastFillError
from fastfill.features import Matrix, as_matrix
from fastfill.scale.operations import tagged, vector_array
from fastfill.scale.pieces import Piece, digest

Encode = Callable[[Sequence[Any]], ArrayLike]


class RankRange(NamedTuple):
    """Rows that an order puts from one rank on and before another one."""

    column: str  # of the ranks
    first: int
    end: int

    def chosen(self, batch: Any) -> NDArray[np.bool_]:
        """Which rows of a record batch these are; those without a rank are not."""
        ranks = batch.column(self.column).fill_null(-1).to_numpy(zero_copy_only=False)
        return np.asarray((ranks >= self.first) & (ranks < self.end))


@dataclass(frozen=True)
class EmbedRows:
    """Adds a column of what an encoder makes of the inputs; null for rows that are not wanted.

    `open_encoder` is called once in each process; `model` names what it opens.
    """

    open_encoder: Callable[[], Encode]
    model: str
    column: str  # the inputs
    output: str
    ranks: RankRange | None = None  # None: all rows

    @property
    def reads(self) -> list[str]:
        """The inputs, and the ranks that choose among them."""
        return [self.column] if self.ranks is None else [self.column, self.ranks.column]

    @property
    def job(self) -> str:
        """With the model and the ranks: what was paid for is never replaced."""
        which = "all rows" if self.ranks is None else f"ranks {self.ranks[1]} to {self.ranks[2]}"
        return f"backfill of {self.column} by {self.model}, {which}"

    @property
    def fingerprint(self) -> str:
        """Of the model, of the columns and of the chosen rows."""
        return digest("embed", self.model, self.column, self.output, *(self.ranks or ()))

    @property
    def tags(self) -> dict[str, str]:
        """The encoder, its inputs and the chosen rows."""
        return {self.output: self.fingerprint}

    def __call__(self, batch: Any, piece: Piece, first_row: int) -> Any:
        """The new vectors."""
        inputs = batch.column(self.column)
        if self.ranks is None:
            made = vector_array(self._encoded(inputs.to_pylist(), piece, first_row))
        else:
            made = self._some(inputs, self.ranks.chosen(batch), piece, first_row)
        return tagged([made], self.tags)

    def _some(self, inputs: Any, chosen: NDArray[np.bool_], piece: Piece, first_row: int) -> Any:
        """Of the chosen rows; the others have none, but of the same dimensions."""
        items = inputs.filter(chosen).to_pylist()
        if not items and self.model not in _dimensions:  # one item, to know them
            self._encoded(inputs.slice(0, 1).to_pylist(), piece, first_row)
        dim = _dimensions.get(self.model, 0)
        vectors = self._encoded(items, piece, first_row) if items else np.zeros((0, dim))
        every = np.zeros((len(inputs), vectors.shape[1]), dtype=np.float32)
        every[chosen] = vectors
        return vector_array(every, ~chosen)

    def _encoded(self, items: list[Any], piece: Piece, first_row: int) -> Matrix:
        where = f"from row {first_row:,} of {piece.name} on"
        try:
            vectors = as_matrix(_opened(self)(items), f"{self.model} on {piece.name}")
        except FastFillError:
            raise
        except Exception as error:
            text = next(iter(str(error).splitlines()), type(error).__name__)
            raise EncoderError(
                f"{self.model}: failed on {len(items):,} items {where} ({text}). Mend the items or "
                "the encoder, and run again: finished pieces are kept."
            ) from error
        if len(vectors) != len(items):
            raise EncoderError(
                f"{self.model}: made {len(vectors):,} vectors of {len(items):,} items, {where}. An "
                "encoder returns one for each."
            )
        _dimensions[self.model] = vectors.shape[1]
        return vectors


_encoders: dict[str, Encode] = {}  # by model: one is opened once in each process
_dimensions: dict[str, int] = {}  # of what they make


def _opened(operation: EmbedRows) -> Encode:
    if operation.model not in _encoders:
        _encoders[operation.model] = operation.open_encoder()
    return _encoders[operation.model]
