"""Distances between vectors, as numbers of which smaller is nearer.

| name     | value                   | same order as              |
| -------- | ----------------------- | -------------------------- |
| `l2`     | ‖q − g‖²                | Euclidean distance         |
| `cosine` | 1 − q·g / (‖q‖·‖g‖)     | cosine similarity, falling |
| `ip`     | −q·g                    | inner product, falling     |
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from fastfill.errors import InputError, ZeroVectorError, some
from fastfill.features.values import Matrix

Distance = Literal["l2", "cosine", "ip"]
DISTANCES: tuple[Distance, ...] = get_args(Distance)


def check_distance(name: str) -> Distance:
    """The name, if it is one of `DISTANCES`."""
    if name not in DISTANCES:
        raise InputError(f"Unknown distance {name!r}: use one of {', '.join(DISTANCES)}.")
    return name


def normalised(vectors: Matrix, name: str = "vectors", first_row: int = 0) -> Matrix:
    """Each row divided by its Euclidean norm; a zero row has no direction and is refused.

    >>> normalised(np.array([[3.0, 4.0]], dtype=np.float32))
    array([[0.6, 0.8]], dtype=float32)
    """
    norms = np.linalg.norm(vectors, axis=1)
    if not norms.all():
        rows = np.flatnonzero(norms == 0) + first_row
        raise ZeroVectorError(
            f"{name}: zero vectors have no direction under cosine, in rows {some(rows)}. "
            "Remove those rows or use distance 'l2'."
        )
    return np.asarray(vectors / norms[:, None], dtype=np.float32)


def pairwise(queries: Matrix, gallery: Matrix, distance: Distance) -> Matrix:
    """All distances, (q, n): the obvious version, for small sets and for tests.

    >>> pairwise(np.float32([[0, 0]]), np.float32([[3, 4], [0, 1]]), "l2")
    array([[25.,  1.]], dtype=float32)
    """
    if distance == "cosine":
        return np.asarray(1 - normalised(queries, "queries") @ normalised(gallery, "gallery").T)
    products = queries @ gallery.T
    if distance == "ip":
        return np.asarray(-products)
    q2 = np.einsum("ij,ij->i", queries, queries)
    g2 = np.einsum("ij,ij->i", gallery, gallery)
    return np.asarray(np.maximum(q2[:, None] + g2[None, :] - 2 * products, 0))
