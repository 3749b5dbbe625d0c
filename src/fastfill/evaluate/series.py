"""`Series`: what was measured along the backfilled fraction, once per seed, and its spread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfill.errors import InputError
from fastfill.evaluate.curves import Curve

Levels = Mapping[str, Mapping[str, float]]
"""Metric → name of a horizontal line (`old/old`, `new/new`) → its value."""


@dataclass(frozen=True)
class Estimate:
    """A number as several seeds give it.

    >>> Estimate.of([0.50, 0.52, 0.54])
    Estimate(mean=0.52, std=0.02, seeds=3)
    >>> print(Estimate.of([0.50, 0.52, 0.54]), Estimate.of([0.5]), Estimate.of([]))
    52.0 ± 2.0 50.0 –
    """

    mean: float
    std: float
    seeds: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Estimate:
        """Mean and sample standard deviation; without any value the mean is NaN."""
        array = np.array(list(values), dtype=np.float64)
        mean = float(array.mean()) if len(array) else float("nan")
        std = float(array.std(ddof=1)) if len(array) > 1 else 0.0
        return cls(round(mean, 12), round(std, 12), len(array))

    def __str__(self) -> str:
        if np.isnan(self.mean):
            return "–"
        spread = f" ± {100 * self.std:.1f}" if self.seeds > 1 else ""
        return f"{100 * self.mean:.1f}{spread}"


@dataclass(frozen=True, eq=False)
class Series:
    """One line with a band: the same quantity along the backfilled fraction, once per seed.

    >>> both = Series.group([Curve("map", [0, 1], [0.4, 0.7], name="sigma"),
    ...                      Curve("map", [0, 1], [0.5, 0.7], name="sigma")])
    >>> both
    [Series('sigma', map, 2 points, 2 seeds)]
    >>> print(both[0].estimate(lambda curve: curve.area))
    57.5 ± 3.5
    """

    name: str
    metric: str
    fractions: NDArray[np.float64]  # (f,)
    values: NDArray[np.float64]  # (s, f)

    def __post_init__(self) -> None:
        fractions = np.asarray(self.fractions, dtype=np.float64)
        values = np.atleast_2d(np.asarray(self.values, dtype=np.float64))
        if fractions.ndim != 1 or values.shape[1:] != fractions.shape:
            raise InputError(
                f"Series {self.name!r}: {values.shape} values do not fit {fractions.shape} "
                "fractions. Give one value per fraction, and one row per seed."
            )
        object.__setattr__(self, "fractions", fractions)
        object.__setattr__(self, "values", values)

    def __repr__(self) -> str:
        seeds, points = self.values.shape
        text = f"Series({self.name!r}, {self.metric}, {points} points"
        return text + (f", {seeds} seeds)" if seeds > 1 else ")")

    @classmethod
    def group(cls, curves: Iterable[Curve]) -> list[Series]:
        """Curves of one name and metric are the seeds of one series; first come, first listed."""
        together: dict[tuple[str, str], list[Curve]] = {}
        for curve in curves:
            together.setdefault((curve.metric, curve.name), []).append(curve)
        return [cls._of(name, metric, seeds) for (metric, name), seeds in together.items()]

    @classmethod
    def _of(cls, name: str, metric: str, curves: list[Curve]) -> Series:
        first = curves[0].fractions
        for curve in curves[1:]:
            if not np.array_equal(curve.fractions, first):
                raise InputError(
                    f"The seeds of {name!r} ({metric}) were measured at different fractions: "
                    "measure all of them at the same ones."
                )
        return cls(name, metric, first, np.stack([curve.values for curve in curves]))

    @property
    def mean(self) -> NDArray[np.float64]:
        """(f,) mean over the seeds."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def std(self) -> NDArray[np.float64] | None:
        """(f,) sample standard deviation over the seeds; None of a single one."""
        return None if len(self.values) < 2 else np.asarray(self.values.std(axis=0, ddof=1))

    def estimate(self, measure: Callable[[Curve], float | None]) -> Estimate:
        """A number of every seed's curve; seeds for which it is None are left out."""
        curves = (Curve(self.metric, self.fractions, row, name=self.name) for row in self.values)
        return Estimate.of(value for value in map(measure, curves) if value is not None)


def metrics_of(series: Iterable[Series]) -> list[str]:
    """The metrics, in the order in which they first appear."""
    return list(dict.fromkeys(one.metric for one in series))
