"""`Curve`: a metric as a function of the backfilled fraction, and its area."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Curve:
    """M(G_{π,α}, Q) at the fractions α of one order π.

    >>> curve = Curve("map", [0.0, 0.5, 1.0], [0.4, 0.6, 0.7], name="sigma")
    >>> round(curve.area, 3), round(curve.mean, 3)
    (0.575, 0.567)
    """

    metric: str
    fractions: NDArray[np.float64]  # (f,) rising from 0 to 1
    values: NDArray[np.float64]  # (f,) between 0 and 1
    name: str = ""
    per_query: NDArray[np.float32] | None = None  # (q, f), for flips, groups and the bootstrap

    def __post_init__(self) -> None:
        for field in ("fractions", "values"):
            array = np.array(getattr(self, field), dtype=np.float64)
            array.flags.writeable = False
            object.__setattr__(self, field, array)

    @property
    def area(self) -> float:
        """M̃, the area under the curve: the trapezoid integral."""
        return float(np.trapezoid(self.values, self.fractions))

    @property
    def mean(self) -> float:
        """M̃ as the authors' code has it: the mean of evenly spaced points."""
        return float(self.values.mean())
