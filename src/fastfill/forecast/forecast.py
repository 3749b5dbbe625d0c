"""`Forecast`: the backfilling curve of a gallery, predicted from the pairs alone, with a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align import FitOptions, Serving, check_serving
from fastfill.errors import InputError, ShapeError
from fastfill.evaluate.curves import check_fractions, last_crossing
from fastfill.features import Distance, Features, Pairs
from fastfill.metrics import as_metric

LEVEL = 0.9  # share of the true points that the band should hold
KEPT = 100  # draws that are written: enough for the range of `reached`


class Reached(NamedTuple):
    """The fraction of the gallery at which a quality is reached for good, and its 90 % range."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, eq=False)
class Forecast:
    """What a metric will be at each backfilled fraction: the middle, and a 90 % band around it.

    >>> forecast = Forecast("map", [0, 0.5, 1], [0.4, 0.6, 0.7], [0.38, 0.58, 0.68],
    ...                     [0.42, 0.62, 0.72], items=10_000, pairs=500)
    >>> forecast
    Forecast(map 0.400 → 0.700, 10,000 items from 500 pairs)
    >>> [round(value, 3) for value in forecast.at(0.25)]
    [0.5, 0.48, 0.52]
    """

    metric: str
    fractions: NDArray[np.float64]  # (p,) rising from 0 to 1
    values: NDArray[np.float64]  # (p,)
    lower: NDArray[np.float64]  # (p,)
    upper: NDArray[np.float64]  # (p,)
    items: int  # of the gallery, the pairs among them
    pairs: int
    draws: NDArray[np.float64] | None = None  # (b, p) curves that are as likely, for `reached`
    doubt: str = ""  # why its band may not hold, in one sentence; empty: it is to be trusted
    queries: int = 0  # real ones that it was made with; 0: pairs have played them
    serving: Serving = "aligned"  # how the queries are answered
    # (1 + b,) what the new model alone gives when all is new: the middle, and for each draw. None:
    # where the curve ends.
    alone: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        check_serving(self.serving)
        for field in ("fractions", "values", "lower", "upper", "draws", "alone"):
            if getattr(self, field) is not None:
                array = np.array(getattr(self, field), dtype=np.float64)
                array.flags.writeable = False
                object.__setattr__(self, field, array)
        as_metric(self.metric)
        points = self.fractions.shape
        if len(points) != 1 or not points[0]:
            raise ShapeError(f"The fractions of a forecast are a list, got shape {points}.")
        check_fractions(self.fractions)
        for field in ("values", "lower", "upper"):
            if getattr(self, field).shape != points:
                raise ShapeError(
                    f"A forecast has one of {field} for each fraction, got "
                    f"{getattr(self, field).shape} for {points}."
                )
        if self.draws is not None and self.draws.shape[1:] != points:
            raise ShapeError(f"draws is {self.draws.shape}, expected (curves, {points[0]}).")
        curves = 1 + (0 if self.draws is None else len(self.draws))
        if self.alone is not None and self.alone.shape != (curves,):
            raise ShapeError(f"alone is {self.alone.shape}, expected ({curves},): one each curve.")

    def __repr__(self) -> str:
        return (
            f"Forecast({self.metric} {self.values[0]:.3f} → {self.values[-1]:.3f}, "
            f"{self.items:,} items from {self.pairs:,} pairs)"
        )

    @property
    def trusted(self) -> bool:
        """Does the band hold what it promises, as far as that can be told?"""
        return not self.doubt

    @property
    def holds_for(self) -> str:
        """Whose searches it is about."""
        return "queries like those given" if self.queries else "queries that are like the items"

    @property
    def quality(self) -> NDArray[np.float64]:
        """The values divided by that of the new model alone, the whole gallery new, (p,)."""
        return np.asarray(self._qualities()[0])

    def _qualities(self) -> NDArray[np.float64]:
        """That of the middle, then of each of the draws, (1 + b, p)."""
        draws = self.values[:0].reshape(0, len(self.values)) if self.draws is None else self.draws
        curves = np.concatenate([self.values[None], draws])
        whole = curves[:, -1] if self.alone is None else self.alone
        if whole.min() <= 0:
            raise InputError(
                f"{self.metric} is {whole.min()} when all is new: no quality to divide by."
            )
        return np.asarray(curves / whole[:, None])

    def at(self, fraction: float) -> tuple[float, float, float]:
        """Value, lower and upper end of the band at a fraction; straight lines between points."""
        low, high = self.fractions[0], self.fractions[-1]
        if not low <= fraction <= high:
            raise InputError(f"The fraction {fraction} is outside the forecast, {low} to {high}.")
        value, lower, upper = (
            float(np.interp(fraction, self.fractions, line))
            for line in (self.values, self.lower, self.upper)
        )
        return value, lower, upper

    def reached(self, quality: float) -> Reached:
        """From which fraction on the quality is never below `quality` again.

        1.0 where that is so only at the very end, when the new model serves alone.

        >>> forecast = Forecast("map", [0, 0.5, 1], [0.25, 0.75, 1], [0.25, 0.75, 1],
        ...                     [0.25, 0.75, 1], items=100, pairs=20)
        >>> forecast.reached(0.75)
        Reached(low=0.5, middle=0.5, high=0.5)
        """
        if not 0 <= quality <= 1:
            raise InputError(f"A quality lies between 0 and 1, got {quality}.")
        middle, *each = (_reached(self.fractions, one, quality) for one in self._qualities())
        if not each:
            return Reached(middle, middle, middle)
        low, high = np.quantile(each, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Reached(min(float(low), middle), middle, max(float(high), middle))

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers, with some of the draws."""
        return {
            "metric": self.metric,
            "items": self.items,
            "pairs": self.pairs,
            "fractions": self.fractions.tolist(),
            "values": self.values.tolist(),
            "lower": self.lower.tolist(),
            "upper": self.upper.tolist(),
            "trusted": self.trusted,
            "doubt": self.doubt,
            "queries": self.queries,
            "holds_for": self.holds_for,
            "serving": self.serving,
            "alone": None if self.alone is None else np.round(self.alone[: 1 + KEPT], 4).tolist(),
            "draws": None if self.draws is None else np.round(self.draws[:KEPT], 4).tolist(),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Forecast:
        """The inverse of `to_json`.

        >>> forecast = Forecast("map", [0, 1], [0.4, 0.7], [0.3, 0.6], [0.5, 0.8], 100, 20)
        >>> Forecast.from_json(forecast.to_json())
        Forecast(map 0.400 → 0.700, 100 items from 20 pairs)
        """
        try:
            return cls(
                plain["metric"], plain["fractions"], plain["values"], plain["lower"],
                plain["upper"], int(plain["items"]), int(plain["pairs"]), plain.get("draws"),
                str(plain.get("doubt", "")), int(plain.get("queries", 0)),
                plain.get("serving", "aligned"), plain.get("alone"),
            )  # fmt: skip
        except (KeyError, TypeError) as error:
            raise InputError(f"This is not a forecast: it lacks {error}.") from None

    @classmethod
    def from_pairs(
        cls,
        pairs: Pairs,
        items: int,
        *,
        metric: str = "agreement@10",
        policy: str = "mixed",
        refits: Sequence[float] = (),
        distance: Distance = "l2",
        fit: FitOptions | None = None,
        head: ArrayLike | None = None,
        gallery: ArrayLike | None = None,
        gallery_labels: ArrayLike | None = None,
        taught: Pairs | None = None,
        done: ArrayLike | None = None,
        queries: Features | None = None,
        queries_old: Features | None = None,
        serving: Serving = "aligned",
        seed: int | None = None,
        progress: bool = False,
    ) -> Forecast:
        """Rehearse the migration on the pairs: what the curve of the whole gallery will be.

        `items` is the size of the gallery, the pairs among them; `gallery` are the old vectors of
        the other items or of a random sample of them, `gallery_labels` their labels. A metric with
        labels needs those of the pairs too. `refits` are the fractions at which the map is learned
        again from all pairs so far; `fit` and `head` say how it is learned (see `Alignment.fit`). A
        `seed` goes before that of the fit.

        `pairs` must be a random sample, since they stand for all queries. In the middle of a
        migration there are more, which an order has picked: `taught` are pairs that the map is
        learned from and nothing else, and `done` says which rows of `gallery` are new already.

        A forecast of agreement is not `trusted` where the map explains little of the new vectors,
        as one of few pairs does on documents: `doubt` says so.

        Pairs play the queries, so that the forecast is about queries that are like the items
        (`holds_for`). Where users ask for something else, as they do of documents, agreement may
        differ by tens of points: give a sample of their `queries`, embedded by the new model, with
        labels where the metric needs them.

        `serving` says how the queries are answered: by the new model on the added vectors
        (`aligned`), by both models fused (`both`) or by the old one (`old`). The last two need
        `queries_old`, the queries under the old model, where there are `queries`. Quality is then
        relative to the new model alone with all items new.
        """
        from fastfill.forecast.rehearsal import Rehearsal

        rehearsal = Rehearsal(
            pairs, items, distance=distance, fit=fit, head=head, gallery=gallery,
            gallery_labels=gallery_labels, taught=taught, done=done, queries=queries,
            queries_old=queries_old, seed=seed,
        )  # fmt: skip
        return rehearsal.forecast(metric, policy, refits, progress, serving)


def _reached(fractions: NDArray[np.float64], quality: NDArray[np.float64], target: float) -> float:
    crossing = last_crossing(fractions, quality, target)
    return 1.0 if crossing is None else crossing
