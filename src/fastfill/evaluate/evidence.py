"""`Evidence`: what each way to serve measured on the same queries, and the way it speaks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import KEEP, Serving, check_serving
from fastfill.errors import InputError, ShapeError
from fastfill.metrics import as_metric

Column = NDArray[np.float64]

NEAR_TIE = 0.005  # by which the new model alone may measure worse than both: it costs less
CLOSE = 0.9  # agreement with the new model from which on it may serve alone, unjudged
_PREFERRED: tuple[Serving, ...] = ("aligned", "both", "old")


@dataclass(frozen=True, eq=False)
class Evidence:
    """A metric of the same queries, answered in each of several ways.

    >>> evidence = Evidence.of("ndcg@10", {"old": [0.5, 0.25], "both": [0.5, 0.75]})
    >>> evidence
    Evidence(ndcg@10 of 2 queries: old 0.375, both 0.625)
    >>> choose_serving(evidence)
    'both'
    """

    metric: str
    queries: int
    values: Mapping[Serving, float]
    per_query: Mapping[Serving, Column] | None = None  # (q,) each, while it is being measured

    def __post_init__(self) -> None:
        as_metric(self.metric)
        for way in self.values:
            check_serving(way)

    @classmethod
    def of(cls, metric: str, per_query: Mapping[Serving, ArrayLike]) -> Evidence:
        """From the values of each query, the same queries in the same order for each way."""
        columns = {way: np.asarray(each, dtype=np.float64) for way, each in per_query.items()}
        shapes = {column.shape for column in columns.values()}
        if len(shapes) != 1 or len(next(iter(shapes))) != 1:
            raise ShapeError(
                f"Evidence needs the same queries for each way to serve, got {metric} of shapes "
                f"{', '.join(map(str, sorted(shapes)))}."
            )
        [queries] = next(iter(shapes))
        means = {way: float(each.mean()) if queries else 0.0 for way, each in columns.items()}
        return cls(metric, queries, means, columns)

    def __repr__(self) -> str:
        means = ", ".join(f"{way} {value:.3f}" for way, value in self.values.items())
        return f"Evidence({self.metric} of {self.queries:,} queries: {means})"

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, without those of each query."""
        return {"metric": self.metric, "queries": self.queries, "values": dict(self.values)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Evidence:
        """The inverse of `to_json`.

        >>> Evidence.from_json({"metric": "map", "queries": 9, "values": {"old": 0.5}})
        Evidence(map of 9 queries: old 0.500)
        """
        try:
            values = {check_serving(way): float(x) for way, x in plain["values"].items()}
            return cls(plain["metric"], int(plain["queries"]), values)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"This is not evidence: it lacks {error}.") from None


def choose_serving(evidence: Evidence) -> Serving:
    """The way to serve that the evidence speaks for; without any query, the old search.

    The old search is left for a way that measured better by one standard error at least, so that
    a few lucky queries are not enough. The new model alone takes the place of both where it is
    surely not worse by more than half a point, again by one standard error. Without the values of
    each query the means decide.

    Agreement with the new model does not tell whether its answers are good. Such evidence lets the
    new model alone serve only where it answers nearly as it will in the end.

    >>> choose_serving(Evidence("map", 500, {"old": 0.5, "aligned": 0.612, "both": 0.615}))
    'aligned'
    >>> choose_serving(Evidence("agreement@10", 500, {"old": 0.3, "aligned": 0.6, "both": 0.5}))
    'both'
    """
    if not evidence.queries:
        return "old"
    allowed = [way for way in _PREFERRED if way in evidence.values and _beats_old(evidence, way)]
    if "aligned" in allowed and "both" in allowed:
        allowed.remove("both" if _enough_alone(evidence) else "aligned")
    return allowed[0]


def choose_keep(both: Mapping[float, ArrayLike]) -> float:
    """The share of the old score that both models together keep, by judged queries.

    `both` has the values of the same queries for each share. The usual share stays, unless another
    one is better by more than a standard error; of those that are, the surest is taken.

    >>> choose_keep({0.5: [0.5, 0.3, 0.6], 1.0: [0.9, 0.3, 0.6], 2.0: [0.6, 0.45, 0.7]})
    2.0
    """
    values = {share: np.asarray(each, dtype=np.float64) for share, each in both.items()}
    gains = {share: each - values[KEEP] for share, each in values.items()}
    return max(gains, key=lambda share: (_surely(gains[share]), share == KEEP))


def _surely(gain: Column) -> float:
    """What a gain is at least, up to a standard error."""
    return float(gain.mean()) - standard_error(gain)


def standard_error(values: Column) -> float:
    """Of the mean of some values; 0 of fewer than two.

    >>> standard_error(np.array([1.0, 3.0]))
    1.0
    """
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _beats_old(evidence: Evidence, way: Serving) -> bool:
    """Is it better than the old search, beyond what chance does?"""
    if way == "old" or "old" not in evidence.values:
        return True
    gained = evidence.values[way] - evidence.values["old"]
    return gained >= _error(evidence, way, "old")


def _enough_alone(evidence: Evidence) -> bool:
    """Is the new model without the old one as good as both?"""
    alone, both = evidence.values["aligned"], evidence.values["both"]
    if as_metric(evidence.metric).family == "agreement" and alone < CLOSE:
        return False
    return alone - both >= _error(evidence, "aligned", "both") - NEAR_TIE


def _error(evidence: Evidence, one: Serving, other: Serving) -> float:
    """The standard error of the difference between two ways, query by query."""
    if evidence.per_query is None:
        return 0.0
    return standard_error(evidence.per_query[one] - evidence.per_query[other])
