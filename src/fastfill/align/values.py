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

    `vectors` are what is served. Where they are moved away from queries by their predicted error
    (see `align.penalty`), the estimates of the new vectors are kept beside them as `h`; elsewhere
    the two are one.

    >>> Aligned([[1.0, 0.0], [0.0, 1.0]], [0.1, 0.4])
    Aligned(2 × 2)
    """

    vectors: Matrix  # (n, d_new)
    variance: NDArray[np.float32]  # (n,)
    h: Matrix  # (n, d_new)

    def __init__(self, vectors: ArrayLike, variance: ArrayLike, h: ArrayLike | None = None) -> None:
        matrix = as_matrix(vectors, "aligned vectors")
        errors = np.asarray(variance, dtype=np.float32)
        if errors.shape != (len(matrix),):
            raise ShapeError(
                f"variance: expected one number for each of {len(matrix):,} aligned vectors, "
                f"got shape {errors.shape}."
            )
        object.__setattr__(self, "vectors", matrix)
        object.__setattr__(self, "variance", errors)
        estimate = matrix if h is None or h is vectors else as_matrix(h, "estimates")
        if estimate.shape != matrix.shape:
            raise ShapeError(
                f"h: shape {estimate.shape}, but the aligned vectors are {matrix.shape}."
            )
        object.__setattr__(self, "h", estimate)

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: NDArray[np.int64]) -> Aligned:
        """These rows, in this order."""
        vectors = self.vectors[rows]
        h = vectors if self.h is self.vectors else self.h[rows]
        return Aligned(vectors, self.variance[rows], h)

    def __repr__(self) -> str:
        return f"Aligned({len(self):,} × {self.vectors.shape[1]})"
