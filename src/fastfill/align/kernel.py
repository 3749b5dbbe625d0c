"""Kernel ridge regression: a smooth curved map in closed form. NumPy alone.

h(x) = μ + Σ_j k(x, z_j)·w_j with the Gaussian kernel k(x, z) = exp(−γ‖x − z‖²), μ the mean of the
targets, and the landmarks z some of the pairs (all of them where they are few). With the features
f(x) = L⁻¹·k(z, x), L·Lᵀ = k(z, z) (Nyström), this is ridge regression on f, so every pair can be
left out exactly at the price of one fit: its residual is divided by 1 − its leverage.

What the pairs say about an item is known, too. With G = Σ f·fᵀ the variance that they leave is
1 − fᵀ·G·(G + λ)⁻¹·f (as in a Gaussian process): near 0 where there were many, 1 far from them all.
Few directions of f matter in it, and the error is modelled from these alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.align.apply import kernel_values
from fastfill.align.triangular import cholesky_factor, solve_factored, solve_lower
from fastfill.features import Ints, Matrix

LANDMARKS = 3_000
SEARCHED = 1_000  # pairs, at most, on which γ is chosen
LEFT_OUT = 4_096  # pairs, at most, that are left out in turn to choose λ and to model the error
APART = 500  # pairs, at least, that are no landmarks where not all of them are
BLOCK = 2_048  # pairs whose kernel values are in memory together
WIDTHS = (0.5, 0.7, 1.0, 1.4)  # γ times the mean squared distance of the inputs from their mean
LAMBDAS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # on the directions, in the error's model
DIRECTIONS = 1_024  # of the features, for the variance and the model of the error
JITTER = 1e-6
CERTAIN = 1e-4  # a smaller variance is lost among float32's roundings of 1
TINY = 1e-12

Wide = NDArray[np.float64]


@dataclass(frozen=True)
class LeftOut:
    """Pairs as seen without themselves."""

    rows: Ints  # (s,)
    residuals: Wide  # (s, d_new)
    variance: Wide  # (s,)

    @property
    def error(self) -> float:
        """Mean squared length of the residuals."""
        return float(np.square(self.residuals).sum(1).mean())


@dataclass(frozen=True)
class KernelMap:
    """h(x) = k(x, z)·W + b, and the variance that the pairs leave."""

    mean: Wide  # (d_old,) of the inputs
    landmarks: Wide  # (m, d_old), centred
    gamma: float
    weight: Wide  # (m, d_new)
    bias: Wide  # (d_new,): the mean of the targets
    directions: Wide  # (m, r): the variance is 1 − ‖k(x, z)·directions‖²
    left_out: LeftOut
    facts: dict[str, Any]


def gaussian(x: Wide, z: Wide, gamma: float) -> Wide:
    """exp(−γ‖x − z‖²) of every x with every z: (n, m).

    >>> gaussian(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 1.0]]), 0.5).round(3)
    array([[1.   , 0.368]])
    """
    k = (2 * gamma * x) @ z.T
    k -= gamma * np.einsum("ij,ij->i", x, x)[:, None]
    k -= gamma * np.einsum("ij,ij->i", z, z)
    return np.asarray(np.exp(np.minimum(k, 0, out=k), out=k))


def fit_kernel(x: Matrix, y: Matrix, seed: int = 0) -> KernelMap:
    """The landmarks by the seed; γ and λ by the exact leave-one-out error.

    γ is chosen on at most 1,000 pairs: it depends on the data, hardly on their number.

    >>> x = np.random.default_rng(0).normal(size=(300, 2)).astype("float32")
    >>> fitted = fit_kernel(x, np.sin(x))
    >>> bool(np.square(fitted.left_out.residuals).mean() < 1e-3)
    True
    """
    order = np.random.default_rng(seed).permutation(len(x))
    few = order[:SEARCHED]
    spread = float(np.square(x[few] - x[few].mean(0, dtype=np.float64)).sum(1).mean())
    tried = [fit_landmarks(x, y, few, width / spread, LAMBDAS) for width in WIDTHS]
    best = min(tried, key=lambda fitted: fitted.left_out.error)
    if len(few) < len(x):
        best = fit_landmarks(x, y, order, best.gamma, LAMBDAS)
    return best


def fit_landmarks(
    x: Matrix, y: Matrix, rows: Ints, gamma: float, lambdas: tuple[float, ...]
) -> KernelMap:
    """Fit the pairs `rows` with the first of them as landmarks; λ by leaving out the last.

    Either all pairs are landmarks or none of those that are left out is one: a landmark stays among
    the features when it is left out, so that it is predicted worse than an item that is not.
    One eigen-decomposition G = V·diag(g)·Vᵀ serves all λ, as in `fit_ridge`.
    """
    marks, left = split(rows)
    frame = LandmarkFrame.of(x, y, rows, marks, gamma)
    if len(marks) == len(rows):
        solved, F = Solved.of_landmarks(frame, y[rows] - frame.bias)
        F = F[-len(left) :]  # (s, m)
    else:
        solved = Solved.of(frame, *landmark_sums(frame, x, y, rows))
        F = frame.values(x[left]) @ solved.basis
    F2, Y = np.square(F), y[left] - frame.bias
    tried = [_left_out(F, F2, Y, solved.moment, solved.g + lam) for lam in lambdas]
    best = int(np.argmin([np.square(residuals).sum() for residuals in tried]))
    lam = lambdas[best]
    left_out = LeftOut(left, tried[best], _variance_left(F2, lam, solved.g + lam))
    return solved.map(frame, lam, left_out)


@dataclass(frozen=True)
class LandmarkFrame:
    """The landmarks, and what the features f(x) = L⁻¹·k(z, x) are made of."""

    mean: Wide  # (d_old,) of the inputs
    bias: Wide  # (d_new,) of the targets
    z: Wide  # (m, d_old): the landmarks, centred
    gamma: float

    @classmethod
    def of(cls, x: Matrix, y: Matrix, rows: Ints, marks: Ints, gamma: float) -> LandmarkFrame:
        """The means of these rows, and some of them as landmarks."""
        mean, bias = x[rows].mean(0, dtype=np.float64), y[rows].mean(0, dtype=np.float64)
        return cls(mean, bias, x[marks] - mean, gamma)

    @cached_property
    def lower(self) -> Wide:
        """L, (m, m)."""
        k = gaussian(self.z, self.z, self.gamma)
        return cholesky_factor(k + JITTER * np.eye(len(k)))

    def values(self, x: Matrix) -> Wide:
        """k(x, z), (n, m)."""
        return gaussian(x - self.mean, self.z, self.gamma)


@dataclass(frozen=True)
class Solved:
    """G = Σ f·fᵀ = V·diag(g)·Vᵀ: the maps for every λ."""

    g: Wide  # (m,), rising
    basis: Wide  # (m, m): k(x, z)·basis = Vᵀ·f(x)
    moment: Wide  # (m, d_new): Σ Vᵀ·f·(y − μ)ᵀ

    @classmethod
    def of(cls, frame: LandmarkFrame, gram: Wide, moment: Wide) -> Solved:
        """From the sums over kernel values."""
        half = solve_lower(frame.lower, gram)
        g, V = np.linalg.eigh(solve_lower(frame.lower, half.T))
        basis = solve_lower(frame.lower, V, transposed=True)
        return cls(np.maximum(g, 0), basis, basis.T @ moment)

    @classmethod
    def of_landmarks(cls, frame: LandmarkFrame, targets: Wide) -> tuple[Solved, Wide]:
        """Where the pairs are the landmarks; with Vᵀ·f of each of them, (m, m).

        k(z, z) = U·diag(k)·Uᵀ is enough then: f turned by an orthogonal matrix is k^−½·Uᵀ·k(z, x),
        of which G is diagonal. `targets` are y − μ, (m, d_new).
        """
        k, U = np.linalg.eigh(gaussian(frame.z, frame.z, frame.gamma))
        k = np.maximum(k, 0)
        root = np.sqrt(k + JITTER)
        F = U * (k / root)
        return cls(np.square(k / root), U / root, F.T @ targets), F

    def map(self, frame: LandmarkFrame, lam: float, left_out: LeftOut) -> KernelMap:
        """The map with this λ."""
        top = slice(-DIRECTIONS, None)
        return KernelMap(
            frame.mean,
            frame.z,
            frame.gamma,
            self.basis @ (self.moment / (self.g + lam)[:, None]),
            frame.bias,
            self.basis[:, top] * np.sqrt(self.g[top] / (self.g[top] + lam)),
            left_out,
            {"gamma": frame.gamma, "lambda": lam, "landmarks": len(frame.z)},
        )


def split(rows: Ints) -> tuple[Ints, Ints]:
    """The landmarks, and the pairs that are left out in turn.

    >>> [len(part) for part in split(np.arange(2_000))], [len(p) for p in split(np.arange(5_000))]
    ([2000, 2000], [3000, 2000])
    """
    if len(rows) <= LANDMARKS:
        return rows, rows[-LEFT_OUT:]
    marks = min(LANDMARKS, max(len(rows) - APART, len(rows) // 2))
    return rows[:marks], rows[marks:][-LEFT_OUT:]


def landmark_sums(frame: LandmarkFrame, x: Matrix, y: Matrix, rows: Ints) -> tuple[Wide, Wide]:
    """Σ k·kᵀ (m, m) and Σ k·(y − μ)ᵀ (m, d_new) over the pairs, block by block."""
    gram, moment = np.zeros((len(frame.z), len(frame.z))), np.zeros((len(frame.z), y.shape[1]))
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        k = frame.values(x[block])
        gram += k.T @ k
        moment += k.T @ (y[block] - frame.bias)
    return gram, moment


def _left_out(F: Wide, F2: Wide, Y: Wide, FtY: Wide, shrink: Wide) -> Wide:
    """y − ŷ for every row, ŷ fitted without that row; F2 are the squares of F."""
    residuals = Y - F @ (FtY / shrink[:, None])
    residuals /= np.maximum(1 - F2 @ (1 / shrink), 1e-6)[:, None]
    return residuals


def _variance_left(F2: Wide, lam: float, shrink: Wide) -> Wide:
    """The variance of each row, had the fit not seen it: 1 − ‖f‖² + λ·l/(1 − l), l its leverage.

    (Of a row that it has not seen, λ·l in place of λ·l/(1 − l) gives 1 − fᵀ·G·(G + λ)⁻¹·f.)
    """
    leverage = F2 @ (1 / shrink)
    return np.asarray(1 - F2.sum(1) + lam * leverage / np.maximum(1 - leverage, 1e-6))


def kernel_arrays(fitted: KernelMap, x: Matrix, y: Matrix) -> tuple[dict[str, Matrix], Wide]:
    """What `align.apply.kernel` uses, in float32, and the score of each pair that was left out.

    x and y are what the map was fitted on.
    """
    z, gamma = fitted.landmarks, fitted.gamma
    norms = -gamma * np.einsum("ij,ij->i", z, z)
    parts = {
        "x.mean": fitted.mean,
        "landmarks": np.vstack([2 * gamma * z.T, norms, np.full(len(z), -gamma)]),  # (d + 2, m)
        "directions": fitted.directions,
        "out.weight": fitted.weight,
        "out.bias": fitted.bias,
    }
    arrays = {name: np.ascontiguousarray(a, dtype=np.float32) for name, a in parts.items()}
    model, scores = _error_model(arrays, fitted, x, y)
    return arrays | model, scores


def _error_model(
    arrays: dict[str, Matrix], fitted: KernelMap, x: Matrix, y: Matrix
) -> tuple[dict[str, Matrix], Wide]:
    """log error = w · (a constant, three logarithms, where an item lies among the pairs).

    The logarithms are those of the variance that the pairs leave, of the squared distance of h from
    the mean, and of the squared length of h. An item far from all pairs is mapped to the mean, so
    its distance is 0: none is taken to be smaller than the smallest that a pair had.
    """
    left = fitted.left_out
    h = y[left.rows] - left.residuals  # as predicted without themselves
    squares = [left.variance, np.square(h - fitted.bias).sum(1), np.square(h).sum(1)]
    floor = np.maximum(np.min(squares, axis=1), (CERTAIN, TINY, TINY))
    logs = np.log(np.maximum(np.stack(squares, axis=1), floor))
    explained = kernel_values(arrays, x[left.rows]) @ arrays["directions"]
    features = np.concatenate([np.ones((len(logs), 1)), logs, explained], axis=1)
    weight, scores = _fit_error(features, np.log(np.square(left.residuals).sum(1) + TINY))
    model = {"error.floor": floor.astype(np.float32), "error.weight": weight.astype(np.float32)}
    return model, scores


def _fit_error(features: Wide, logs: Wide) -> tuple[Wide, Wide]:
    """Least squares with a penalty on the directions, chosen by the exact leave-one-out error.

    Returns the weights, and what is predicted for each row by a fit without it.
    """
    gram, moment = features.T @ features, features.T @ logs
    best, chosen = np.inf, (moment, logs)
    for penalty in PENALTIES:
        diagonal = np.full(len(gram), penalty)
        diagonal[:4] = 1e-6 * len(features)  # hardly any on the constant and the three logarithms
        lower = cholesky_factor(gram + np.diag(diagonal))
        weight = solve_factored(lower, moment)
        leverage = np.square(solve_lower(lower, features.T)).sum(0)
        off = (logs - features @ weight) / np.maximum(1 - leverage, 1e-6)
        error = float(np.square(off).sum())
        if error < best:
            best, chosen = error, (weight, logs - off)
    return chosen
