"""`QualityWatch`: measures quality while a backfill runs, and says when it is enough."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

import numpy as np

from fastfill.align import FitOptions, Serving, relearned_by
from fastfill.errors import OrderError
from fastfill.features import Features, Pairs
from fastfill.forecast import Forecast
from fastfill.gallery import State
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.alignments import id_hashes
from fastfill.migrate.ledger.query_sample import QuerySample
from fastfill.migrate.ledger.sample_rows import LEAST_QUERIES, SampleRows
from fastfill.migrate.options import Target
from fastfill.migrate.pairs import read_pairs
from fastfill.migrate.progress import Progress, Quality, count
from fastfill.migrate.quality.quality_forecast import Measured, QualityForecast
from fastfill.migrate.quality.sample import SampleSnapshot, read_sample

MEASURE_EVERY, AT_LEAST_EVERY = 0.01, 0.05  # of the rows
BUSY = 10  # between these two, measuring takes at most one part in so many of the time
MOST_TAUGHT = 5_000  # pairs that a forecast is rehearsed with beside the queries


@dataclass
class QualityWatch:
    """One target, watched by all workers of a run."""

    job: Job
    target: Target
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
        until, quality = self.target.until, self.quality
        reached = until is not None and quality is not None and quality.value >= until
        return f"{quality} in {self.target.metric} reached" if reached else None

    def _due(self, progress: Progress) -> bool:
        gained = (progress.new - self._rows) / max(progress.total, 1)
        rested = time.monotonic() >= self._next
        return self.quality is None or gained >= (MEASURE_EVERY if rested else AT_LEAST_EVERY)

    def measure(self, progress: Progress, last: bool = False) -> Quality:
        """Look at the sample and at the forecast, and keep what was measured in the store.

        The forecast of a map that was replaced is made anew, at the latest at the `last` look.
        """
        began, job, target = time.monotonic(), self.job, self.target
        state = job.state
        renew = last or began >= self._renew_next
        expected = forecast_quality(job, state, target, self.refit, renew=renew)
        if expected.alignment == state.alignment:
            self._renew_next = time.monotonic() + BUSY * (time.monotonic() - began)
        sample = expected.of_sample(progress.fraction)
        if target.label is not None:
            snapshot = read_sample(job, state, target.label)
            sample, value = snapshot.fraction, snapshot.measure(target.metric, state)
            served = None
            if state.serving != "aligned":
                fusion = job.fusion(state) if state.serving == "both" else None
                served = snapshot.measure(target.metric, state, state.serving, fusion)
            if expected.old_search is None:  # the old vectors do not change: once is enough
                old = snapshot.measure(target.metric, state, "old")
                expected = replace(expected, old_search=old)
            expected = expected.with_measured(Measured(progress.fraction, sample, value, served))
            _keep(job, expected)
        self.quality = expected.quality(sample)
        self._rows = progress.new
        self._next = time.monotonic() + BUSY * (time.monotonic() - began)
        return self.quality


def forecast_quality(
    job: Job, state: State, target: Target, refit: float | None = None, renew: bool = True
) -> QualityForecast:
    """The forecast that is kept in the store, made anew where it is about something else.

    Of another map than the present one it is made anew too if `renew` says so; what was measured
    stays.
    """
    kept = QualityForecast.load(job.store)
    wanted = (target.metric, target.label, state.policy, _forecast_serving(state, target))
    if kept is None or kept.subject != wanted:
        return _keep(job, _make(job, state, target, refit))
    if kept.alignment == state.alignment or not renew:
        return kept
    made = _make(job, state, target, refit)
    return _keep(job, replace(made, measured=kept.measured, old_search=kept.old_search))


def can_forecast(job: Job) -> bool:
    """Are there random rows that are new already?"""
    return len(SampleRows.of(job.store).queries) >= LEAST_QUERIES


def _keep(job: Job, expected: QualityForecast) -> QualityForecast:
    return QualityForecast.change(job.store, lambda _: expected)


def _make(job: Job, state: State, target: Target, refit: float | None) -> QualityForecast:
    snapshot = read_sample(job, state, target.label)
    rows = count(job.store, state, about=True).total
    first = len(snapshot.queries) / max(rows, 1)
    steps = _refit_fractions(refit, first, snapshot.first)
    steps = tuple(fraction for fraction in steps if fraction > snapshot.fraction)
    taught = _taught(job, state, snapshot)
    try:
        forecast = _forecast(job, state, target, snapshot, taught, state.policy, steps)
    except OrderError:  # an order that needs what pairs do not have, such as a classifier
        forecast = _forecast(job, state, target, snapshot, taught, "random", steps)
    return QualityForecast(
        forecast,
        target.label,
        state.policy,
        first,
        alignment=state.alignment,
        learned=0 if taught is None else len(taught),
    )


def _taught(job: Job, state: State, snapshot: SampleSnapshot) -> Pairs | None:
    """Pairs that the present map was learned from, without the queries; None: there are none."""
    seen = job.alignments.learned_from(state.alignment)
    if not len(seen):  # a map of elsewhere
        return None
    pairs = read_pairs(job, state)
    hashes = id_hashes(pairs.old.ids)
    queries = id_hashes(snapshot.rows.ids[snapshot.queries])
    rows = np.flatnonzero(np.isin(hashes, seen) & ~np.isin(hashes, queries))
    rows = np.random.default_rng(len(rows)).permutation(rows)[:MOST_TAUGHT]
    return pairs.take(np.sort(rows)) if len(rows) else None


def _forecast(
    job: Job,
    state: State,
    target: Target,
    snapshot: SampleSnapshot,
    taught: Pairs | None,
    policy: str,
    refits: tuple[float, ...],
) -> Forecast:
    learning, others = state.learning, snapshot.others
    options = FitOptions.from_json((learning and learning.options) or {})
    method = job.alignment(state).method
    labels = None if snapshot.labels is None else snapshot.labels[others]
    asked = QuerySample.load(job.store) if target.label is None else None
    asked = None if asked is None or asked.made else asked
    return Forecast.from_pairs(
        snapshot.pairs(),
        len(snapshot.rows),
        metric=target.metric,
        policy=policy,
        refits=refits,
        distance=state.distance,
        gallery=snapshot.rows.old[others] if len(others) else None,
        gallery_labels=labels,
        taught=taught,
        done=snapshot.new[others] if len(others) else None,
        queries=None if asked is None else Features(asked.new),
        queries_old=None if asked is None else Features(asked.old),
        serving=_forecast_serving(state, target),
        fit=replace(options, method=relearned_by(method)),
    )


def _forecast_serving(state: State, target: Target) -> Serving:
    """How the queries of the forecast are answered: as readers are served, where nothing is
    measured; with labels what serves is measured beside the new model's own queries."""
    return state.serving if target.label is None else "aligned"


def _refit_fractions(step: float | None, first: float, sample: float) -> tuple[float, ...]:
    """Fractions of the sample at which the map will be learned again."""
    if step is None or first >= 1:
        return ()
    fractions = [step * number for number in range(1, round(1 / step) + 1)]
    return tuple(
        sample + (f - first) / (1 - first) * (1 - sample) for f in fractions if first < f < 1
    )
