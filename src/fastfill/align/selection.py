"""Which map, of which lengths, with or without a penalty: decided on held-out pairs.

Retrieval is measured under the gallery's own distance. A sample of pairs is thinner than the
gallery, so that its neighbours are of another kind, and a few items may be neighbours of most
queries (long ones under an inner product, short ones under l2): small differences mean little.

Between maps labels decide, where there are some. Without labels it is the squared error: on
images as on texts the map of the smaller error has retrieved better from the whole gallery, also
where the sample's own neighbours said the opposite. Under an inner product the few longest items
are nearly all of the error, and the sample's neighbours decide there.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfill.align.calibration import Calibration, check_calibration
from fastfill.align.held_out import (
    AGREEMENT,
    held_out_scores,
    is_left_out_alone,
    predict_held_out,
    surely_positive,
)
from fastfill.align.methods import Method
from fastfill.align.options import FitOptions
from fastfill.align.pair_distance import PairDistance
from fastfill.align.penalty import Penalty, penalised, penalised_by_default
from fastfill.align.reference import Reference, reference_rows
from fastfill.align.scaling import Scaling
from fastfill.align.task import Fitted, HeldOut, Task
from fastfill.features import Ints, Matrix, Pairs

Scores = NDArray[np.float64]

LEAST_DRAWN = 20  # random pairs among the held-out ones, for these alone to stand for the gallery
GROUPS = 10  # of held-out pairs, that are left out of the comparison in turn


class MethodTrial:
    """What one method predicts for pairs that it was not fitted on, in one scaling."""

    def __init__(
        self, method: Method, held: HeldOut, fitted: Fitted, scaling: Scaling, pairs: Pairs,
        options: FitOptions,
    ) -> None:  # fmt: skip
        self.method, self.held, self.fitted, self.scaling = method, held, fitted, scaling
        self._options, self._pairs = options, pairs
        self._device = options.device if (options.device or "").startswith("cuda") else None
        self._new = pairs.new.vectors[held.rows]
        self._labels = None if pairs.labels is None else pairs.labels[held.rows]
        self._h = scaling.outputs(held.h.copy())
        self.error = np.square(self._h - self._new, dtype=np.float64).sum(1)
        self.metric, self.scores = self._retrieve(self._h)

    def _retrieve(self, vectors: Matrix, rows: Ints | slice = slice(None)) -> tuple[str, Scores]:
        """Retrieval among (some of) the held-out pairs, new queries on these vectors of them."""
        labels = None if self._labels is None else self._labels[rows]
        return held_out_scores(
            self._new[rows], vectors[rows], labels, self.scaling.distance, self._device
        )

    @property
    def score(self) -> float:
        """Retrieval among the held-out pairs, new queries on their aligned vectors."""
        return float(self.scores.mean())

    @cached_property
    def jackknife(self) -> Scores:
        """The score without each tenth of the pairs, as queries and as items, (GROUPS,)."""
        group = np.arange(len(self._h)) % GROUPS
        kept = [np.flatnonzero(group != number) for number in range(GROUPS)]
        return np.array([self._retrieve(self._h, rows)[1].mean() for rows in kept])

    @property
    def quality(self) -> dict[str, Any]:
        """What is reported of it."""
        spread = float(np.square(self._new - self._new.mean(0)).sum(1).mean())
        explained = 1 - float(self.error.mean()) / spread if spread else 0.0
        matched = self.scaling.length is not None
        return {
            "metric": self.metric, "score": self.score, "explained": explained, "matched": matched,
        }  # fmt: skip

    def clearly_better(self, other: MethodTrial) -> bool:
        """Surely more is found; or as much, with a smaller error."""
        gain = self.scores - other.scores
        if not gain.any():
            return bool(self.error.mean() <= other.error.mean())
        return surely_positive(gain)

    def surely_beats(self, other: MethodTrial) -> bool:
        """Is it better by the method's margin of standard errors over pairs?"""
        gain, error = self._gain_of_error(other) if self.by_error else self._gain_of_score(other)
        return gain > self.method.margin_under(self.scaling.distance) * error

    @property
    def by_error(self) -> bool:
        """Is it the squared error that maps are compared by?"""
        return self.metric == AGREEMENT and self.scaling.distance != "ip"

    @property
    def merit(self) -> float:
        """What the best map has most of."""
        return -float(self.error.mean()) if self.by_error else self.score

    def _gain_of_error(self, other: MethodTrial) -> tuple[float, float]:
        """How much smaller the error is, of vectors as they are served, and its standard error."""
        gains = other.error - self.error
        return float(gains.mean()), float(gains.std() / len(gains) ** 0.5)

    def _gain_of_score(self, other: MethodTrial) -> tuple[float, float]:
        """How much more is found, and the jackknife's standard error of that.

        One over queries alone would take a hundred queries that all miss the same long item for a
        hundred observations.
        """
        gains = self.jackknife - other.jackknife
        return self.score - other.score, float(np.sqrt((GROUPS - 1) * gains.var()))

    def surely_loses_by(self, penalty: Penalty, head: Matrix | None) -> bool:
        """Do the held-out pairs surely retrieve worse if a penalty is put on their vectors?"""
        variance = self.calibration(self.doubt.astype(np.float32))
        vectors = penalised(penalty, self._h, variance, head).vectors
        return surely_positive(self.scores - self._retrieve(vectors)[1])

    def reference(self, penalty: Penalty | None, head: Matrix | None) -> Reference:
        """Some of the held-out pairs, as they would be served by maps that have not seen them.

        They stand for the gallery, so that they are of those that were drawn from it at random.
        """
        drawn = self._pairs.drawn
        rows = np.arange(len(self._h)) if drawn is None else np.flatnonzero(drawn[self.held.rows])
        if len(rows) < LEAST_DRAWN:
            rows = np.arange(len(self._h))
        kept = rows[reference_rows(len(rows), self._options.seed)]
        variance = self.calibration(self.doubt[kept].astype(np.float32))
        served = penalised(penalty, self._h[kept], variance, head).vectors
        old = self._pairs.old.vectors[self.held.rows[kept]]
        return Reference(old, self._new[kept], served)

    @cached_property
    def pair_distance(self) -> PairDistance | None:
        """How the distance from the pairs tells the error; None where it does not help."""
        asked, seed = self._options.pair_distance, self._options.seed
        if asked is False or (asked is None and self.method.as_published):
            return None
        sample = PairDistance.of(self._pairs.new.vectors, seed)
        return sample.weighed(self.held.doubt, self._h, self.held.rows, self.error, seed)

    @cached_property
    def doubt(self) -> Scores:
        """The raw scores of the held-out pairs, with the distance from the pairs where it helps."""
        if self.pair_distance is None:
            return self.held.doubt
        scores = self.pair_distance.scores(self.held.doubt, self._h, self.held.rows)
        return scores.astype(np.float64)

    @cached_property
    def calibration(self) -> Calibration:
        """From the raw scores of the held-out pairs to their true errors."""
        return Calibration.fit(self.doubt, self.error)

    def trust(self) -> dict[str, float]:
        """Kendall τ of predicted and true error, and coverage; τ of the map's own score."""
        seed = self._options.seed
        trust = check_calibration(self.doubt, self.error, seed)
        if self.pair_distance is None:
            return trust
        alone = check_calibration(self.held.doubt, self.error, seed)["kendall_tau"]
        return {**trust, "kendall_tau_of_score": alone}


def try_method(
    method: Method, task: Task, folds: list[Ints], scaling: Scaling, pairs: Pairs
) -> MethodTrial:
    """One method on held-out pairs, its vectors of one length unless they are better as they come.

    Labels show more of the harm that short vectors do than neighbours, so that in doubt, lengths
    are matched. Under an inner product they never are: short vectors do no such harm there (see
    `Scaling.short_is_near`), and held-out pairs cannot tell. A gallery that is much larger than the
    sample has neighbours that are much longer than those of the sample.
    """
    alone = is_left_out_alone(method, scaling.distance)
    held, fitted = predict_held_out(method, task, folds, alone)
    plain = MethodTrial(method, held, fitted, scaling, pairs, task.options)
    if method.as_published or not scaling.short_is_near:
        return plain
    to_match = scaling.matched(pairs.new.vectors)
    matched = MethodTrial(method, held, fitted, to_match, pairs, task.options)
    return plain if plain.clearly_better(matched) else matched


def choose(trials: list[MethodTrial]) -> MethodTrial:
    """The best of those that beat the first, ridge, by their margin; if none does, the first."""
    first, *others = trials
    better = [trial for trial in others if trial.surely_beats(first)]
    return max(better, key=lambda trial: trial.merit) if better else first


def choose_penalty(
    trial: MethodTrial, new: Matrix, head: Matrix | None, share: float | None
) -> Penalty | None:
    """As asked for; else the usual one, unless held-out pairs surely retrieve better without."""
    scaling = trial.scaling
    if share is None and (trial.method.as_published or not penalised_by_default(scaling)):
        return None
    error = float(trial.error.mean())
    penalty = Penalty.of(new, share=share, head=head, error=error, unit=scaling.unit)
    if penalty is not None and share is None and trial.surely_loses_by(penalty, head):
        return None
    return penalty
