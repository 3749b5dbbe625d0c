"""Applying a learned map: matrix products, biases, ReLU and exp, with NumPy alone.

Every function takes the map's arrays and scaled inputs (n, d_in) and returns h (n, d_new) and the
raw score (n,) that rises with the expected error. Inputs come in blocks (see `Alignment`), so
activations stay in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fastfill.features import Matrix

Arrays = Mapping[str, Matrix]
Vector = NDArray[np.float32]

TINY = np.float32(1e-12)


def _dense(x: Matrix, arrays: Arrays, name: str, relu: bool = True) -> Matrix:
    y = x @ arrays[f"{name}.weight"]
    y += arrays[f"{name}.bias"]
    return np.maximum(y, 0, out=y) if relu else y


def _mean_score(log_variance: Matrix, bound: float) -> Vector:
    """One score per item from log σ², which is one number or one per dimension."""
    s = np.float32(bound) * np.tanh(log_variance / np.float32(bound))
    if s.shape[1] == 1:
        return np.ascontiguousarray(s[:, 0])
    return np.asarray(np.log(np.exp(s).mean(1)))


def linear(arrays: Arrays, x: Matrix) -> tuple[Matrix, Vector]:
    """h = x·W + b; the score is a log-linear model of the error (see `error_features`)."""
    h = _dense(x, arrays, "out", relu=False)
    return h, np.asarray(error_features(arrays, x, h) @ arrays["error.weight"])


def error_features(arrays: Arrays, x: Matrix, h: Matrix) -> Matrix:
    """What a linear map's error depends on: (n, 4).

    A constant; the logarithms of the leverage (how unlike the pairs an item is, in the directions
    that the pairs hardly span), of the distance from the mean, and of the length of the output.
    """
    centred = x - arrays["x.mean"]
    parts = (centred @ arrays["whiten"], centred, h - arrays["h.mean"])
    squares = [np.einsum("ij,ij->i", part, part) for part in parts]
    return np.stack([np.ones_like(squares[0]), *(np.log(s + TINY) for s in squares)], axis=1)


def kernel(arrays: Arrays, x: Matrix) -> tuple[Matrix, Vector]:
    """h = k(x, z)·W + b with a Gaussian kernel; the score is a log-linear model of the error."""
    k = kernel_values(arrays, x)
    h = k @ arrays["out.weight"]
    explained = k @ arrays["directions"]
    distance = np.einsum("ij,ij->i", h, h)
    h += arrays["out.bias"]
    variance = 1 - np.einsum("ij,ij->i", explained, explained)
    squares = np.stack([variance, distance, np.einsum("ij,ij->i", h, h)], axis=1)
    logs = np.log(np.maximum(squares, arrays["error.floor"]))
    weights = arrays["error.weight"]  # of a constant, the logarithms and the directions
    return h, np.asarray(weights[0] + logs @ weights[1:4] + explained @ weights[4:])


def kernel_values(arrays: Arrays, x: Matrix) -> Matrix:
    """exp(−γ‖x − z‖²) for every landmark z: (n, m), from one product.

    Its exponent is that of (x, 1, ‖x‖²) with the columns (2γ·z, −γ‖z‖², −γ), x and z centred.
    """
    inputs = np.empty((len(x), x.shape[1] + 2), dtype=np.float32)
    centred = inputs[:, :-2]
    np.subtract(x, arrays["x.mean"], out=centred)
    inputs[:, -2] = 1
    inputs[:, -1] = np.einsum("ij,ij->i", centred, centred)
    k = inputs @ arrays["landmarks"]
    return np.asarray(np.exp(k, out=k))


def residual(arrays: Arrays, x: Matrix) -> tuple[Matrix, Vector]:
    """A linear map plus a small network on standardised inputs (folded into its first layer)."""
    hidden = _dense(_dense(x, arrays, "hidden.0"), arrays, "hidden.1")
    h = _dense(hidden, arrays, "out", relu=False)
    h += x @ arrays["base.weight"]
    return h, _mean_score(_dense(hidden, arrays, "log_variance", relu=False), arrays["bound"][0])


def paper(arrays: Arrays, x: Matrix) -> tuple[Matrix, Vector]:
    """The FCT network: two branches, a trunk of two wide layers, a linear output."""
    old = arrays["first_branch.0.weight"].shape[0]
    first = x[:, :old]
    second = x[:, old:] if x.shape[1] > old else first
    halves = [
        _dense(_dense(part, arrays, f"{name}.0"), arrays, f"{name}.1")
        for name, part in (("first_branch", first), ("second_branch", second))
    ]
    trunk = _dense(np.concatenate(halves, axis=1), arrays, "trunk.0")
    h = _dense(_dense(trunk, arrays, "trunk.1"), arrays, "out", relu=False)
    if "log_variance.weight" not in arrays:
        return h, np.zeros(len(h), dtype=np.float32)
    return h, _mean_score(_dense(h, arrays, "log_variance", relu=False), arrays["bound"][0])
