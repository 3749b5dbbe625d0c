"""Live refits: every backfilled row is one more pair, so the map is learned again on the way.

At each step of the gallery's rows the map is learned from all pairs so far, or a random sample of
them. It replaces the present one only if it retrieves better on pairs that neither of the two has
seen. Then the state names it, and the rows that are still aligned are work to do again: they serve
as the map before has aligned them until they are aligned again.

A map that came from a file knows pairs that are not in the gallery. It is not forgotten: beside the
map that is learned anew, the file's map corrected by the gallery's pairs is tried, and the better
of the two stands for election.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastfill.align import (
    MIN_PAIRS,
    Alignment,
    Corrected,
    FitOptions,
    correct,
    fit_alignment,
    fit_part,
    held_out_scores,
)
from fastfill.errors import InputError
from fastfill.features import Pairs
from fastfill.gallery import State, change_state
from fastfill.migrate.job import Job, documents_of
from fastfill.migrate.leases import REFITTING, Leases
from fastfill.migrate.notes import record
from fastfill.migrate.pairs import adopt_alignment, how, id_hashes, read_pairs, same_work
from fastfill.migrate.progress import Progress

REFIT_EVERY: float | None = 0.05  # of the gallery's rows
MOST_PAIRS = 20_000  # that a refit learns from: its time must stay short
LEAST_FRESH = 60  # pairs that the present map has not seen, for a refit to be worth while
HELD_OUT, MOST_HELD_OUT = 1 / 3, 1_000  # of these, to compare the maps on
CORRECTED = "corrected"  # the method of a map of elsewhere that the gallery's pairs have corrected


class Refits:
    """When the map is due to be learned again, and which worker does it.

    >>> from fastfill.gallery import Columns
    >>> state = State("started", Columns("id", "text", "vector"), "l2", "m:f", "1f", 8, learned=7)
    >>> Refits.rows_until(Progress(total=100, new=7), state, 0.05)
    3
    """

    def __init__(self, job: Job, owner: str, step: float | None, seconds: float) -> None:
        if step is not None and not 0 < step < 1:
            raise InputError(f"A step between refits is a share between 0 and 1, not {step}.")
        self._job = job
        self._step = step
        self._lease = Leases(job.store, owner, seconds=seconds, name=REFITTING)

    @staticmethod
    def rows_until(progress: Progress, state: State, step: float) -> int:
        """Rows to embed until the next refit; 0 or less when it is due."""
        rows = max(step * progress.total, 1.0)
        boundary = (math.floor(state.learned / rows + 1e-9) + 1) * rows
        return math.ceil(boundary - 1e-6) - progress.new

    def room(self, progress: Progress, state: State) -> int | None:
        """Rows that a batch may have so that it ends where a refit is due; None: any number."""
        left = 0 if self._step is None else self.rows_until(progress, state, self._step)
        return left if left > 0 else None

    def due(self, progress: Progress, state: State) -> bool:
        """Has another step of the rows become new, and is there anything left to align?"""
        if self._step is None or progress.aligned == 0:
            return False
        return self.rows_until(progress, state, self._step) <= 0

    def number(self, progress: Progress) -> str:
        """Which of how many refits is due, for people."""
        step = self._step or 1.0
        return f"{math.floor(progress.fraction / step + 1e-9)} of {round(1 / step)}"

    def claim(self) -> bool:
        """Make this worker the one that learns and re-aligns, or stay so; False: another is."""
        return not self._lease.held_by_others() and bool(self._lease.claim(["map"]))

    def release(self) -> None:
        """Let others do it."""
        self._lease.release()


def learn_again(job: Job, state: State, progress: Progress) -> State:
    """Learn the map from all pairs so far, and keep it if it is better."""
    pairs = read_pairs(job, state, MOST_PAIRS, seed=progress.new)
    split = _split(job, state, pairs)
    if split is None:
        return _keep_the_map(job, state, progress.new)
    method = _method(state, len(pairs))
    options = replace(_options(state), method=method)
    head = job.alignment(state).head  # kept for the orders that need one
    fresh = fit_alignment(pairs, options, head=head, distance=state.distance)
    trial = _trial(job, state, pairs, fresh, *split)
    facts = {"pairs": len(pairs), **trial.facts}
    if not trial.better:
        record(job.store, "refit thrown away", alignment=state.alignment, **facts)
        return _keep_the_map(job, state, progress.new)
    alignment = correct(_elsewhere(job, state), pairs) if trial.best == CORRECTED else fresh
    changed = adopt_alignment(
        job,
        state,
        alignment,
        learned=progress.new,
        learning=_learning(state, fresh, asked=method == "auto"),
        pairs=pairs,
        refit=True,
    )
    if changed.alignment != state.alignment:
        record(job.store, "refitted", alignment=alignment.fingerprint, **facts)
    return changed


@dataclass(frozen=True)
class _Trial:
    """The present map and others learned from more pairs, on pairs that none of them has seen."""

    metric: str
    held_out: int
    before: float
    after: dict[str, float]  # by method

    @property
    def best(self) -> str:
        return max(self.after, key=lambda method: self.after[method])

    @property
    def better(self) -> bool:
        return self.after[self.best] > self.before

    @property
    def facts(self) -> dict[str, object]:
        """For the audit trail."""
        tried = {method: round(score, 4) for method, score in self.after.items()}
        scores = {"before": round(self.before, 4), "after": tried[self.best], "tried": tried}
        return {"method": self.best, "metric": self.metric, "held_out": self.held_out, **scores}


def _split(
    job: Job, state: State, pairs: Pairs
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Pairs to learn from and pairs to compare on, or None where there is too little to learn."""
    document = job.store.load(documents_of(state.alignment or "")[1])
    seen = np.frombuffer(b"" if document is None else document.value, dtype=np.uint64)
    fresh = np.flatnonzero(~np.isin(id_hashes(pairs.old.ids), seen))
    held = np.random.default_rng(len(pairs)).permutation(fresh)
    held = np.sort(held[: min(int(HELD_OUT * len(fresh)), MOST_HELD_OUT)])
    kept = np.setdiff1d(np.arange(len(pairs)), held)
    return None if len(fresh) < LEAST_FRESH or len(kept) < MIN_PAIRS else (kept, held)


def _trial(
    job: Job,
    state: State,
    pairs: Pairs,
    fresh: Alignment,
    kept: NDArray[np.int64],
    held: NDArray[np.int64],
) -> _Trial:
    """A refitted map has seen all pairs, so one like it is fitted without the held-out ones."""
    part = pairs.take(held)

    def score(alignment: Alignment) -> tuple[str, float]:
        aligned = alignment(part.old).vectors
        metric, found = held_out_scores(part.new.vectors, aligned, None, state.distance, None)
        return metric, float(found.mean())

    metric, before = score(job.alignment(state))
    part_of = fit_part(pairs, kept, fresh, _options(state), head=job.alignment(state).head)
    after = {fresh.method: score(part_of)[1]}
    elsewhere = _elsewhere(job, state)
    if elsewhere:
        after[CORRECTED] = score(correct(elsewhere, pairs.take(kept)))[1]
    return _Trial(metric, len(held), before, after)


def _elsewhere(job: Job, state: State) -> tuple[Alignment, ...]:
    """The maps of which the present one is made that were not learned from the gallery."""
    present = job.alignment(state)
    if isinstance(present, Corrected):
        return present.bases
    return () if state.learning else (present,)


def _method(state: State, pairs: int) -> str:
    """For the map learned anew; `auto` is slow: asked again only when the pairs have doubled."""
    asked, chosen = state.learning.get("method", "auto"), state.learning.get("chosen")
    if asked != "auto":
        return str(asked)
    doubled = pairs >= 2 * state.learning.get("pairs", 0)
    return "auto" if doubled or chosen is None else str(chosen)


def _options(state: State) -> FitOptions:
    """Those of the first map."""
    return FitOptions.from_json(state.learning.get("options", {}))


def _learning(state: State, alignment: Alignment, asked: bool) -> dict[str, object]:
    method, options = state.learning.get("method", "auto"), state.learning.get("options", {})
    found = how(alignment, method, options)
    return found if asked else {**found, "pairs": state.learning.get("pairs", 0)}


def _keep_the_map(job: Job, state: State, rows: int) -> State:
    """Note that the step was dealt with."""

    def change(latest: State | None) -> State:
        base = latest or state
        return replace(base, learned=max(base.learned, rows)) if same_work(base, state) else base

    return change_state(job.store, change)


def forget_unused(job: Job) -> State:
    """Remove the earlier alignments that no row carries any more."""
    used = {model for (generation, model) in job.store.counts() if generation == "aligned"}
    gone = [tag for tag in job.state.earlier if tag not in used]
    if not gone:
        return job.state

    def change(latest: State | None) -> State:
        base = latest or job.state
        return replace(base, earlier=tuple(tag for tag in base.earlier if tag not in gone))

    changed = change_state(job.store, change)
    unnamed = [tag for tag in gone if tag not in changed.alignments]
    job.store.remove([name for tag in unnamed for name in documents_of(tag)])
    return changed
