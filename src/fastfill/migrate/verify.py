"""`verify`: counts in the store, and a random sample embedded again and compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fastfill.features import Matrix
from fastfill.gallery import Generation, Rows, State
from fastfill.migrate.comparing import Comparison, Draw, compare, embedded_again, read_drawn
from fastfill.migrate.job import Job
from fastfill.migrate.model_check import check_model
from fastfill.migrate.progress import Progress, count
from fastfill.migrate.settling import stale

SAMPLE = 64
Drawn = dict[Generation, Rows]


@dataclass(frozen=True)
class Verification:
    """What was found; `good` when nothing is wrong."""

    progress: Progress
    unsettled: int  # rows that others have written since the last sweep
    stale: int  # rows aligned by the map before, to be aligned again
    without_vector: int  # rows marked as aligned or new that have no finite added vector
    checked_new: int
    wrong_new: tuple[Any, ...]
    checked_aligned: int
    wrong_aligned: tuple[Any, ...]
    quarantined: dict[Any, str] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Is every row settled and every checked vector right?"""
        return not (self.unsettled or self.without_vector or self.wrong_new or self.wrong_aligned)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        values = asdict(self)
        values["progress"] = self.progress.to_json()
        values["quarantined"] = {str(key): error for key, error in self.quarantined.items()}
        return {"good": self.good, **values}


def verify_rows(
    job: Job, state: State, sample: int = SAMPLE, seed: int | None = None
) -> Verification:
    """Look at every row's marks and at the vectors of a random sample of each generation."""
    if job.encode is not None:
        check_model(job, state)
    rng = np.random.default_rng(seed)
    draws: dict[Generation, Draw] = {"new": Draw(sample, rng), "aligned": Draw(sample, rng)}
    without = 0
    for rows in job.store.scan(None, batch=job.batch, new=True):
        without += _without_vector(rows)
        for generation, draw in draws.items():
            draw.show(rows.ids[[each == generation for each in rows.generation]])
    # Read before the look for what others have written, so that this finds what they write now.
    drawn = {each: read_drawn(job, draw.ids.tolist(), each) for each, draw in draws.items()}
    unsettled, stale_rows, drawn = _without_unsettled(job, state, drawn)
    new, aligned = Comparison(), Comparison()
    if job.encode is not None:
        new = compare(drawn["new"], embedded_again(job.encoder(state)))
    if state.alignment is not None:
        aligned = compare(drawn["aligned"], lambda rows: _aligned(job, state, rows))
    return Verification(
        progress=count(job.store, state),
        unsettled=unsettled,
        stale=stale_rows,
        without_vector=without,
        checked_new=new.checked,
        wrong_new=new.wrong,
        checked_aligned=aligned.checked,
        wrong_aligned=aligned.wrong,
        quarantined=job.quarantine.items(),
    )


def _without_unsettled(job: Job, state: State, drawn: Drawn) -> tuple[int, int, Drawn]:
    """How many rows others have written, and the map before has aligned; of those drawn the ones
    that nobody has written since: no other need be as its marks say."""
    unsettled = stale_rows = 0
    left = dict(drawn)
    for rows in job.store.unsettled(state.settled, batch=job.batch, changed=True):
        behind = stale(rows, state)
        written = rows.ids[~behind].tolist()
        unsettled, stale_rows = unsettled + len(written), stale_rows + int(behind.sum())
        left = {each: _without(those, set(written)) for each, those in left.items()}
    return unsettled, stale_rows, left


def _without(rows: Rows, ids: set[Any]) -> Rows:
    return rows.take(np.array([key not in ids for key in rows.ids.tolist()], dtype=bool))


def _without_vector(rows: Rows) -> int:
    served = np.array([g in ("aligned", "new") for g in rows.generation], dtype=bool)
    return 0 if rows.new is None else int((served & ~np.isfinite(rows.new).all(axis=1)).sum())


def _aligned(job: Job, state: State, rows: Rows) -> Matrix:
    """By the alignment whose tag each row carries; NaN where that is none of the migration's."""
    vectors = np.full((len(rows), state.dim), np.nan, dtype=np.float32)
    for tag in state.alignments:
        mine = np.array([model == tag for model in rows.model], dtype=bool)
        if mine.any():
            vectors[mine] = job.alignments.load(tag)(rows.old[mine]).vectors
    return vectors
