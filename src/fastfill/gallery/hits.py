"""What a search answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Array, Matrix

Side = Literal["old", "new"]


@dataclass(frozen=True, eq=False)
class Hits:
    """Answers of one search, nearest first; with their two vectors when asked for.

    >>> from fastfill.gallery import objects
    >>> hits = Hits(objects(["a", "b"]), np.float32([0.1, 0.2]), objects(["new", None]))
    >>> hits.take([1]).ids.tolist(), hits.old is None
    (['b'], True)
    """

    ids: NDArray[np.object_]
    distances: NDArray[np.float32]
    generation: NDArray[np.object_]  # Generation or None; all None before the columns exist
    old: Matrix | None = None  # (n, d_old), NaN where there is none; None: not asked, no column
    new: Matrix | None = None  # (n, d_new), the same of the added vectors

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, index: Array | Sequence[int]) -> Hits:
        """Some of the answers, by positions or by a mask."""
        return Hits(
            self.ids[index],
            self.distances[index],
            self.generation[index],
            None if self.old is None else self.old[index],
            None if self.new is None else self.new[index],
        )


def wanted_sides(vectors: bool | Side) -> tuple[Side, ...]:
    """The vectors that a search is asked for.

    >>> wanted_sides(True), wanted_sides("old"), wanted_sides(False)
    (('old', 'new'), ('old',), ())
    """
    if isinstance(vectors, bool):
        return ("old", "new") if vectors else ()
    return (vectors,)
