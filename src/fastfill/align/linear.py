"""Maps in closed form: ridge regression and orthogonal Procrustes. NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Matrix

LAMBDAS = np.logspace(-6, 2, 33)  # relative to the mean eigenvalue of the old covariance


@dataclass(frozen=True)
class LinearMap:
    """h(x) = x·W + b, and the out-of-sample residuals of the pairs that it was fitted on."""

    weight: Matrix  # (d_old, d_new)
    bias: NDArray[np.float32]  # (d_new,)
    residuals: Matrix  # (n, d_new), each pair predicted without itself where that is known
    facts: dict[str, float]

    def __call__(self, x: Matrix) -> Matrix:
        return np.asarray(x @ self.weight + self.bias)


def fit_ridge(x: Matrix, y: Matrix) -> LinearMap:
    """argmin_W Σ ‖y − x·W − b‖² + λ‖W‖², λ chosen by the exact leave-one-out error.

    One eigen-decomposition serves all λ: with X = Z·Vᵀ (Z = X·V) the prediction for row i without
    row i is off by e_i / (1 − h_i), where e_i is the residual and h_i = 1/n + Σ_k Z_ik² / (s_k + λ)
    the leverage. So every pair is held out once, at the price of a single fit.

    >>> x = np.random.default_rng(0).normal(size=(200, 3)).astype("float32")
    >>> bool(np.abs(fit_ridge(x, 2 * x + 1)(x) - (2 * x + 1)).max() < 1e-3)
    True
    """
    x_mean, y_mean = x.mean(0, dtype=np.float64), y.mean(0, dtype=np.float64)
    xc, yc = x - x_mean, y - y_mean  # (n, d_old), (n, d_new), float64
    eigenvalues, V = np.linalg.eigh(xc.T @ xc)  # (d_old,), (d_old, d_old)
    eigenvalues = np.maximum(eigenvalues, 0)
    unit = max(float(eigenvalues.mean()), np.finfo(np.float64).tiny)
    Z = xc @ V  # (n, d_old)
    ZtY = Z.T @ yc  # (d_old, d_new)
    scores = [
        np.square(left_out(Z, yc, ZtY, eigenvalues + lam * unit, len(Z))).sum() for lam in LAMBDAS
    ]
    best = int(np.argmin(scores))
    shrink = eigenvalues + LAMBDAS[best] * unit
    weight = V @ (ZtY / shrink[:, None])
    return LinearMap(
        weight.astype(np.float32),
        (y_mean - x_mean @ weight).astype(np.float32),
        left_out(Z, yc, ZtY, shrink, len(Z)).astype(np.float32),
        {"lambda": float(LAMBDAS[best])},
    )


def left_out(
    Z: NDArray[np.float64],
    yc: NDArray[np.float64],
    ZtY: NDArray[np.float64],
    shrink: NDArray[np.float64],
    rows: int,
) -> NDArray[np.float64]:
    """y − ŷ for every row, ŷ fitted without that row; the map was fitted on so many `rows`."""
    leverage = 1 / rows + np.einsum("ij,ij,j->i", Z, Z, 1 / shrink)
    residuals = yc - Z @ (ZtY / shrink[:, None])
    return np.asarray(residuals / np.maximum(1 - leverage, 1e-6)[:, None])


def fit_procrustes(x: Matrix, y: Matrix) -> LinearMap:
    """The best rotation with one scale and the two means: h(x) = c·(x − μ_x)·R + μ_y, RᵀR = I.

    Where the dimensions differ R has orthonormal rows or columns.

    >>> x = np.random.default_rng(0).normal(size=(200, 3)).astype("float32")
    >>> bool(np.abs(fit_procrustes(x, x[:, ::-1] * 5)(x) - x[:, ::-1] * 5).max() < 1e-4)
    True
    """
    x_mean, y_mean = x.mean(0, dtype=np.float64), y.mean(0, dtype=np.float64)
    xc, yc = x - x_mean, y - y_mean
    fitted = procrustes_map(xc.T @ xc, xc.T @ yc, x_mean, y_mean)
    return replace(fitted, residuals=y - fitted(x))


def procrustes_map(
    xx: NDArray[np.float64],
    xy: NDArray[np.float64],
    x_mean: NDArray[np.float64],
    y_mean: NDArray[np.float64],
) -> LinearMap:
    """The Procrustes map of centred sums Σ x·xᵀ and Σ x·yᵀ; its residuals are not known."""
    U, S, Vt = np.linalg.svd(xy, full_matrices=False)
    R = U @ Vt  # (d_old, d_new)
    power = float(np.einsum("ij,ik,kj->", R, xx, R, optimize=True))  # Σ ‖x·R‖²
    scale = float(S.sum()) / power if power else 1.0
    return LinearMap(
        (scale * R).astype(np.float32),
        (y_mean - scale * x_mean @ R).astype(np.float32),
        np.empty((0, len(y_mean)), dtype=np.float32),
        {"scale": scale},
    )
