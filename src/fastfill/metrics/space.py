"""The vectors as the kernels want them, and how far a float32 product may be off.

Ranks are those of distances computed in float64 from the float32 vectors. A float32 matrix product
sorts almost every item into its place already: only where it is nearer to a threshold than its own
error bound is the distance computed in float64. So the result is exact, and does not depend on the
block size, the number of threads or the device.

With c the mean of the gallery, a product of centred vectors stands for the distance:

| distance | float64 distance | = shift of the query + value of the product   |
| -------- | ---------------- | --------------------------------------------- |
| `l2`     | ‖q − g‖²         | ‖q − c‖² + ‖g − c‖² − 2 (q − c)·(g − c)       |
| `ip`     | −q·g             | −q·c − q·(g − c)                              |
| `cosine` | as `ip`, on normalised vectors                                   |

Centring makes the products, and with them their rounding, as small as the data allow.

The terms of a float64 distance are added by halves (filled up with zeros to `padded_dim` terms, the
upper half onto the lower, again and again) on every device: equal vectors are at equal distances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import ShapeError
from fastfill.features import Distance, Matrix, normalised
from fastfill.metrics.frozen import frozen

UNIT = 2.0**-24  # rounding of float32: |fl(x) − x| ≤ UNIT · |x|
TINY = 2.0**-126  # below this float32 loses precision, or is flushed to zero

_SAFE = (1e-6, 1e12)  # largest norms that leave float32 products far from overflow and underflow
_BLOCK = 1 << 14

Column = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GallerySide:
    """The gallery under one model."""

    vectors: Matrix  # (n, d)
    norms: Column  # (n,) ‖g − c‖
    offsets: NDArray[np.float32]  # (n,) ‖g − c‖² for l2, else 0


@dataclass(frozen=True, eq=False)
class Space:
    """Queries and both sides of the gallery: value = offset + slope · product of the centred."""

    queries: Matrix  # (q, d)
    norms: Column  # (q,) of the centred queries
    shifts: Column  # (q,) distance less value
    centre: NDArray[np.float32]  # (d,)
    before: GallerySide
    after: GallerySide
    squared: bool  # l2
    slope: float

    def centred(self, rows: NDArray[np.int64]) -> Matrix:
        """What is multiplied with g − c, for some queries: q − c for l2, else q."""
        queries = self.queries[rows]
        return queries - self.centre if self.squared else queries

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return int(self.queries.shape[1])

    @cached_property
    def largest(self) -> float:
        """The largest norm of the gallery."""
        return float(max(self.before.norms.max(), self.after.norms.max()))

    @property
    def error(self) -> tuple[float, float, float]:
        """a, b, c of the bound of `product_error`."""
        return product_error(self.dim, self.slope, self.squared)


def product_error(dim: int, slope: float, squared: bool) -> tuple[float, float, float]:
    """a, b, c of |value − exact| ≤ a·‖q‖·‖g‖ + b·‖g‖² + c, for float32 and the centred norms.

    The rounding of a sum of d products is at most γ·‖q‖·‖g‖, γ = d·u / (1 − d·u), in whatever
    order they are added (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). The rest is
    the rounding of the centred vectors, of the offset, of the last sum and of a threshold, and
    what is lost below the smallest float32.
    """
    gamma = dim * UNIT / (1 - dim * UNIT)
    a = abs(slope) * (gamma + 8 * UNIT)
    return a, (8 * UNIT if squared else 0.0), 4 * dim * TINY


def make_space(queries: Matrix, before: Matrix, after: Matrix, distance: Distance) -> Space:
    """Prepare the vectors for a distance."""
    for name, gallery in (("aligned gallery", before), ("new gallery", after)):
        if gallery.shape[1] != queries.shape[1]:
            raise ShapeError(
                f"The queries have {queries.shape[1]} dimensions and the {name} has "
                f"{gallery.shape[1]}: queries and gallery must be in the same space."
            )
    squared = distance == "l2"
    queries, before, after = _scaled(*_directed(queries, before, after, distance))
    centre = (_mean(after) if after is before else (_mean(before) + _mean(after)) / 2).astype("f")
    first = _side(before, centre, squared)
    origin = centre if squared else np.zeros_like(centre)
    squares = _by_blocks(queries, lambda block: _squares(block - origin))
    shifts = squares if squared else -_by_blocks(queries, lambda block: block @ centre)
    return Space(
        queries=frozen(queries),
        norms=np.sqrt(squares),
        shifts=shifts,
        centre=centre,
        before=first,
        after=first if after is before else _side(after, centre, squared),
        squared=squared,
        slope=-2.0 if squared else -1.0,
    )


def padded_dim(dim: int) -> int:
    """The power of 2, at least 16, to which the terms of a distance are filled up with zeros.

    >>> padded_dim(384)
    512
    """
    return max(16, 1 << (dim - 1).bit_length())


def safe_scale(*sides: Matrix) -> np.float32:
    """The power of 2 that brings huge and tiny vectors near 1; 1 for all others.

    >>> safe_scale(np.float32([[3, -4]])), safe_scale(np.float32([[1e-20]])) > 1e19
    (np.float32(1.0), np.True_)
    """
    largest = max(max(float(side.max()), -float(side.min())) for side in sides)
    safe = largest == 0 or _SAFE[0] <= largest <= _SAFE[1]
    return np.float32(1.0 if safe else 2.0 ** -np.round(np.log2(largest)))


def exact_distances(queries: Matrix, items: Matrix, squared: bool) -> Column:
    """Float64 distances of vectors (k, d), row by row, (k,).

    >>> exact_distances(np.float32([[0, 0]]), np.float32([[3, 4]]), squared=True)
    array([25.])
    """
    half = padded_dim(queries.shape[1]) // 2
    terms = np.zeros((len(queries), 2 * half))
    if squared:
        terms[:, : queries.shape[1]] = (queries.astype(np.float64) - items) ** 2
    else:
        terms[:, : queries.shape[1]] = -(queries.astype(np.float64) * items)
    while half:
        terms = terms[:, :half] + terms[:, half:]
        half //= 2
    return terms[:, 0]


def _directed(
    queries: Matrix, before: Matrix, after: Matrix, distance: Distance
) -> tuple[Matrix, Matrix, Matrix]:
    """Normalised under cosine; a gallery that is given as both sides stays one."""
    if distance != "cosine":
        return queries, before, after
    first = normalised(before, "aligned gallery")
    second = first if after is before else normalised(after, "new gallery")
    return normalised(queries, "queries"), first, second


def _scaled(queries: Matrix, before: Matrix, after: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Huge and tiny vectors multiplied by a power of 2, which is exact and keeps every order."""
    scale = safe_scale(queries, before, after)
    if scale == 1:
        return queries, before, after
    first = before * scale
    return queries * scale, first, first if after is before else after * scale


def _side(vectors: Matrix, centre: NDArray[np.float32], squared: bool) -> GallerySide:
    squares = _by_blocks(vectors, lambda block: _squares(block - centre))
    offsets = squares if squared else np.zeros(len(squares))
    return GallerySide(frozen(vectors), np.sqrt(squares), offsets.astype(np.float32))


def _by_blocks(vectors: Matrix, function: Callable[[Column], Column]) -> Column:
    """A number for each row, computed in float64 on some rows at a time."""
    numbers = np.empty(len(vectors))
    for start in range(0, len(vectors), _BLOCK):
        rows = slice(start, start + _BLOCK)
        numbers[rows] = function(vectors[rows].astype(np.float64))
    return numbers


def _squares(vectors: Column) -> Column:
    return np.asarray(np.einsum("ij,ij->i", vectors, vectors))


def _mean(vectors: Matrix) -> Column:
    return np.asarray(vectors.mean(axis=0, dtype=np.float64))
