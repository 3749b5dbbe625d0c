"""Several seeds, and whether two methods differ: means, deviations, paired bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import InputError, ShapeError
from fastfill.evaluate.curves import Curve
from fastfill.evaluate.flips import per_query


@dataclass(frozen=True, eq=False)
class Spread:
    """One method over several seeds: the mean curve, and how far the seeds lie apart."""

    curve: Curve  # the mean over the seeds
    std: NDArray[np.float64]  # (f,) standard deviation over the seeds, n − 1 in the denominator
    area: float  # mean of the areas
    area_std: float
    seeds: int


def over_seeds(curves: Sequence[Curve]) -> Spread:
    """Mean and standard deviation over the curves of several seeds.

    >>> runs = [Curve("map", [0, 1], [0.4, 0.8]), Curve("map", [0, 1], [0.6, 0.8])]
    >>> spread = over_seeds(runs)
    >>> round(spread.area, 3), round(spread.area_std, 4)
    (0.65, 0.0707)
    """
    if not curves:
        raise InputError("No curves were given: at least one seed is needed.")
    first = curves[0]
    for curve in curves:
        check_comparable(first, curve)
    values = np.stack([curve.values for curve in curves])  # (s, f)
    areas = np.array([curve.area for curve in curves])
    many = len(curves) > 1
    mean = Curve(
        first.metric, first.fractions, values.mean(axis=0), first.name, excluded=first.excluded
    )
    return Spread(
        mean,
        values.std(axis=0, ddof=1) if many else np.zeros(len(first.fractions)),
        float(areas.mean()),
        float(areas.std(ddof=1)) if many else 0.0,
        len(curves),
    )


@dataclass(frozen=True)
class Comparison:
    """The area of `a` less that of `b`, with a confidence interval over the queries."""

    metric: str
    a: str
    b: str
    difference: float
    low: float
    high: float
    level: float
    p_value: float  # two-sided: how often a resample would deny the difference

    @property
    def significant(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


def compare_curves(
    a: Curve | Sequence[Curve],
    b: Curve | Sequence[Curve],
    *,
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Comparison:
    """Paired bootstrap over the queries: the same queries are drawn for both methods.

    Each side is one curve or the curves of several seeds, which are averaged query by query.

    >>> hits = np.random.default_rng(1).random((500, 2))
    >>> low = Curve("map", [0, 1], hits.mean(axis=0), "b", per_query=hits)
    >>> high = Curve("map", [0, 1], hits.mean(axis=0) + 0.1, "a", per_query=hits + 0.1)
    >>> compare_curves(high, low).significant
    True
    """
    sides = [[side] if isinstance(side, Curve) else list(side) for side in (a, b)]
    if not all(sides):
        raise InputError("No curves were given: each side needs at least one.")
    first = sides[0][0]
    for curve in sides[0] + sides[1]:
        check_comparable(first, curve)
    one, two = (np.mean([_area_per_query(c) for c in side], axis=0) for side in sides)
    differences = one - two  # (k,)
    means = _resampled_means(differences, resamples, seed)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    against = min((means <= 0).mean(), (means >= 0).mean())
    return Comparison(
        first.metric,
        sides[0][0].name,
        sides[1][0].name,
        float(differences.mean()),
        float(low),
        float(high),
        level,
        float(min(1.0, 2 * max(against, 1 / resamples))) if differences.any() else 1.0,
    )


def check_comparable(a: Curve, b: Curve) -> None:
    """Refuse two curves that are not of the same metric, fractions and queries."""
    if a.metric != b.metric:
        raise InputError(f"Curves of {a.metric} and {b.metric} cannot be compared.")
    if not np.array_equal(a.fractions, b.fractions):
        raise ShapeError(
            f"The curves have {len(a.fractions)} and {len(b.fractions)} fractions that differ: "
            "simulate both with the same points."
        )
    if a.queries is not None and b.queries is not None and not np.array_equal(a.queries, b.queries):
        raise InputError("The curves are of different queries: simulate both on the same gallery.")


def _area_per_query(curve: Curve) -> NDArray[np.float64]:
    values = per_query(curve).astype(np.float64)  # (k, f)
    if len(curve.fractions) == 1:
        return values[:, 0]
    width = curve.fractions[-1] - curve.fractions[0]
    return np.asarray(np.trapezoid(values, curve.fractions, axis=1) / width)


def _resampled_means(values: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """Means of resamples with replacement, a few at a time: the memory stays small."""
    rng = np.random.default_rng(seed)
    step = max(1, (1 << 22) // len(values))
    means = [
        values[rng.integers(len(values), size=(min(step, resamples - done), len(values)))].mean(1)
        for done in range(0, resamples, step)
    ]
    return np.concatenate(means)
