"""Maps without one pair, or without a few, from one kernel map in closed form.

A kernel map is h(x) = μ + k(x)·W with W = A·(Y − μ) and A = (K + λ)⁻¹, K the kernel of the pairs. A
map that has never seen the pairs S is h(x) − k(x)·A_S·(A_SS)⁻¹·W_S: the weights of all pairs, moved
so that those of S are 0. No map is fitted again, so that every pair can be left out alone, and
every two or three of them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.align.alignment import Alignment
from fastfill.align.kernel import BLOCK, LANDMARKS, KernelMap, Wide, fit_landmarks, gaussian
from fastfill.align.kernel import kernel_arrays as with_scores
from fastfill.align.values import Aligned
from fastfill.features import Ints, Matrix, Pairs


@dataclass(frozen=True, eq=False)
class LeaveOut:
    """A kernel map, and what it would be without some of its pairs.

    >>> from fastfill.features import Features
    >>> rng = np.random.default_rng(0); old = rng.normal(size=(80, 3)); new = np.sin(old)
    >>> pairs = Pairs(Features(old[:60]), Features(new[:60]))
    >>> leave = LeaveOut.of(Alignment.fit(pairs, method="kernel"), pairs)
    >>> [block] = leave.blocks(old.astype(np.float32))
    >>> block.without(5).shape
    (80, 3)
    """

    alignment: Alignment
    fitted: KernelMap
    inverse: Wide  # (m, m): A
    targets: Matrix  # (m, d_new), scaled
    pairs: Aligned  # (m): each pair as a map without it aligns it

    @classmethod
    def of(cls, alignment: Alignment, pairs: Pairs) -> LeaveOut | None:
        """None where the map is not a kernel with a landmark and one look for each of the pairs."""
        if alignment.method != "kernel" or len(pairs) > LANDMARKS or "views" in alignment.facts:
            return None
        x = alignment.scaling.inputs(pairs.old.vectors, pairs.side)
        y = alignment.scaling.targets(pairs.new.vectors)
        chosen = alignment.facts["training"]
        gamma, lam = chosen["gamma"], chosen["lambda"]
        fitted = fit_landmarks(x, y, np.arange(len(x)), gamma, (lam,))
        z = fitted.landmarks
        inverse = np.linalg.inv(gaussian(z, z, gamma) + lam * np.eye(len(z)))
        scores = with_scores(fitted, x, y)[1].astype(np.float32)
        h = alignment.scaling.outputs((y - fitted.left_out.residuals).astype(np.float32))
        variance = alignment.predicted_errors(scores, h, np.arange(len(h)))
        alone = alignment.penalised(h, variance)
        return cls(alignment, fitted, inverse, y, alone)

    def blocks(self, old: Matrix, *, whole: bool = False) -> Iterator[LeaveOutBlock]:
        """Old vectors in blocks, or as one, ready to be aligned by maps without one pair."""
        step = len(old) if whole else BLOCK
        for start in range(0, len(old), step):
            rows = slice(start, min(start + step, len(old)))
            x = self.alignment.scaling.inputs(old[rows], None) - self.fitted.mean
            k = gaussian(x, self.fitted.landmarks, self.fitted.gamma)
            h = (k @ self.fitted.weight + self.fitted.bias).astype(np.float32)
            influence = (k @ self.inverse).astype(np.float32)
            yield LeaveOutBlock(rows, self, h, influence, self.alignment(old[rows]).variance)

    def together(self, pair: int) -> Matrix:
        """All pairs, each as a map would serve it that knew neither it nor `pair`, (m, d_new).

        With S = {pair, j}, the error at j comes from the 2 × 2 system A_SS·e = W_S. At the pair
        itself there is none, and the row means nothing.
        """
        a, w = np.diag(self.inverse), self.fitted.weight
        across = self.inverse[pair][:, None]
        determinant = a[pair] * a[:, None] - np.square(across)
        determinant[pair] = np.inf
        errors = (a[pair] * w - across * w[pair]) / determinant
        return self.served((self.targets - errors).astype(np.float32), self.pairs.variance)

    def apart(self, left: Ints, one: int, rows: Ints) -> tuple[Matrix, Matrix]:
        """One pair and others, each two by a map that knew neither of them, nor the pairs `left`.

        Returns the one pair as each of these maps serves it, and the other pair of each, (r, d).
        """
        sets = np.empty((len(rows), len(left) + 2), dtype=np.int64)
        sets[:, :-2], sets[:, -2], sets[:, -1] = left, one, rows
        system = self.inverse[sets[:, :, None], sets[:, None, :]]  # (r, s, s)
        last = np.linalg.inv(system)[:, -2:]  # (r, 2, s)
        errors = last @ self.fitted.weight[sets]  # (r, 2, d)
        both = (self.targets[sets[:, -2:]] - errors).astype(np.float32)
        variance = self.pairs.variance[sets[:, -2:]]
        return self.served(both[:, 0], variance[:, 0]), self.served(both[:, 1], variance[:, 1])

    def served(self, h: Matrix, variance: NDArray[np.float32]) -> Matrix:
        """What is served of vectors as they were learned."""
        alignment = self.alignment
        return alignment.penalised(alignment.scaling.outputs(h), variance).vectors


@dataclass(frozen=True, eq=False)
class LeaveOutBlock:
    """Some old vectors as all pairs align them, and how much each pair has to do with it."""

    rows: slice
    leave: LeaveOut
    h: Matrix  # (n, d_new), scaled
    influence: Matrix  # (n, m): k(x)·A
    variance: NDArray[np.float32]  # (n,)

    def without(self, *pairs: int) -> Matrix:
        """What a map that has not seen these pairs would serve, (n, d_new)."""
        left, rows = self.leave, np.array(pairs, dtype=np.int64)
        errors = np.linalg.solve(left.inverse[np.ix_(rows, rows)], left.fitted.weight[rows])
        moved = self.h - self.influence[:, rows] @ errors.astype(np.float32)
        return left.served(moved, self.variance)
