"""`verify`: counts in the store, and a sample embedded again and compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fastfill.features import Matrix
from fastfill.gallery import Rows, State
from fastfill.migrate.job import Job
from fastfill.migrate.progress import Progress, count
from fastfill.migrate.settling import stale

SAMPLE = 64
SAME = 0.999  # cosine: encoders on other hardware differ in the last digits


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


def verify_rows(job: Job, state: State, sample: int = SAMPLE) -> Verification:
    """Look at every row's marks and at a sample's vectors."""
    if job.encode is not None:
        job.identity.check(state, job.store.name)
    batch = job.batch
    unsettled = stale_rows = 0
    for rows in job.store.unsettled(state.settled, batch=batch, changed=True):
        behind = int(stale(rows, state).sum())
        unsettled, stale_rows = unsettled + len(rows) - behind, stale_rows + behind
    without = sum(_without_vector(rows) for rows in job.store.scan(None, batch=batch, new=True))
    new, wrong_new = 0, ()
    if job.encode is not None:
        new, wrong_new = _check(job, "new", sample, lambda rows: _encoded(job, state, rows))
    aligned, wrong_aligned = 0, ()
    if state.alignment is not None:
        aligned, wrong_aligned = _check(
            job, "aligned", sample, lambda rows: _aligned(job, state, rows)
        )
    return Verification(
        progress=count(job.store, state),
        unsettled=unsettled,
        stale=stale_rows,
        without_vector=without,
        checked_new=new,
        wrong_new=wrong_new,
        checked_aligned=aligned,
        wrong_aligned=wrong_aligned,
        quarantined=job.quarantine.items(),
    )


def _without_vector(rows: Rows) -> int:
    served = np.array([g in ("aligned", "new") for g in rows.generation], dtype=bool)
    return 0 if rows.new is None else int((served & ~np.isfinite(rows.new).all(axis=1)).sum())


def _encoded(job: Job, state: State, rows: Rows) -> Matrix:
    return job.encoder(state)(rows.ids.tolist(), rows.inputs.tolist()).vectors


def _aligned(job: Job, state: State, rows: Rows) -> Matrix:
    """By the alignment whose tag each row carries; NaN where that is none of the migration's."""
    vectors = np.full((len(rows), state.dim), np.nan, dtype=np.float32)
    for tag in state.alignments:
        mine = np.array([model == tag for model in rows.model], dtype=bool)
        if mine.any():
            vectors[mine] = job.alignments.load(tag)(rows.old[mine]).vectors
    return vectors


def _check(job: Job, generation: Any, sample: int, again: Any) -> tuple[int, tuple[Any, ...]]:
    """Rows looked at, and the ids of those whose vector is not what it should be."""
    rows = next(iter(job.store.scan(generation, batch=sample, new=True)), None)
    if rows is None or rows.new is None:
        return 0, ()
    if generation == "new":
        rows = rows.take(np.array([item is not None for item in rows.inputs], dtype=bool))
    expected = again(rows)
    stored = rows.new
    if stored is None or not len(rows):
        return 0, ()
    comparable = np.isfinite(expected).all(axis=1)
    norms = np.linalg.norm(stored, axis=1) * np.linalg.norm(expected, axis=1)
    cosine = np.einsum("ij,ij->i", stored, expected) / np.maximum(norms, 1e-12)
    wrong = comparable & (norms > 0) & ~(cosine >= SAME)
    return int(comparable.sum()), tuple(rows.ids[wrong].tolist())
