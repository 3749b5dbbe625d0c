"""A migration in Prometheus' text format.

One process serves one migration, so that no figure bears the name of the gallery: Prometheus adds
where it has scraped it. Figures that are not known at present are left out, not 0.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from fastfill.errors import MissingExtraError
from fastfill.migrate import LEVELS, Progress, Status

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4"
PHASES = ("planned", "starting", "started", "completing", "complete", "rolling back", "rolled back")
WAITS = {  # how the reasons of `throttle` begin
    "paused": "paused",
    "outside": "hours",
    "rate": "rate",
    "queries": "queries",
    "at": "queries",
}


@dataclass
class RunFigures:
    """What the process that works knows of its run beside the store: for its own figures."""

    progress: Progress | None = None  # the latest step of a backfill
    stage: tuple[str, int, int] | None = None  # of a start: what is done, rows done, rows in all
    events: Counter[str] = field(default_factory=Counter)
    refusals: int = 0  # how often the encoder was busy
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on_event(self, event: str, details: dict[str, Any]) -> None:
        """A callback of a migration."""
        with self._lock:  # workers call from threads
            self.events[event] += 1
            self.refusals += "refusals" in details

    def on_progress(self, progress: Progress) -> None:
        """A step of a backfill."""
        self.progress = progress

    def on_stage(self, name: str, done: int, total: int) -> None:
        """A step of a start."""
        self.stage = (name, done, total)


def exposition(status: Status, run: RunFigures | None = None, now: float | None = None) -> str:
    """The text that a scrape gets; needs the extra `metrics`.

    >>> status = Status("started", Progress(total=10, new=4, aligned=6), None)
    >>> [line for line in exposition(status).splitlines() if line.startswith("fastfill_rows{")]
    ['fastfill_rows{generation="new"} 4.0', 'fastfill_rows{generation="aligned"} 6.0',
     'fastfill_rows{generation="waiting"} 0.0', 'fastfill_rows{generation="unmarked"} 0.0']
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise MissingExtraError("prometheus-client", "metrics", "Serving metrics") from None

    registry = CollectorRegistry()
    registry.register(cast("Any", _Figures(status, run, time.time() if now is None else now)))
    text: bytes = generate_latest(registry)
    return text.decode()


@dataclass(frozen=True, eq=False)  # a registry looks collectors up by identity
class _Figures:
    """What Prometheus' client calls a collector."""

    status: Status
    run: RunFigures | None
    now: float

    def collect(self) -> Iterator[Metric]:
        yield from _of_store(self.status, self.now)
        if self.run is not None:
            yield from _of_run(self.run)


def waiting_kind(reason: str | None) -> str | None:
    """A reason to wait as one of a few words, because a label must not have ever new values.

    >>> waiting_kind("rate limit of 100 rows/s"), waiting_kind(None)
    ('rate', None)
    """
    return None if reason is None else WAITS.get(reason.split()[0], "other")


def _of_store(status: Status, now: float) -> Iterator[Metric]:
    """What everybody can read in the store."""
    progress, state = status.progress, status.state
    yield _labelled(
        "rows", "Rows by generation.", "generation",
        {"new": progress.new, "aligned": progress.aligned, "waiting": progress.waiting,
         "unmarked": progress.unmarked},
    )  # fmt: skip
    yield _gauge("rows_stale", "Rows aligned by the map before the present one.", progress.stale)
    yield _gauge("items_quarantined", "Items that could not be embedded.", len(status.quarantined))
    phases = {phase: phase == status.phase for phase in PHASES}
    yield _labelled("phase", "1 for the phase of the migration.", "phase", phases)
    serves = "old" if state is None else state.serves
    ways = {way: way == serves for way in ("old", "aligned", "both")}
    yield _labelled("serving", "1 for the way in which queries are answered.", "way", ways)
    yield _gauge("paused", "1 while the operator lets all workers wait.", status.paused)
    yield _gauge(
        "workers", "Runs that have reported lately.",
        sum(report.alive(now) for report in status.workers.values()),
    )  # fmt: skip
    if state is not None:
        yield _counter("map_refits", "How often the map was learned again.", state.refits)
    if status.swept:
        age = max(0.0, now - status.swept)
        yield _gauge("last_sweep_age_seconds", "Since others' writes were looked for.", age)
    yield from _quality(status)


def _quality(status: Status) -> Iterator[Metric]:
    """What is expected, and what was measured."""
    from prometheus_client.core import GaugeMetricFamily

    expected = status.forecast
    if expected is None:
        return
    metric = expected.forecast.metric
    quality = expected.quality(expected.of_sample(status.progress.fraction))
    for name, about, value in (
        ("quality_ratio", "The metric over the same with all rows new.", quality.value),
        ("quality_band_ratio", "Half the width of its 90 % band.", quality.band),
        ("quality_measured", "1 where it was measured, 0 where forecast.", quality.measured),
    ):
        yield _labelled(name, about, "metric", {metric: value})
    at = GaugeMetricFamily(
        "fastfill_forecast_fraction", "Share of rows at which a quality is expected.",
        labels=["metric", "quality"],
    )  # fmt: skip
    for level in LEVELS:
        at.add_metric([metric, str(level)], expected.reached(level)[0])
    yield at


def _of_run(run: RunFigures) -> Iterator[Metric]:
    """What only the process that works knows."""
    progress = run.progress
    yield _counter("encoder_refusals", "How often the encoder was busy.", run.refusals)
    if run.stage is not None:
        stage, done, total = run.stage
        yield _labelled("stage_rows_done", "Rows of a step of start.", "stage", {stage: done})
        yield _labelled("stage_rows", "Rows that the step has.", "stage", {stage: total})
    if progress is None:
        return
    yield _counter("rows_embedded", "Rows that this run has written.", progress.written)
    yield _gauge("rows_per_second", "Of this run.", progress.rate)
    yield _counter("store_reconnects", "How often the store was lost.", progress.reconnects)
    waiting = waiting_kind(progress.reason)
    kinds = {kind: kind == waiting for kind in dict.fromkeys([*WAITS.values(), "other"])}
    yield _labelled("waiting", "1 for the reason why this run waits.", "reason", kinds)
    if progress.left is not None:
        yield _gauge("left_seconds", "Until all rows are new, at this speed.", progress.left)
    if progress.cost:
        yield _gauge("cost", "Of what this run has embedded, by the prices given.", progress.cost)


def _gauge(name: str, about: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"fastfill_{name}", about, value=float(value))


def _counter(name: str, about: str, value: float) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(f"fastfill_{name}", about, value=float(value))


def _labelled(name: str, about: str, label: str, values: dict[str, Any]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"fastfill_{name}", about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], float(value))
    return family
