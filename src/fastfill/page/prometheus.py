"""A migration in Prometheus' text format."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from fastfill.errors import MissingExtraError
from fastfill.migrate import Status
from fastfill.page.figures import FIGURES, RunFigures, Sample, samples

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4"


def exposition(status: Status, run: RunFigures | None = None, now: float | None = None) -> str:
    """The text that a scrape gets; needs the extra `metrics`.

    >>> from fastfill.migrate import Progress
    >>> status = Status("started", Progress(total=10, new=4, aligned=6), None)
    >>> [line for line in exposition(status).splitlines() if line.startswith("fastfill_rows{")]
    ['fastfill_rows{generation="new"} 4.0', 'fastfill_rows{generation="aligned"} 6.0',
     'fastfill_rows{generation="waiting"} 0.0', 'fastfill_rows{generation="unmarked"} 0.0']
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise MissingExtraError("prometheus-client", "metrics", "Serving metrics") from None

    known = tuple(samples(status, run, time.time() if now is None else now))
    registry = CollectorRegistry()
    registry.register(cast("Any", _Collector(known)))
    text: bytes = generate_latest(registry)
    return text.decode()


@dataclass(frozen=True, eq=False)  # a registry looks collectors up by identity
class _Collector:
    """What Prometheus' client calls a collector."""

    known: tuple[Sample, ...]

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, values in groupby(self.known, lambda sample: sample.name):
            figure = FIGURES[name]
            kind = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
            family = kind(f"fastfill_{name}", figure.about, labels=figure.labels)
            for sample in values:
                family.add_metric(sample.labels, sample.value)
            yield family
