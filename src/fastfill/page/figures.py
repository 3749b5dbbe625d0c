"""The figures of a migration for programs that watch many things: Prometheus, OpenTelemetry.

One process serves one migration, so that no figure bears the name of the gallery: who collects
them adds where they come from. Figures that are not known at present are left out, not 0.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from fastfill.migrate import LEVELS, Progress, Status, Waits

PHASES = ("planned", "starting", "started", "completing", "complete", "rolling back", "rolled back")
WAITS = {  # how reasons begin, those of `throttle`, of `Waits` and of a worker
    "paused": "paused",
    "outside": "hours",
    "rate": "rate",
    "queries": "queries",
    "at work": "queries",
    "for the encoder": "encoder",
    "for the store": "store",
    "for rows that another worker": "workers",
}


class Figure(NamedTuple):
    """What a figure says, the names of its labels, and whether it only ever rises."""

    about: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"


FIGURES: dict[str, Figure] = {
    "rows": Figure("Rows by generation.", ("generation",)),
    "rows_stale": Figure("Rows aligned by the map before the present one."),
    "items_quarantined": Figure("Items that could not be embedded."),
    "phase": Figure("1 for the phase of the migration.", ("phase",)),
    "serving": Figure("1 for the way in which queries are answered.", ("way",)),
    "paused": Figure("1 while the operator lets all workers wait."),
    "workers": Figure("Runs that have reported lately."),
    "map_refits": Figure("How often the map was learned again.", kind="counter"),
    "last_sweep_age_seconds": Figure("Since others' writes were looked for."),
    "quality_ratio": Figure("The metric over the same with all rows new.", ("metric",)),
    "quality_band_ratio": Figure("Half the width of its 90 % band.", ("metric",)),
    "quality_measured": Figure("1 where it was measured, 0 where forecast.", ("metric",)),
    "forecast_fraction": Figure(
        "Share of rows at which a quality is expected.", ("metric", "quality")
    ),
    "encoder_refusals": Figure("How often the encoder was busy.", kind="counter"),
    "stage_rows_done": Figure("Rows of a step of start.", ("stage",)),
    "stage_rows": Figure("Rows that the step has.", ("stage",)),
    "rows_embedded": Figure("Rows that this run has written.", kind="counter"),
    "rows_per_second": Figure("Of this run."),
    "store_reconnects": Figure("How often the store was lost.", kind="counter"),
    "waiting": Figure("1 for the reason why this run waits.", ("reason",)),
    "left_seconds": Figure("Until all rows are new, at this speed."),
    "cost": Figure("Of what this run has embedded, by the prices given."),
}


class Sample(NamedTuple):
    """A value of a figure, for some values of its labels."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


@dataclass
class RunFigures:
    """What the process that works knows of its run beside the store: for its own figures."""

    progress: Progress | None = None  # the latest step of a backfill
    stage: tuple[str, int, int] | None = None  # of a start: what is done, rows done, rows in all
    events: Counter[str] = field(default_factory=Counter)
    refusals: int = 0  # how often the encoder was busy
    waits: Waits = field(default_factory=Waits)  # during a step, which tells nothing until its end
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on_event(self, event: str, details: dict[str, Any]) -> None:
        """A callback of a migration."""
        self.waits.on_event(event, details)
        with self._lock:  # workers call from threads
            self.events[event] += 1
            self.refusals += "refusals" in details

    def on_progress(self, progress: Progress) -> None:
        """A step of a backfill."""
        self.progress = progress

    def on_stage(self, name: str, done: int, total: int) -> None:
        """A step of a start."""
        self.stage = (name, done, total)


def samples(status: Status, run: RunFigures | None, now: float) -> Iterator[Sample]:
    """All values that are known at present.

    >>> status = Status("started", Progress(total=10, new=4, aligned=6), None)
    >>> [sample for sample in samples(status, None, now=0.0)][:2]
    [Sample(name='rows', value=4.0, labels=('new',)),
     Sample(name='rows', value=6.0, labels=('aligned',))]
    """
    yield from _of_store(status, now)
    yield from _quality(status)
    if run is not None:
        yield from _of_run(run)


def waiting_kind(reason: str | None) -> str | None:
    """A reason to wait as one of a few words, because a label must not have ever new values.

    >>> waiting_kind("rate limit of 100 rows/s"), waiting_kind(None)
    ('rate', None)
    >>> waiting_kind("for the encoder, which asked to try again in 42 s")
    'encoder'
    """
    if reason is None:
        return None
    return next((kind for begin, kind in WAITS.items() if reason.startswith(begin)), "other")


def _of_store(status: Status, now: float) -> Iterator[Sample]:
    """What everybody can read in the store."""
    progress, state = status.progress, status.state
    generations = ("new", "aligned", "waiting", "unmarked")
    yield from _each("rows", {one: getattr(progress, one) for one in generations})
    yield Sample("rows_stale", float(progress.stale))
    yield Sample("items_quarantined", float(len(status.quarantined)))
    yield from _each("phase", {phase: phase == status.phase for phase in PHASES})
    serves = "old" if state is None else state.serves
    yield from _each("serving", {way: way == serves for way in ("old", "aligned", "both")})
    yield Sample("paused", float(status.paused))
    alive = sum(report.alive(now) for report in status.workers.values())
    yield Sample("workers", float(alive))
    if state is not None:
        yield Sample("map_refits", float(state.refits))
    if status.swept:
        yield Sample("last_sweep_age_seconds", max(0.0, now - status.swept))


def _quality(status: Status) -> Iterator[Sample]:
    """What is expected, and what was measured."""
    expected, quality = status.forecast, status.quality
    if expected is None or quality is None:
        return
    metric = quality.metric
    yield Sample("quality_ratio", float(quality.value), (metric,))
    yield Sample("quality_band_ratio", float(quality.band), (metric,))
    yield Sample("quality_measured", float(quality.measured), (metric,))
    for level in LEVELS:
        share = float(expected.reached(level)[0])
        yield Sample("forecast_fraction", share, (metric, str(level)))


def _of_run(run: RunFigures) -> Iterator[Sample]:
    """What only the process that works knows."""
    progress = run.progress
    yield Sample("encoder_refusals", float(run.refusals))
    reason = run.waits.reason() or (None if progress is None else progress.reason)
    waiting = waiting_kind(reason)
    kinds = dict.fromkeys([*WAITS.values(), "other"])
    yield from _each("waiting", {kind: kind == waiting for kind in kinds})
    if run.stage is not None:
        stage, done, total = run.stage
        yield Sample("stage_rows_done", float(done), (stage,))
        yield Sample("stage_rows", float(total), (stage,))
    if progress is None:
        return
    yield Sample("rows_embedded", float(progress.written))
    yield Sample("rows_per_second", float(progress.rate))
    yield Sample("store_reconnects", float(progress.reconnects))
    if progress.left is not None:
        yield Sample("left_seconds", float(progress.left))
    if progress.cost:
        yield Sample("cost", float(progress.cost))


def _each(name: str, values: Mapping[str, float]) -> Iterator[Sample]:
    """One value for each value of the only label."""
    for label, value in values.items():
        yield Sample(name, float(value), (label,))
