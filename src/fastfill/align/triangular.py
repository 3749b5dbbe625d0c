"""Triangular factors and solves by SciPy, or by torch where SciPy is absent (a bare machine)."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

Wide = NDArray[np.float64]


def cholesky_factor(matrix: Wide) -> Wide:
    """L of a positive definite matrix, L·Lᵀ.

    >>> cholesky_factor(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    if find_spec("scipy") is None:
        return np.asarray(np.linalg.cholesky(matrix), np.float64)
    from scipy.linalg import cholesky

    factor: Wide = cholesky(matrix, lower=True)
    return factor


def solve_lower(lower: Wide, right: Wide, *, transposed: bool = False) -> Wide:
    """L⁻¹·B, or L⁻ᵀ·B.

    >>> solve_lower(np.array([[2.0, 0.0], [1.0, 2.0]]), np.array([[2.0], [5.0]]))
    array([[1.],
           [2.]])
    """
    if find_spec("scipy") is None:
        return _solve_by_torch(lower, right, transposed)
    from scipy.linalg import solve_triangular

    solved: Wide = solve_triangular(lower, right, lower=True, trans="T" if transposed else "N")
    return solved


def solve_factored(lower: Wide, right: Wide) -> Wide:
    """(L·Lᵀ)⁻¹·B.

    >>> solve_factored(np.array([[2.0, 0.0], [1.0, 2.0]]), np.array([[6.0], [7.0]])).round(6)
    array([[1.],
           [1.]])
    """
    return solve_lower(lower, solve_lower(lower, right), transposed=True)


def _solve_by_torch(lower: Wide, right: Wide, transposed: bool) -> Wide:
    import torch

    factor = torch.from_numpy(np.ascontiguousarray(lower))
    columns = torch.from_numpy(np.ascontiguousarray(right.reshape(len(right), -1)))
    solved = torch.linalg.solve_triangular(
        factor.T if transposed else factor, columns, upper=transposed
    )
    return np.asarray(solved.numpy().reshape(right.shape), np.float64)
