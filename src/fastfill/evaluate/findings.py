"""`Findings`: everything that one evaluation found, before it becomes a table, picture or page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

from fastfill.evaluate.curves import Curve
from fastfill.evaluate.series import Levels, Series, metrics_of
from fastfill.evaluate.statistics import Comparison
from fastfill.evaluate.timeline import Timeline
from fastfill.features import Array

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
class FlipLines:
    """Queries won and lost since 0 %, as shares of all queries."""

    positive: Sequence[Series]
    negative: Sequence[Series]


@dataclass(frozen=True, eq=False)
class GroupLines:
    """What each group gets along the curve."""

    quality: Mapping[str, ByOrder]  # by metric
    gaps: Sequence[Series]  # best minus worst group, by metric and order
    served: ByOrder  # share of each group that is backfilled


@dataclass(frozen=True, eq=False)
class Findings:
    """What is shown of one evaluation; the parts that were not measured are absent."""

    title: str
    curves: Sequence[Curve]
    levels: Levels = field(default_factory=dict)
    flips: FlipLines | None = None
    groups: GroupLines | None = None
    sigma: Mapping[str, Sigma] = field(default_factory=dict)  # by alignment
    comparisons: Sequence[Comparison] = ()
    cheating: Collection[str] = ()  # orders that know what nobody knows, as the oracle does
    timelines: Sequence[Timeline] = ()
    command: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def series(self) -> list[Series]:
        """The curves, seeds taken together."""
        return Series.group(self.curves)

    @property
    def metrics(self) -> list[str]:
        """The metrics, the first of which the headline is about."""
        return metrics_of(self.series)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for programs."""
        return {
            "title": self.title,
            "curves": [curve.to_dict() | curve.summary() for curve in self.curves],
            "levels": {metric: dict(values) for metric, values in self.levels.items()},
            "comparisons": [
                {field: getattr(one, field) for field in one.__dataclass_fields__}
                | {"significant": one.significant}
                for one in self.comparisons
            ],
            "kendall_tau": {
                name: {loss: None if isnan(tau) else tau for loss, tau in sigma.taus.items()}
                for name, sigma in self.sigma.items()
            },
            "facts": dict(self.facts),
        }
