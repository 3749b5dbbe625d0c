"""`Outlook`: the forecast of a migration, what was measured so far, and the quality now.

Quality is a metric on the gallery as it is now over the same metric with all items new. The second
can only be forecast until all are new. With labels the first is measured on the panel, and the
forecast is corrected by it: if it was off by δ when a fraction f was new, f·δ is added to its end,
so that at 100 % what is measured counts alone. Without labels (`agreement@k`) the right neighbours
are not known before the end, and both are forecast.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfill.forecast import Forecast
from fastfill.gallery import Documents
from fastfill.migrate.progress import Quality

LEVELS = (0.95, 0.99)  # qualities that people are told of
BAND = (0.05, 0.95)  # a 90 % band


class Measured(NamedTuple):
    """One measurement: how much of the gallery and of the panel was new, and the metric."""

    fraction: float
    panel: float
    value: float


@dataclass(frozen=True, eq=False)
class Outlook:
    """A forecast for the panel, where its beginning lies in the gallery, and measurements.

    >>> forecast = Forecast("map", [0, 0.5, 1], [0.4, 0.6, 0.8], [0.4, 0.6, 0.8], [0.4, 0.6, 0.8],
    ...                     items=100, pairs=20)
    >>> outlook = Outlook(forecast, label="album", policy="sigma", first=0.2)
    >>> round(outlook.reached(0.75)[0], 3)
    0.5
    >>> found = outlook.with_measured(Measured(0.5, 0.5, 0.7))  # better than forecast by 0.1
    >>> round(found.quality(0.5).value, 3), round(0.7 / (0.8 + 0.5 * 0.1), 3)
    (0.824, 0.824)
    """

    forecast: Forecast  # fractions are those of the panel
    label: str | None
    policy: str
    first: float  # share of the gallery that the queries are
    measured: tuple[Measured, ...] = ()
    alignment: str | None = None  # the map that is forecast
    learned: int = 0  # pairs that it was rehearsed with, beside the queries

    def with_measured(self, found: Measured) -> Outlook:
        """One measurement more."""
        return replace(self, measured=(*self.measured, found))

    @property
    def latest(self) -> Measured | None:
        """The last measurement."""
        return self.measured[-1] if self.measured else None

    def quality(self, panel: float) -> Quality:
        """When this fraction of the panel is new; the latest measurement goes before it."""
        if self.latest is not None:
            panel = self.latest.panel
        lines = _lines(self.corrected(), panel)  # (1 + draws, 2): now, and at the end
        ratios = lines[:, 0] / np.maximum(lines[:, 1], 1e-12)
        low, high = np.quantile(ratios, BAND)
        measured = self.latest is not None
        return Quality(self.forecast.metric, float(ratios[0]), float(high - low) / 2, measured)

    def reached(self, quality: float) -> tuple[float, float]:
        """The fraction of the gallery at which a quality is reached, and half its 90 % range."""
        low, middle, high = map(self.of_gallery, self.corrected().reached(quality))
        return middle, (high - low) / 2

    def of_gallery(self, panel: float) -> float:
        """The fraction of the gallery when this fraction of the panel is new."""
        start = self.forecast.pairs / self.forecast.items
        done = 1.0 if start >= 1 else max(0.0, (panel - start) / (1 - start))
        return self.first + done * (1 - self.first)

    def of_panel(self, fraction: float) -> float:
        """The fraction of the panel when this fraction of the gallery is new."""
        start = self.forecast.pairs / self.forecast.items
        done = 1.0 if self.first >= 1 else (fraction - self.first) / (1 - self.first)
        return start + float(np.clip(done, 0, 1)) * (1 - start)

    def corrected(self) -> Forecast:
        """The forecast from the latest measurement on, moved to where that is."""
        forecast, latest = self.forecast, self.latest
        if latest is None:
            return forecast
        after = forecast.fractions[forecast.fractions > latest.panel]
        points = np.concatenate([[latest.panel], after])
        lines = np.stack([np.interp(points, forecast.fractions, y) for y in _all(forecast)])
        gone = (points - latest.panel) / max(1 - latest.panel, 1e-12)  # from 0 to 1
        lines += (latest.value - lines[:, :1]) * (1 - (1 - latest.panel) * gone)
        lower, upper = np.quantile(lines, BAND, axis=0)
        middle = lines[0]
        return Forecast(
            forecast.metric, points, middle, np.minimum(lower, middle), np.maximum(upper, middle),
            forecast.items, forecast.pairs, lines[1:] if len(lines) > 1 else None,
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
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Outlook:
        """The inverse of `to_json`."""
        return cls(
            Forecast.from_json(plain["forecast"]),
            plain["label"],
            plain["policy"],
            plain["first"],
            tuple(Measured(*each) for each in plain["measured"]),
            plain.get("alignment"),
            plain.get("learned", 0),
        )

    def __str__(self) -> str:
        when = [
            f"{100 * level:.0f} % of the new model at {100 * at:.0f} ± {100 * half:.0f} %"
            for level, (at, half) in ((level, self.reached(level)) for level in LEVELS)
        ]
        text = f"{self.forecast.metric}: {when[0]}, {when[1].replace(' of the new model', '')}"
        if self.latest is None:
            return f"{text} (forecast from {self.forecast.pairs + self.learned:,} pairs)"
        value, lower, upper = self.forecast.at(min(self.latest.panel, 1.0))
        return (
            f"{text}; measured {self.latest.value:.3f} at {100 * self.latest.fraction:.1f} %, "
            f"forecast {value:.3f} ({lower:.3f} to {upper:.3f})"
        )


def _all(forecast: Forecast) -> Sequence[NDArray[np.float64]]:
    """The middle, then the curves that are as likely."""
    return [forecast.values, *(() if forecast.draws is None else forecast.draws)]


def _lines(forecast: Forecast, panel: float) -> NDArray[np.float64]:
    return np.array([[np.interp(panel, forecast.fractions, y), y[-1]] for y in _all(forecast)])


def load_outlook(documents: Documents, name: str) -> Outlook | None:
    """The outlook that is kept in the store, or None."""
    document = documents.load(name)
    return None if document is None else Outlook.from_json(json.loads(document.value))
