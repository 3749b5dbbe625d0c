"""From a raw score per item to a predicted squared error that can be trusted, on held-out pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.metrics import kendall_tau

Vector = NDArray[np.float64]

EXTREME = np.float32(80)  # e^±80 is still an ordinary float32
COVERED = 0.9  # share of the items whose true error should lie below the upper bound


@dataclass(frozen=True)
class Calibration:
    """Predicted squared error = exp(offset + slope·s); `bound` × that covers 90 % of the items."""

    offset: float
    slope: float
    bound: float

    def __call__(self, score: NDArray[np.float32]) -> NDArray[np.float32]:
        log_error = np.float32(self.offset) + np.float32(self.slope) * score
        return np.asarray(np.exp(np.clip(log_error, -EXTREME, EXTREME)))

    @classmethod
    def fit(cls, score: Vector, error: Vector) -> Calibration:
        """Fit E[error | s] = exp(a + b·s), b ≥ 0, by gamma regression: min Σ error/μ + log μ.

        >>> s = np.linspace(-1, 1, 1000)
        >>> c = Calibration.fit(s, np.exp(2 * s + 3))
        >>> round(c.slope, 3), round(c.offset, 3)
        (2.0, 3.0)
        """
        spread = score.std()
        error = np.maximum(error, 1e-12 * max(float(error.mean()), 1e-30))
        a, b = float(np.log(error.mean())), 0.0
        z = (score - score.mean()) / spread if spread > 0 else np.zeros_like(score)
        for _ in range(50 if spread > 0 else 0):
            ratio = error * np.exp(-(a + b * z))  # error / μ
            gradient = np.array([(1 - ratio).sum(), ((1 - ratio) * z).sum()])
            hessian = np.array(
                [[ratio.sum(), (ratio * z).sum()], [(ratio * z).sum(), (ratio * z * z).sum()]]
            )
            step = np.linalg.solve(hessian + 1e-9 * len(z) * np.eye(2), gradient)
            step /= max(1.0, float(np.abs(step).max()))  # no wild jump from a far start
            a, b = a - float(step[0]), b - float(step[1])
            if float(np.abs(step).max()) < 1e-10:
                break
        if spread > 0 and b <= 0:  # the score says nothing: keep its order, predict the mean
            a, b = float(np.log(error.mean())), 1e-3
        slope = b / float(spread) if spread > 0 else 0.0
        offset = a - slope * float(score.mean())
        ratio = error / np.exp(offset + slope * score)
        return cls(offset, slope, float(np.quantile(ratio, COVERED)))


def check_calibration(score: Vector, error: Vector, seed: int = 0) -> dict[str, float]:
    """How far the calibrated error can be trusted on pairs that it was not calibrated on.

    Kendall τ between score and true error; the share of items below the 90 % bound, calibrated on
    one half of the held-out pairs and counted on the other, both ways round.
    """
    halves = np.array_split(np.random.default_rng(seed).permutation(len(score)), 2)
    covered = []
    for fit, check in (halves, halves[::-1]):
        c = Calibration.fit(score[fit], error[fit])
        covered.append(error[check] <= c.bound * np.exp(c.offset + c.slope * score[check]))
    ordered = score.std() > 0 and error.std() > 0  # else there is no order to compare
    tau = kendall_tau(score, error) if ordered else 0.0
    return {"kendall_tau": tau, "coverage_90": float(np.concatenate(covered).mean())}
