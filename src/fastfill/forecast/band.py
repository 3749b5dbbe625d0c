"""The band of a forecast: of the sample of queries, and of what else may be off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.evaluate.simulation import as_fractions
from fastfill.forecast.forecast import LEVEL, Forecast

POINTS = 21
DRAWS = 400  # curves that are as likely
NORMAL = 1.645  # half the width of 90 % of a normal distribution, in standard deviations

# Half widths of the 90 % band beside that of the sample of queries. Agreement: of the method, where
# pairs are left out by folds and one by one. Labels: for what is taken to be the same and is not,
# for the few pairs that distances are sampled from at the end of a curve (times the root of their
# number), and for the sampling itself there where there is no second opinion.
BY_FOLDS, LEAVE_ONE_OUT = 0.06, 0.03
ALIKE, DONATED, SAMPLED = 0.0075, 0.55, 0.03
BY_BOTH, BY_OLD = 0.08, 0.13  # agreement where the old model answers too: of sampled scores

Column = NDArray[np.float64]


def agreement_width(fractions: Column, method: float) -> Column:
    """(p,) of a forecast of agreement: the less is left to be aligned, the narrower."""
    return np.asarray(method * np.sqrt(1 - fractions))


def labelled_width(fractions: Column, pairs: int, second_opinion: bool) -> Column:
    """(p,) of a forecast of a metric with labels: the more is new, the more was sampled."""
    donated = DONATED / np.sqrt(pairs)
    end = donated if second_opinion else np.hypot(donated, SAMPLED)
    return np.asarray(np.hypot(ALIKE, fractions * end))


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
