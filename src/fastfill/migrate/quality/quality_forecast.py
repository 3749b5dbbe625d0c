"""`QualityForecast`: what quality to expect of a migration, what was measured, and what it is now.

Quality is a metric on the gallery as it is now over the same metric with all items new. The second
can only be forecast until all are new. With labels the first is measured on the sample, and the
forecast is corrected by it: if it was off by δ when a fraction f was new, f·δ is added to its end,
so that at 100 % what is measured counts alone. Without labels (`agreement@k`) the right neighbours
are not known before the end, and both are forecast.

With labels the forecast is about the new model's queries on the added vectors. While the gallery is
served in another way, with both models, that is measured too, and is what quality means. Without
labels the forecast is about the way in which the gallery is served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastfill.align import Serving
from fastfill.forecast import Forecast
from fastfill.gallery import JsonDocument
from fastfill.migrate.ledger.serving_record import WORDS as SERVED_WITH
from fastfill.migrate.progress import Quality

LEVELS = (0.95, 0.99)  # qualities that people are told of
BAND = (0.05, 0.95)  # a 90 % band


class Measured(NamedTuple):
    """One measurement: how much of the gallery and of the sample was new, and the metric."""

    fraction: float
    sample: float
    value: float  # of the new model's queries, which the forecast is about
    served: float | None = None  # of what serves, where that is another way


@dataclass(frozen=True, eq=False)
class QualityForecast(JsonDocument):
    """A forecast for the sample, where its beginning lies in the gallery, and measurements.

    >>> forecast = Forecast("map", [0, 0.5, 1], [0.4, 0.6, 0.8], [0.4, 0.6, 0.8], [0.4, 0.6, 0.8],
    ...                     items=100, pairs=20)
    >>> expected = QualityForecast(forecast, label="album", policy="sigma", first=0.2)
    >>> round(expected.reached(0.75)[0], 3)
    0.5
    >>> measured = expected.with_measured(Measured(0.5, 0.5, 0.7))  # better than forecast by 0.1
    >>> round(measured.quality(0.5).value, 3), round(0.7 / (0.8 + 0.5 * 0.1), 3)
    (0.824, 0.824)
    """

    NAME: ClassVar[str] = "forecast"

    forecast: Forecast  # fractions are those of the sample
    label: str | None
    policy: str
    first: float  # share of the gallery that the queries are
    measured: tuple[Measured, ...] = ()
    alignment: str | None = None  # the map that is forecast
    learned: int = 0  # pairs that it was rehearsed with, beside the queries
    old_search: float | None = None  # the metric of the search that people had

    def with_measured(self, measured: Measured) -> QualityForecast:
        """One measurement more."""
        return replace(self, measured=(*self.measured, measured))

    @property
    def subject(self) -> tuple[str, str | None, str, Serving]:
        """What it is about: another subject needs another forecast."""
        return self.forecast.metric, self.label, self.policy, self.forecast.serving

    @property
    def latest(self) -> Measured | None:
        """The last measurement."""
        return self.measured[-1] if self.measured else None

    def quality(self, sample: float) -> Quality:
        """When this fraction of the sample is new; the latest measurement goes before it."""
        if self.latest is not None:
            sample = self.latest.sample
        curves = _now_and_end(self.corrected(), sample)  # (1 + draws, 2): now, and at the end
        if self.latest is not None and self.latest.served is not None:
            curves[:, 0] = self.latest.served
        ratios = curves[:, 0] / np.maximum(curves[:, 1], 1e-12)
        low, high = np.quantile(ratios, BAND)
        measured = self.latest is not None
        return Quality(self.forecast.metric, float(ratios[0]), float(high - low) / 2, measured)

    def reached(self, quality: float) -> tuple[float, float]:
        """The fraction of the gallery at which a quality is reached, and half its 90 % range."""
        low, middle, high = map(self.of_gallery, self.corrected().reached(quality))
        return middle, (high - low) / 2

    def of_gallery(self, sample: float) -> float:
        """The fraction of the gallery when this fraction of the sample is new."""
        start = self.forecast.pairs / self.forecast.items
        done = 1.0 if start >= 1 else max(0.0, (sample - start) / (1 - start))
        return self.first + done * (1 - self.first)

    def of_sample(self, fraction: float) -> float:
        """The fraction of the sample when this fraction of the gallery is new."""
        start = self.forecast.pairs / self.forecast.items
        done = 1.0 if self.first >= 1 else (fraction - self.first) / (1 - self.first)
        return start + float(np.clip(done, 0, 1)) * (1 - start)

    def corrected(self) -> Forecast:
        """The forecast from the latest measurement on, moved to where that is."""
        forecast, latest = self.forecast, self.latest
        if latest is None:
            return forecast
        after = forecast.fractions[forecast.fractions > latest.sample]
        points = np.concatenate([[latest.sample], after])
        curves = np.stack([np.interp(points, forecast.fractions, y) for y in _all(forecast)])
        gone = (points - latest.sample) / max(1 - latest.sample, 1e-12)  # from 0 to 1
        curves += (latest.value - curves[:, :1]) * (1 - (1 - latest.sample) * gone)
        lower, upper = np.quantile(curves, BAND, axis=0)
        middle = curves[0]
        return Forecast(
            forecast.metric, points, middle, np.minimum(lower, middle), np.maximum(upper, middle),
            forecast.items, forecast.pairs, curves[1:] if len(curves) > 1 else None,
            forecast.doubt, forecast.queries,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """For the store and for programs."""
        return {
            "forecast": self.forecast.to_json(),
            "label": self.label,
            "policy": self.policy,
            "first": self.first,
            "measured": [list(each) for each in self.measured],
            "alignment": self.alignment,
            "learned": self.learned,
            "old_search": self.old_search,
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], version: int = 1) -> Self:
        """The same in all versions."""
        return cls(
            Forecast.from_json(plain["forecast"]),
            plain["label"],
            plain["policy"],
            plain["first"],
            tuple(Measured(*each) for each in plain["measured"]),
            plain["alignment"],
            plain["learned"],
            plain.get("old_search"),
        )

    def __str__(self) -> str:
        text = f"{self.forecast.metric}: {self._levels()}"
        if self.forecast.serving != "aligned":
            text += f", served with {SERVED_WITH[self.forecast.serving]}"
        doubt = f". Not to be trusted: {self.forecast.doubt}" if self.forecast.doubt else ""
        if self.latest is None:
            return f"{text} (forecast from {self.forecast.pairs + self.learned:,} pairs){doubt}"
        value, lower, upper = self.forecast.at(min(self.latest.sample, 1.0))
        served = "" if self.latest.served is None else f", {self.latest.served:.3f} as it is served"
        return (
            f"{text}; measured {self.latest.value:.3f} at {100 * self.latest.fraction:.1f} %"
            f"{served}, forecast {value:.3f} ({lower:.3f} to {upper:.3f}){doubt}"
        )

    def _levels(self) -> str:
        """When each level is reached; of those that are, the highest."""
        now = None if self.latest is None else self.of_gallery(self.latest.sample)
        behind, ahead = [], []
        for level in LEVELS:
            at, half = self.reached(level)
            if now is not None and at <= now and not half:
                behind = [f"{100 * level:.0f} % of the new model is reached"]
            else:
                ahead.append(f"{100 * level:.0f} % at {100 * at:.0f} ± {100 * half:.0f} %")
        if not behind:
            ahead[0] = ahead[0].replace(" at ", " of the new model at ")
        return ", ".join(behind + ahead)


def _all(forecast: Forecast) -> Sequence[NDArray[np.float64]]:
    """The middle, then the curves that are as likely."""
    return [forecast.values, *(() if forecast.draws is None else forecast.draws)]


def _now_and_end(forecast: Forecast, sample: float) -> NDArray[np.float64]:
    """(1 + b, 2): the metric as it is served now, and of the new model alone in the end."""
    curves = np.stack(_all(forecast))
    now = [np.interp(sample, forecast.fractions, curve) for curve in curves]
    return np.stack([now, curves[:, -1] if forecast.alone is None else forecast.alone], axis=1)
