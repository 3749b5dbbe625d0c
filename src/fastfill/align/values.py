"""`Aligned`: vectors in the new space, with the predicted error of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.errors import ShapeError
from fastfill.features import Matrix, as_matrix


@dataclass(frozen=True, eq=False)
class Aligned:
    """Old vectors mapped into the new space, and the predicted squared error ‖h − new‖² of each.

    >>> Aligned([[1.0, 0.0], [0.0, 1.0]], [0.1, 0.4])
    Aligned(2 × 2)
    """

    vectors: Matrix  # (n, d_new)
    variance: NDArray[np.float32]  # (n,)

    def __init__(self, vectors: ArrayLike, variance: ArrayLike) -> None:
        matrix = as_matrix(vectors, "aligned vectors")
        errors = np.asarray(variance, dtype=np.float32)
        if errors.shape != (len(matrix),):
            raise ShapeError(
                f"variance: expected one number for each of {len(matrix):,} aligned vectors, "
                f"got shape {errors.shape}."
            )
        object.__setattr__(self, "vectors", matrix)
        object.__setattr__(self, "variance", errors)

    def __len__(self) -> int:
        return len(self.vectors)

    def __repr__(self) -> str:
        return f"Aligned({len(self):,} × {self.vectors.shape[1]})"
