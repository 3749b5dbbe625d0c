"""What an order asks of a data set: vectors, and the errors that `transform` has written."""

from __future__ import annotations

from typing import Protocol

from fastfill.scale.operations import AlignmentSpec
from fastfill.scale.pieces import Piece, PieceSource


class VectorSource(PieceSource, Protocol):
    """A data set of old vectors, some pieces of which may be aligned already."""

    def has_variance(self, piece: Piece, spec: AlignmentSpec) -> bool:
        """Has this alignment written the error of every row of the piece, as the row is now?"""
        ...
