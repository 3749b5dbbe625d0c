"""Linear maps from several looks at each item, with the penalty chosen by folds over items.

Looks at one item are alike: a map that has seen one of them has seen the item. So all looks at an
item are in the fit or none is, and what is predicted without an item is its plain look, as in a
gallery. A fold's map is that of the sums of the other folds, so the looks are read once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.align.linear import LAMBDAS, LinearMap, left_out, procrustes_map
from fastfill.align.task import Look
from fastfill.features import Ints

FOLDS = 4

Wide = NDArray[np.float64]


def item_folds(items: Ints, seed: int, folds: int = FOLDS) -> list[Ints]:
    """The items in parts of about the same size, by the seed.

    >>> [part.tolist() for part in item_folds(np.arange(5), seed=0, folds=2)]
    [[0, 1, 2], [3, 4]]
    """
    order = np.random.default_rng([seed, 4]).permutation(items)
    return [np.sort(part) for part in np.array_split(order, min(folds, len(items)))]


@dataclass(frozen=True)
class Sums:
    """What a linear map of some rows depends on."""

    rows: int
    x: Wide  # (d_old,): Σ x
    y: Wide  # (d_new,): Σ y
    xx: Wide  # (d_old, d_old): Σ x·xᵀ
    xy: Wide  # (d_old, d_new): Σ x·yᵀ

    @classmethod
    def of(cls, look: Look) -> Sums:
        """Of one look at some items."""
        x, y = (part.astype(np.float64) for part in look)
        return cls(len(x), x.sum(0), y.sum(0), x.T @ x, x.T @ y)

    def __add__(self, other: Sums) -> Sums:
        return self._with(other, 1)

    def __sub__(self, other: Sums) -> Sums:
        return self._with(other, -1)

    def _with(self, other: Sums, sign: int) -> Sums:
        return Sums(
            self.rows + sign * other.rows, self.x + sign * other.x, self.y + sign * other.y,
            self.xx + sign * other.xx, self.xy + sign * other.xy,
        )  # fmt: skip

    @property
    def means(self) -> tuple[Wide, Wide]:
        """Of the old and of the new vectors."""
        return self.x / self.rows, self.y / self.rows

    @property
    def centred(self) -> tuple[Wide, Wide]:
        """Σ x·xᵀ and Σ x·yᵀ about the means."""
        mean = self.means[0]
        return self.xx - np.outer(mean, self.x), self.xy - np.outer(mean, self.y)


def fold_sums(looks: Iterable[Look], folds: list[Ints]) -> list[Sums]:
    """The sums of each fold over all looks, each of which is read once."""
    sums: list[Sums] = []
    for x, y in looks:
        parts = [Sums.of((x[rows], y[rows])) for rows in folds]
        sums = [a + b for a, b in zip(sums, parts, strict=True)] if sums else parts
    return sums


def fit_ridge_views(looks: Iterable[Look], plain: Look, seed: int) -> LinearMap:
    """Ridge regression on all looks; λ by the error on the plain look of items held out.

    >>> rng = np.random.default_rng(0)
    >>> looks = [(x, 2 * x + 1) for x in rng.normal(size=(5, 60, 3)).astype("float32")]
    >>> fitted = fit_ridge_views(looks, looks[0], seed=0)
    >>> bool(np.abs(fitted.residuals).max() < 1e-3)
    True
    """
    x, y = plain
    folds = item_folds(np.arange(len(x)), seed)
    sums = fold_sums(looks, folds)
    total = sum(sums[1:], sums[0])
    held = [(rows, RidgePath(total - part)) for rows, part in zip(folds, sums, strict=True)]
    errors = [
        sum(np.square(y[rows] - path.map(lam)(x[rows]), dtype=np.float64).sum()
            for rows, path in held)
        for lam in LAMBDAS
    ]  # fmt: skip
    lam = float(LAMBDAS[int(np.argmin(errors))])
    residuals = np.empty_like(y)
    for rows, path in held:
        residuals[rows] = y[rows] - path.map(lam)(x[rows])
    fitted = RidgePath(total).map(lam)
    return LinearMap(fitted.weight, fitted.bias, residuals, {"lambda": lam})


class RidgePath:
    """The ridge maps of some sums for every λ, from one eigen-decomposition."""

    def __init__(self, sums: Sums) -> None:
        self.rows = sums.rows
        xx, xy = sums.centred
        values, self.vectors = np.linalg.eigh(xx)
        self.values = np.maximum(values, 0)
        self.unit = max(float(self.values.mean()), np.finfo(np.float64).tiny)
        self.moment = self.vectors.T @ xy
        self.means = sums.means

    def left_out_errors(self, look: Look) -> Wide:
        """For every λ, the summed squared errors of rows that are in the sums, each without itself.

        See `fit_ridge`; the errors of several parts of the rows add up, (λ,).
        """
        x, y = (part - mean for part, mean in zip(look, self.means, strict=True))
        Z = x @ self.vectors  # (n, d_old)
        shrinks = (self.values + lam * self.unit for lam in LAMBDAS)
        return np.array(
            [np.square(left_out(Z, y, self.moment, shrink, self.rows)).sum() for shrink in shrinks]
        )

    def map(self, lam: float) -> LinearMap:
        """The map of one λ; its residuals are not known."""
        shrink = self.values + lam * self.unit
        weight = self.vectors @ (self.moment / shrink[:, None])
        bias = self.means[1] - self.means[0] @ weight
        none = np.empty((0, len(bias)), dtype=np.float32)
        return LinearMap(weight.astype(np.float32), bias.astype(np.float32), none, {})


def fit_procrustes_views(looks: Iterable[Look], plain: Look) -> LinearMap:
    """Orthogonal Procrustes on all looks; the residuals are those of the plain look."""
    x, y = plain
    [sums] = fold_sums(looks, [np.arange(len(x))])
    fitted = procrustes_map(*sums.centred, *sums.means)
    return LinearMap(fitted.weight, fitted.bias, y - fitted(x), fitted.facts)
