"""`Watch`: measures quality while a backfill runs, and says when it is enough."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field, replace

import numpy as np

from fastfill.align import FitOptions, relearned_by
from fastfill.errors import InputError, OrderError
from fastfill.features import Pairs
from fastfill.forecast import Forecast
from fastfill.gallery import State, update
from fastfill.metrics import as_metric
from fastfill.migrate.job import Job, documents_of
from fastfill.migrate.notes import FORECAST, PANEL, read_note
from fastfill.migrate.outlook import Measured, Outlook, load_outlook
from fastfill.migrate.pairs import id_hashes, read_pairs
from fastfill.migrate.panel import LEAST_QUERIES, Look, look
from fastfill.migrate.progress import Progress, Quality

MEASURE_EVERY, AT_LEAST_EVERY = 0.01, 0.05  # of the rows
BUSY = 10  # between these two, measuring takes at most one part in so many of the time
MOST_TAUGHT = 5_000  # pairs that a forecast is rehearsed with beside the queries
AGREEMENT = "agreement@10"


@dataclass(frozen=True)
class Aim:
    """Which quality is watched, and which is enough.

    >>> Aim.of(0.99, None, "album")
    Aim(until=0.99, metric='map', label='album')
    """

    until: float | None
    metric: str
    label: str | None

    @classmethod
    def of(cls, until: float | None, metric: str | None, label: str | None) -> Aim:
        """Checked: a metric with labels needs their column, and agreement is never a surprise."""
        if until is not None and not 0 < until <= 1:
            raise InputError(f"--until is a share of the new model's quality (0.99), not {until}.")
        if metric is None and label is None:
            raise InputError(
                "Quality in which metric? Name the column that tells which answers are right "
                "(--label album), or without one say --metric agreement@10: the share of the "
                "10 neighbours by the new model that are found, which reaches 0.99 only near the "
                "end."
            )
        name = as_metric(metric or "map").name
        labelled = not name.startswith("agreement")
        if labelled and label is None:
            raise InputError(f"To measure {name}, name the column of the labels with --label.")
        return cls(until, name, label if labelled else None)


@dataclass
class Watch:
    """One aim, seen by all workers of a run."""

    job: Job
    state: State
    aim: Aim
    refit: float | None = None
    quality: Quality | None = None  # the latest
    _rows: int = 0  # new rows at the latest measurement
    _next: float = 0.0
    _renew_next: float = 0.0  # when a forecast may be made anew
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def enough(self, progress: Progress) -> str | None:
        """Why to end, if quality is what was asked for; measures now and then."""
        if self._due(progress) and self._lock.acquire(blocking=False):
            try:
                self.measure(progress)
            finally:
                self._lock.release()
        until, quality = self.aim.until, self.quality
        reached = until is not None and quality is not None and quality.value >= until
        return f"{quality} in {self.aim.metric} reached" if reached else None

    def _due(self, progress: Progress) -> bool:
        gained = (progress.new - self._rows) / max(progress.total, 1)
        rested = time.monotonic() >= self._next
        return self.quality is None or gained >= (MEASURE_EVERY if rested else AT_LEAST_EVERY)

    def measure(self, progress: Progress, last: bool = False) -> Quality:
        """Look at the panel and at the forecast, and keep what was found in the store.

        The forecast of a map that was replaced is made anew, at the latest at the `last` look.
        """
        began = time.monotonic()
        self.state = self.job.state
        outlook = outlook_of(
            self.job, self.state, self.aim, self.refit, renew=last or began >= self._renew_next
        )
        if outlook.alignment == self.state.alignment:
            self._renew_next = time.monotonic() + BUSY * (time.monotonic() - began)
        panel = outlook.of_panel(progress.fraction)
        if self.aim.label is not None:
            seen = look(self.job, self.state, self.aim.label)
            panel = seen.fraction
            value = seen.measure(self.aim.metric, self.state)
            outlook = outlook.with_measured(Measured(progress.fraction, panel, value))
            _keep(self.job, outlook)
        self.quality = outlook.quality(panel)
        self._rows = progress.new
        self._next = time.monotonic() + BUSY * (time.monotonic() - began)
        return self.quality


def outlook_of(
    job: Job, state: State, aim: Aim, refit: float | None = None, renew: bool = True
) -> Outlook:
    """The outlook that is kept in the store, made anew where it is about something else.

    Of another map than the present one it is made anew too if `renew` says so; what was measured
    stays.
    """
    kept = load_outlook(job.store, FORECAST)
    if kept is None or (kept.forecast.metric, kept.label, kept.policy) != (
        aim.metric,
        aim.label,
        state.policy,
    ):
        return _keep(job, _make(job, state, aim, refit))
    if kept.alignment == state.alignment or not renew:
        return kept
    return _keep(job, replace(_make(job, state, aim, refit), measured=kept.measured))


def can_forecast(job: Job) -> bool:
    """Are there random rows that are new already?"""
    return len(read_note(job.store, PANEL).get("queries", [])) >= LEAST_QUERIES


def _keep(job: Job, outlook: Outlook) -> Outlook:
    update(job.store, FORECAST, lambda _: json.dumps(outlook.to_json()).encode())
    return outlook


def _make(job: Job, state: State, aim: Aim, refit: float | None) -> Outlook:
    seen = look(job, state, aim.label)
    first = len(seen.asks) / max(job.store.describe().rows, 1)
    steps = tuple(f for f in _refits(refit, first, seen.first) if f > seen.fraction)
    taught = _taught(job, state, seen)
    try:
        forecast = _forecast(job, state, aim, seen, taught, state.policy, steps)
    except OrderError:  # an order that needs what pairs do not have, such as a classifier
        forecast = _forecast(job, state, aim, seen, taught, "random", steps)
    return Outlook(
        forecast,
        aim.label,
        state.policy,
        first,
        alignment=state.alignment,
        learned=0 if taught is None else len(taught),
    )


def _taught(job: Job, state: State, seen: Look) -> Pairs | None:
    """Pairs that the present map was learned from, without the queries; None: there are none."""
    document = job.store.load(documents_of(state.alignment or "")[1])
    if document is None or not document.value:  # a map of elsewhere
        return None
    pairs = read_pairs(job, state)
    hashes = id_hashes(pairs.old.ids)
    queries = id_hashes(seen.rows.ids[seen.asks])
    known = np.isin(hashes, np.frombuffer(document.value, dtype=np.uint64))
    rows = np.flatnonzero(known & ~np.isin(hashes, queries))
    rows = np.random.default_rng(len(rows)).permutation(rows)[:MOST_TAUGHT]
    return pairs.take(np.sort(rows)) if len(rows) else None


def _forecast(
    job: Job,
    state: State,
    aim: Aim,
    seen: Look,
    taught: Pairs | None,
    policy: str,
    refits: tuple[float, ...],
) -> Forecast:
    options = FitOptions.from_json(state.learning.get("options", {}))
    labels = None if seen.labels is None else seen.labels[seen.others]
    return Forecast.from_pairs(
        seen.pairs(),
        len(seen.rows),
        metric=aim.metric,
        policy=policy,
        refits=refits,
        distance=state.distance,
        fit=replace(options, method=relearned_by(job.alignment(state).method)),
        gallery=seen.rows.old[seen.others] if len(seen.others) else None,
        gallery_labels=labels,
        taught=taught,
        done=seen.new[seen.others] if len(seen.others) else None,
    )


def _refits(step: float | None, first: float, panel: float) -> tuple[float, ...]:
    """Fractions of the panel at which the map will be learned again."""
    if step is None or first >= 1:
        return ()
    fractions = [step * number for number in range(1, round(1 / step) + 1)]
    return tuple(
        panel + (f - first) / (1 - first) * (1 - panel) for f in fractions if first < f < 1
    )
