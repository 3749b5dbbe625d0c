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
from fastfill.features.values import Ints, Matrix

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


def give_directions(vectors: Matrix) -> tuple[Matrix, Ints]:
    """Vectors without a zero row, and which rows were zero.

    An empty text has no direction under cosine, and nobody looks for it: its vector is turned away
    from the mean of the others, far from most of what is asked.

    >>> give_directions(np.float32([[3, 4], [0, 0]]))
    (array([[ 3. ,  4. ],
           [-0.6, -0.8]], dtype=float32), array([1]))
    """
    norms = np.linalg.norm(vectors, axis=1)
    zero = np.flatnonzero(norms == 0)
    if not len(zero):
        return vectors, zero
    mean = (vectors[norms > 0] / norms[norms > 0, None]).sum(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    away = -mean / length if length > 0 else np.eye(1, vectors.shape[1])[0]
    given = np.array(vectors, dtype=np.float32)
    given[zero] = away
    return given, zero


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
