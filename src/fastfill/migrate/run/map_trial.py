"""Learning the map again: candidates are compared with the present map on pairs unknown to all.

The map is learned from all pairs so far, or a random sample of them. It replaces the present one
only if it retrieves better on pairs that neither of the two has seen.

A map that came from a file knows pairs that are not in the gallery. It is not forgotten: beside the
map that is learned anew, the file's map corrected by the gallery's pairs is a candidate too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

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
    installed_or_kernel,
)
from fastfill.evaluate import ASK_AGAIN
from fastfill.features import Pairs
from fastfill.gallery import Learning, State, change_state
from fastfill.migrate.job import Job
from fastfill.migrate.learning import adopt, same_work
from fastfill.migrate.ledger.alignments import id_hashes
from fastfill.migrate.ledger.audit import record
from fastfill.migrate.pairs import read_pairs

MOST_PAIRS = 20_000  # that a refit learns from: its time must stay short
LEAST_UNSEEN = 60  # pairs that the present map has not seen, for a refit to be worth while
HELD_OUT, MOST_HELD_OUT = 1 / 3, 1_000  # of these, to compare the maps on
CORRECTED = "corrected"  # the method of a map of elsewhere that the gallery's pairs have corrected

Positions = NDArray[np.int64]


def learn_again(job: Job, state: State, new_rows: int) -> State:
    """Learn the map from all pairs so far, and keep it if it is better."""
    pairs = read_pairs(job, state, MOST_PAIRS, seed=new_rows)
    split = _split(job, state, pairs)
    if split is None:
        return _keep_the_map(job, state, new_rows)
    fit = _refit_options(state, len(pairs))
    head = job.alignment(state).head
    fresh = fit_alignment(pairs, fit, head=head, distance=state.distance)
    trial = _trial(job, state, pairs, fresh, fit, split)
    facts = {"pairs": len(pairs), **trial.facts}
    if not trial.better:
        record(job.store, "refit thrown away", {"alignment": state.alignment, **facts})
        return _keep_the_map(job, state, new_rows)
    corrects = trial.best == CORRECTED
    alignment = correct(_from_elsewhere(job, state), pairs) if corrects else fresh
    changed = adopt(
        job,
        state,
        alignment,
        learned_rows=new_rows,
        learning=_learning(state, fresh, len(pairs), fit),
        pairs=pairs,
        refit=True,
    )
    if changed.alignment != state.alignment:
        record(job.store, "refitted", {"alignment": alignment.fingerprint, **facts})
    return changed


class _Split(NamedTuple):
    """Pairs to learn from and pairs to compare on."""

    kept: Positions
    held: Positions


@dataclass(frozen=True)
class MapTrial:
    """The present map and candidates learned from more pairs, on pairs that none has seen."""

    metric: str
    held_out: int
    before: float
    after: dict[str, float]  # by method

    @property
    def best(self) -> str:
        """The method of the best candidate."""
        return max(self.after, key=lambda method: self.after[method])

    @property
    def better(self) -> bool:
        """Does it retrieve better than the present map?"""
        return self.after[self.best] > self.before

    @property
    def facts(self) -> dict[str, object]:
        """For the audit trail."""
        tried = {method: round(score, 4) for method, score in self.after.items()}
        scores = {"before": round(self.before, 4), "after": tried[self.best], "tried": tried}
        return {"method": self.best, "metric": self.metric, "held_out": self.held_out, **scores}


def _split(job: Job, state: State, pairs: Pairs) -> _Split | None:
    """None where there is too little to learn."""
    seen = job.alignments.learned_from(state.alignment)
    unseen = np.flatnonzero(~np.isin(id_hashes(pairs.old.ids), seen))
    held = np.random.default_rng(len(pairs)).permutation(unseen)
    held = np.sort(held[: min(int(HELD_OUT * len(unseen)), MOST_HELD_OUT)])
    kept = np.setdiff1d(np.arange(len(pairs)), held)
    if len(unseen) < LEAST_UNSEEN or len(kept) < MIN_PAIRS:
        return None
    return _Split(kept, held)


def _trial(
    job: Job, state: State, pairs: Pairs, fresh: Alignment, fit: FitOptions, split: _Split
) -> MapTrial:
    """A refitted map has seen all pairs, so one like it is fitted without the held-out ones."""
    part = pairs.take(split.held)

    def score(alignment: Alignment) -> tuple[str, float]:
        aligned = alignment(part.old).vectors
        metric, scores = held_out_scores(part.new.vectors, aligned, None, state.distance, None)
        return metric, float(scores.mean())

    metric, before = score(job.alignment(state))
    like_fresh = fit_part(pairs, split.kept, fresh, fit, head=fresh.head)
    after = {fresh.method: score(like_fresh)[1]}
    elsewhere = _from_elsewhere(job, state)
    if elsewhere:
        after[CORRECTED] = score(correct(elsewhere, pairs.take(split.kept)))[1]
    return MapTrial(metric, len(split.held), before, after)


def _from_elsewhere(job: Job, state: State) -> tuple[Alignment, ...]:
    """The maps of which the present one is made that were not learned from the gallery."""
    present = job.alignment(state)
    if isinstance(present, Corrected):
        return present.bases
    return () if state.learning is not None else (present,)


def _refit_options(state: State, pairs: int) -> FitOptions:
    """Those of the first map; `auto` is slow: asked again only when the pairs have doubled.

    A network that was learned where torch is installed is followed by a kernel map where it is not.
    """
    learning = state.learning or Learning()
    options = FitOptions.from_json(learning.options or {})
    if learning.method != "auto" or learning.chosen is None or pairs >= ASK_AGAIN * learning.pairs:
        return replace(options, method=installed_or_kernel(learning.method))
    return replace(options, method=installed_or_kernel(learning.chosen))


def _learning(state: State, fresh: Alignment, pairs: int, fit: FitOptions) -> Learning:
    """What the next refit must know: on how many pairs `auto` was asked last stays as it was."""
    before = state.learning or Learning(options={})
    asked = fit.method == "auto"
    return replace(before, chosen=fresh.method, pairs=pairs if asked else before.pairs)


def _keep_the_map(job: Job, state: State, rows: int) -> State:
    """Note that the step was dealt with."""

    def change(latest: State) -> State:
        if not same_work(latest, state):
            return latest
        return replace(latest, learned_rows=max(latest.learned_rows, rows))

    return change_state(job.store, change)
