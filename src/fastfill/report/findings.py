"""`Findings`: everything that one evaluation found, before it becomes a table, picture or page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastfill.evaluate.curves import Curve
from fastfill.features import Array
from fastfill.report.figures import Axis
from fastfill.report.series import Levels, Series

ByOrder = Mapping[str, Sequence[Series]]
"""Name of an order → one series per group."""


@dataclass(frozen=True, eq=False)
class Sigma:
    """Predicted σ² of each item beside the losses that came true."""

    variance: Array  # (n,)
    losses: Mapping[str, Array]  # name → (n,)
    taus: Mapping[str, float]  # name → Kendall τ of σ² with that loss
    items: Array  # (n,) ids


@dataclass(frozen=True, eq=False)
class Flips:
    """Queries won and lost since 0 %, as shares of all queries."""

    positive: Sequence[Series]
    negative: Sequence[Series]


@dataclass(frozen=True, eq=False)
class Groups:
    """What each group gets along the curve."""

    quality: Mapping[str, ByOrder]  # by metric
    gaps: Sequence[Series]  # best minus worst group, by metric and order
    served: ByOrder  # share of each group that is backfilled


@dataclass(frozen=True)
class Difference:
    """One curve's area beside another's on the same queries, with its confidence interval."""

    metric: str
    name: str
    baseline: str
    gain: float
    low: float
    high: float
    p: float

    @property
    def mark(self) -> str:
        """▲ significantly better, ▼ worse, nothing if the interval holds zero.

        >>> Difference("map", "sigma", "random", 0.02, 0.01, 0.03, 0.001).mark
        ' ▲'
        """
        return " ▲" if self.low > 0 else " ▼" if self.high < 0 else ""


@dataclass(frozen=True, eq=False)
class Findings:
    """What is shown of one evaluation; the parts that were not measured are absent."""

    title: str
    curves: Sequence[Curve]
    levels: Levels = field(default_factory=dict)
    flips: Flips | None = None
    groups: Groups | None = None
    sigma: Mapping[str, Sigma] = field(default_factory=dict)  # by alignment
    differences: Sequence[Difference] = ()
    axis: Axis | None = None
    command: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def marks(self) -> dict[tuple[str, str], str]:
        """The sign of each curve that was compared with the baseline."""
        return {(one.metric, one.name): one.mark for one in self.differences}
