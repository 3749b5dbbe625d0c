"""A metric as each query sees it along a backfill, and the forecast that they make together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.evaluate.simulation import as_fractions
from fastfill.forecast.forecast import LEVEL, Forecast

POINTS = 21
DRAWS = 400  # curves that are as likely
NORMAL = 1.645  # half the width of 90 % of a normal distribution, in standard deviations

Column = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class QueryCurves:
    """One curve per query, how much each counts, and how far all of them may be off together."""

    scores: NDArray[np.float64]  # (q, p)
    weights: Column  # (q,)
    uncertainty: Column  # (p,) half width, beside that of the sample of queries

    def forecast(self, metric: str, items: int, pairs: int, seed: int) -> Forecast:
        """The mean over the queries; the band of other samples of them, and of what else is off."""
        rng = np.random.default_rng([seed, 6])
        values = np.average(self.scores, axis=0, weights=self.weights).clip(0, 1)
        chosen = rng.integers(len(self.scores), size=(DRAWS, len(self.scores)))
        draws = np.stack(
            [np.average(self.scores[rows], axis=0, weights=self.weights[rows]) for rows in chosen]
        )
        draws += rng.normal(size=(DRAWS, 1)) * self.uncertainty / NORMAL
        draws = draws.clip(0, 1)
        lower, upper = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        return Forecast(
            metric, as_fractions(POINTS), values, np.minimum(lower, values),
            np.maximum(upper, values), items, pairs, draws,
        )  # fmt: skip
