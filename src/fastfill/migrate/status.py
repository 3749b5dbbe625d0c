"""`Status`: where a migration stands, as the store says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fastfill.gallery import Id, State, load_state
from fastfill.migrate.job import Job
from fastfill.migrate.ledger.control import Control
from fastfill.migrate.ledger.serving_record import ServingChoice, ServingRecord
from fastfill.migrate.ledger.start_request import StartRequest
from fastfill.migrate.ledger.sweep_record import SweepRecord
from fastfill.migrate.ledger.worker_reports import WorkerReport, WorkerReports
from fastfill.migrate.progress import Progress, Quality, count
from fastfill.migrate.quality.quality_forecast import QualityForecast


@dataclass(frozen=True)
class Status:
    """Phase, rows by generation, what the operator has set, what failed, what is expected."""

    phase: str
    progress: Progress
    state: State | None
    paused: bool = False
    rate: float | None = None
    quarantined: dict[Id, str] = field(default_factory=dict)  # with the last error of each
    forecast: QualityForecast | None = None  # where someone has asked for quality
    choices: Sequence[ServingChoice] = ()  # of a way to serve, the latest last
    workers: dict[str, WorkerReport] = field(default_factory=dict)  # by the name of the process
    swept: float = 0.0  # seconds of the epoch when the last sweep began; 0: never
    again: tuple[str, ...] = ()  # options that a start which has not ended must be given again

    @property
    def serving(self) -> ServingChoice:
        """What readers are to do now, with what was measured last: until a start has ended they
        search by the old model, and at the end by the new one, whatever measured best."""
        latest = self.choices[-1] if self.choices else ServingChoice(self.progress.fraction, "old")
        return latest if self.state is None else replace(latest, serving=self.state.serves)

    @property
    def quality(self) -> Quality | None:
        """Of the search as it is now, where someone has asked; complete, it is the new model's."""
        if self.forecast is None:
            return None
        if self.phase == "complete" and self.progress.new == self.progress.total:
            return Quality(self.forecast.forecast.metric, 1.0, 0.0, measured=True)
        return self.forecast.quality(self.forecast.of_sample(self.progress.fraction))


def read_status(job: Job, counted: Progress | None = None) -> Status:
    """As it is now; rows that were `counted` just now are not counted again."""
    state = load_state(job.store)
    if state is None or state.phase == "rolled back":
        rows = job.store.describe().rows
        return Status("planned" if state is None else state.phase, Progress(rows), state)
    if state.phase == "complete" and state.drop_old:  # the marks went with the old vectors
        rows = job.store.describe().rows
        return Status(state.phase, Progress(rows, new=rows), state, choices=_choices(job))
    control, quarantined = Control.of(job.store), job.quarantine.items()
    progress = counted or count(job.store, state, about=True)
    progress = replace(progress, failed=len(quarantined))
    if state.swapped:  # what the application writes is by the new model, and needs no marks
        progress = replace(progress, new=progress.new + progress.unmarked, unmarked=0)
    return Status(
        state.phase,
        progress,
        state,
        control.paused,
        control.rate,
        quarantined,
        QualityForecast.load(job.store),
        _choices(job),
        WorkerReports.of(job.store),
        SweepRecord.last(job.store).at,
        _given_again(job, state),
    )


def _choices(job: Job) -> Sequence[ServingChoice]:
    return (ServingRecord.load(job.store) or ServingRecord()).choices


def _given_again(job: Job, state: State) -> tuple[str, ...]:
    if state.phase != "starting":
        return ()
    request = StartRequest.load(job.store)
    return () if request is None else request.given
