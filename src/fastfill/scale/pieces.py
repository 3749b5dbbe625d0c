"""A piece: a part of a data set that one worker does and commits alone; and the work on pieces.

Work on a piece leaves one file behind, named by what the piece is and by what was done with it.
Where that file exists the piece is finished: a run that was killed goes on with the others, and a
piece that two workers did at the same time is there once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fastfill.scale.folders import Folder

T = TypeVar("T", covariant=True)
Tick = Callable[[int, int], None]  # pieces done, pieces in all

BATCH_ROWS = 16_384  # rows of a piece that are in memory together


@dataclass(frozen=True)
class Piece:
    """A Lance fragment or a Parquet row group.

    The identity changes with the content of the piece; places are those in the whole data set.

    >>> Piece("part-0.parquet, row group 1", "part-0.parquet 1 4711 …", 1, 100, 100)
    Piece(part-0.parquet, row group 1: 100 rows)
    """

    name: str  # for people
    identity: str
    number: int  # its place among the pieces
    first_row: int  # the place of its first row among all rows
    rows: int

    def __repr__(self) -> str:
        return f"Piece({self.name}: {self.rows:,} rows)"


class PieceSource(Protocol):
    """A data set that is read piece by piece, by any process of any machine."""

    @property
    def name(self) -> str:
        """The data set in messages."""
        ...

    def pieces(self) -> list[Piece]:
        """All pieces, in the order of their rows."""
        ...

    def batches(self, piece: Piece, columns: Sequence[str]) -> Iterator[Any]:
        """The rows of a piece as Arrow record batches."""
        ...


class Engine(Protocol):
    """What runs a function on every piece: processes of this machine, or a cluster."""

    def map(self, work: Callable[[Piece], T], pieces: Sequence[Piece]) -> Iterator[T]:
        """The results in the order of the pieces; a worker that dies is replaced."""
        ...


class PieceWork(Protocol):
    """Work that leaves a file in a folder for every finished piece."""

    @property
    def folder(self) -> Folder:
        """Where the files are."""
        ...

    def file_name(self, piece: Piece) -> str:
        """The file that says that the piece is finished."""
        ...

    def __call__(self, piece: Piece) -> None:
        """Do one piece; doing it again changes nothing."""
        ...


def digest(*parts: object) -> str:
    """A short name of what a result depends on.

    >>> digest("part-0", 3) == digest("part-0", 3), digest("part-0", 3) == digest("part-03")
    (True, False)
    """
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:20]


def finish_pieces(
    work: PieceWork, pieces: Sequence[Piece], engine: Engine, tick: Tick | None = None
) -> int:
    """Do the pieces that are not finished; returns how many those were."""
    finished = work.folder.names()
    missing = [piece for piece in pieces if work.file_name(piece) not in finished]
    for done, _ in enumerate(engine.map(work, missing), len(pieces) - len(missing) + 1):
        if tick is not None:
            tick(done, len(pieces))
    return len(missing)
