"""`Reference`: some of the pairs that a map was learned from, which it keeps for later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fastfill.errors import ShapeError
from fastfill.features import Ints, Matrix, as_matrix

ROWS = 300  # that an alignment keeps


@dataclass(frozen=True, eq=False)
class Reference:
    """Pairs, and what maps that have not seen them would serve in their place.

    >>> Reference([[1.0], [2.0]], [[3.0, 4.0], [5.0, 6.0]], [[3.1, 4.0], [5.0, 6.2]])
    Reference(2 pairs, 1→2)
    """

    old: Matrix  # (r, d_old)
    new: Matrix  # (r, d_new)
    aligned: Matrix  # (r, d_new)

    def __init__(self, old: ArrayLike, new: ArrayLike, aligned: ArrayLike) -> None:
        for name, vectors in (("old", old), ("new", new), ("aligned", aligned)):
            object.__setattr__(self, name, as_matrix(vectors, f"reference, {name}"))
        if len(self.old) != len(self.new) or self.new.shape != self.aligned.shape:
            raise ShapeError(
                f"The reference pairs do not belong together: {self.old.shape} old, "
                f"{self.new.shape} new, {self.aligned.shape} aligned vectors."
            )

    def __len__(self) -> int:
        return len(self.old)

    def __repr__(self) -> str:
        return f"Reference({len(self):,} pairs, {self.old.shape[1]}→{self.new.shape[1]})"

    def arrays(self) -> dict[str, Matrix]:
        """By their names in an artefact."""
        return {f"reference.{name}": getattr(self, name) for name in ("old", "new", "aligned")}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Matrix]) -> Reference | None:
        """What `arrays` returned is taken out of the arrays of an artefact; None: it has none."""
        names = [f"reference.{name}" for name in ("old", "new", "aligned")]
        if names[0] not in arrays:
            return None
        return cls(*(arrays.pop(name) for name in names))


def reference_rows(rows: int, seed: int, most: int = ROWS) -> Ints:
    """Which of so many pairs are kept: all, or a random sample in order.

    >>> reference_rows(3, seed=0)
    array([0, 1, 2])
    """
    return np.sort(np.random.default_rng([seed, 9]).permutation(rows)[:most])
