"""Learning an alignment: choose the method on held-out pairs, fit it, calibrate its error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align.alignment import Alignment
from fastfill.align.apply import APPLY
from fastfill.align.calibration import Calibration, check_calibration
from fastfill.align.losses import LossSpec
from fastfill.align.methods import METHODS, Fitted, HeldOut, Options, Task, candidates
from fastfill.align.scaling import Scaling
from fastfill.align.setback import Setback, sets_back
from fastfill.errors import InputError, LabelError, ShapeError
from fastfill.features import (
    Array,
    Distance,
    Matrix,
    Pairs,
    as_matrix,
    check_classes,
    check_distance,
)
from fastfill.metrics import Relevance, as_metrics, gallery_scores, neighbours

MIN_PAIRS = 20
FOLDS_BELOW = 2_000  # with fewer pairs every pair is held out once, in one of FOLDS fits
FOLDS = 4
MOST_HELD_OUT = 1_000
REFIT_BELOW = 20_000  # with more pairs, the held-out ones would hardly add anything
EXACT = ("kernel",)  # methods that leave every pair out exactly, at the price of one fit
SURE = 4  # standard errors; two are reached by chance once in the refits of a backfill
NEIGHBOURS = 5
AGREEMENT = f"agreement@{NEIGHBOURS}"

Rows = NDArray[np.int64]


def fit_alignment(
    pairs: Pairs,
    *,
    method: str = "auto",
    loss: str | None = None,
    head: ArrayLike | None = None,
    distance: Distance = "l2",
    seed: int = 0,
    models: tuple[str, str] = ("old", "new"),
    setback: float | None = None,
    **options: Any,
) -> Alignment:
    """Learn h: old → new and its error from pairs.

    method: `auto` (the best on held-out pairs of ridge, procrustes, kernel and, with many pairs or
    a classifier, residual), one of these, or `paper`. Except with `paper`, aligned vectors are
    brought to one length unless held-out pairs retrieve better without. loss: `l2`, `disc`,
    `l2+disc`, each with or without `+uncertainty`; by default all that the pairs allow: the
    discriminative term needs labels and the new model's classifier `head`.
    models: the names of the old and the new model, kept in the artefact.
    setback: how far aligned vectors are set back by their doubt, a share from 0 (not at all) to 1
    (see `fastfill.align.setback`); by default not at all with `paper`, under inner products and
    where new vectors are of unit length.
    options: see `fastfill.align.methods.Options` (epochs, batch, rate, device, …).
    """
    if method != "auto" and method not in METHODS:
        raise InputError(f"Unknown method {method!r}: use one of auto, {', '.join(METHODS)}.")
    if len(pairs) < MIN_PAIRS:
        raise ShapeError(
            f"{len(pairs)} pairs are too few to learn from: give at least {MIN_PAIRS}, better 500."
        )
    scaling = Scaling.of(pairs, check_distance(distance))
    task = _task(pairs, scaling, loss, head, Options(**options), seed)
    folds = _folds(len(pairs), seed)
    names = candidates(task) if method == "auto" else (method,)
    trials = {name: _best_trial(name, task, folds, scaling, pairs) for name in names}
    chosen = max(names, key=lambda name: trials[name].score)
    trial = trials[chosen]
    partial = chosen not in EXACT  # the trial's map has not seen the held-out pairs
    refit = partial and (len(folds) > 1 or (len(pairs) < REFIT_BELOW and chosen != "paper"))
    fitted = METHODS[chosen](task) if refit else trial.fitted
    facts: dict[str, Any] = {
        "old_dim": task.old_dim,
        "pairs": len(pairs),
        "seed": seed,
        "loss": str(task.loss) if chosen in ("paper", "residual") else "l2",
        "models": {"old": models[0], "new": models[1]},
        "training": fitted.facts,
        "held_out": {"pairs": len(trial.rows), **trial.quality, **trial.trust(seed)},
    }
    if method == "auto":
        facts["compared"] = {name: trial.quality for name, trial in trials.items()}
    kept = as_matrix(head, "head") if head is not None else None
    side_dim = 0 if pairs.side is None else int(pairs.side.shape[1])
    if setback is None and (chosen == "paper" or not sets_back(scaling)):
        setback = 0.0
    back = Setback.of(
        pairs.new.vectors, share=setback, head=kept, error=float(trial.error.mean()),
        unit=scaling.unit,
    )  # fmt: skip
    return Alignment(
        chosen, fitted.arrays, trial.scaling, Calibration.fit(trial.doubt, trial.error),
        side_dim=side_dim, head=kept, setback=back, facts=facts,
    )  # fmt: skip


def fit_residuals(x: Matrix, residuals: Matrix, seed: int = 0) -> Alignment:
    """A kernel map from x to what another map leaves over, with its calibrated error."""
    if len(x) < MIN_PAIRS:
        raise ShapeError(
            f"{len(x)} pairs are too few to learn from: give at least {MIN_PAIRS}, better 500."
        )
    unit = max(float(np.sqrt(np.square(residuals, dtype=np.float64).mean())), 1e-12)
    scaling = Scaling(1.0, unit, 1.0, "l2", unit=False)
    spec = LossSpec.parse("l2")
    task = Task(x, scaling.targets(residuals), x.shape[1], None, None, spec, Options(), seed)
    held, fitted = _predict("kernel", task, _folds(len(x), seed))
    true = residuals[held.rows]
    error = np.square(scaling.outputs(held.h) - true, dtype=np.float64).sum(1)
    power = max(float(np.square(true, dtype=np.float64).sum(1).mean()), 1e-24)
    trust = check_calibration(held.doubt, error, seed)
    facts = {
        "old_dim": x.shape[1], "pairs": len(x), "seed": seed, "training": fitted.facts,
        "held_out": {"pairs": len(true), "explained": 1 - float(error.mean()) / power,
                     "error": float(error.mean()), **trust},
    }  # fmt: skip
    calibration = Calibration.fit(held.doubt, error)
    return Alignment("kernel", fitted.arrays, scaling, calibration, facts=facts)


def fit_part(
    pairs: Pairs,
    rows: NDArray[np.int64],
    like: Alignment,
    *,
    loss: str | None = None,
    head: ArrayLike | None = None,
    seed: int = 0,
    **options: Any,
) -> Alignment:
    """The same method, scaling and calibration on some of the pairs: one fit, no trials.

    What a map is worth on items that it has not seen is found out by maps like it.

    >>> from fastfill.features import Features
    >>> rng = np.random.default_rng(0); old = rng.normal(size=(60, 4))
    >>> pairs = Pairs(Features(old), Features(old[:, ::-1] + 1))
    >>> whole = fit_alignment(pairs, method="ridge")
    >>> fit_part(pairs, np.arange(40), whole)
    Alignment(ridge, 4→4, l2, 40 pairs)
    """
    task = _task(pairs, like.scaling, loss, head, Options(**options), seed)
    fitted = METHODS[like.method](task.take(np.asarray(rows, dtype=np.int64)))
    facts = like.facts | {"pairs": len(rows), "seed": seed, "training": fitted.facts}
    return Alignment(
        like.method, fitted.arrays, like.scaling, like.calibration,
        side_dim=like.side_dim, head=like.head, setback=like.setback, facts=facts,
    )  # fmt: skip


def _task(
    pairs: Pairs,
    scaling: Scaling,
    loss: str | None,
    head: ArrayLike | None,
    options: Options,
    seed: int,
) -> Task:
    """Scaled pairs and a loss that they allow, or an error that says what is missing."""
    supervised = head is not None and pairs.labels is not None
    default = "l2+disc+uncertainty" if supervised else "l2+uncertainty"
    spec = LossSpec.parse(loss or default)
    if spec.disc and not supervised:
        missing = "the new model's classifier head" if head is None else "labels of the pairs"
        raise LabelError(
            f"The loss {spec} needs {missing}. Give them, or use the loss l2 or l2+uncertainty."
        )
    matrix = None if head is None else as_matrix(head, "head")
    labels = None
    if matrix is not None:
        if matrix.shape[1] != pairs.new.dim:
            raise ShapeError(
                f"head: shape {matrix.shape}, but the new vectors have {pairs.new.dim} dimensions. "
                "Give the classifier's weight as (classes, dimensions)."
            )
        if pairs.labels is not None:
            labels = check_classes(pairs.labels, len(matrix))
    return Task(
        scaling.inputs(pairs.old.vectors, pairs.side, pairs.old.name),
        scaling.targets(pairs.new.vectors),
        pairs.old.dim,
        labels if spec.disc else None,
        # the classifier sees the unscaled output: κ·(scale·h) = (scale·κ)·h
        matrix * np.float32(scaling.new) if matrix is not None and spec.disc else None,
        spec,
        options,
        seed,
    )


def _folds(rows: int, seed: int) -> list[Rows]:
    """The rows held out by each trial fit."""
    order = np.random.default_rng(seed).permutation(rows)
    if rows < FOLDS_BELOW:
        return [np.sort(part) for part in np.array_split(order, FOLDS)]
    return [np.sort(order[-min(max(rows // 10, 400), MOST_HELD_OUT) :])]


def held_out_scores(
    new: Matrix, aligned: Matrix, labels: Array | None, distance: Distance, device: str | None
) -> tuple[str, NDArray[np.float64]]:
    """Aligned vectors as a gallery for their own new vectors: (metric, its value per query).

    Average precision where there are labels, else the share of the 5 new neighbours that are found.
    (Among some hundred held-out pairs, more would be neighbours of another kind than the nearest
    of a whole gallery.)
    """
    relevance, name = None, "map"
    if labels is not None:
        relevance = Relevance.from_labels(labels)
    if relevance is None or not relevance.counts.any():  # every class has one item only
        relevance, name = neighbours(new, new, NEIGHBOURS, distance=distance, same=True), AGREEMENT
    scores = gallery_scores(
        new, aligned, relevance, as_metrics(name), distance=distance, device=device
    )
    return name, np.asarray(scores.values[name], dtype=np.float64).ravel()


def surely_positive(gain: NDArray[np.float64]) -> bool:
    """Is the mean above 0 by so much that it is no accident, even if asked again at every refit?

    >>> surely_positive(np.array([0.1, 0.2, 0.1, 0.2])), surely_positive(np.array([0.3, -0.1]))
    (True, False)
    """
    return bool(gain.mean() > SURE * gain.std() / len(gain) ** 0.5)


class _Trial:
    """What one method predicts for pairs that it was not fitted on, in one scaling."""

    def __init__(
        self, held: HeldOut, fitted: Fitted, scaling: Scaling, pairs: Pairs, device: str | None
    ) -> None:
        self.rows, self.doubt, self.fitted = held.rows, held.doubt, fitted
        self.scaling = scaling
        new = pairs.new.vectors[self.rows]
        labels = None if pairs.labels is None else pairs.labels[self.rows]
        h = scaling.outputs(held.h.copy())
        self.error = np.square(h - new, dtype=np.float64).sum(1)
        self.variance = float(np.square(new - new.mean(0)).sum(1).mean())
        self.metric, self.found = held_out_scores(new, h, labels, scaling.distance, device)

    @property
    def score(self) -> float:
        """Retrieval among the held-out pairs, new queries on their aligned vectors."""
        return float(self.found.mean())

    @property
    def quality(self) -> dict[str, Any]:
        """What is reported of it."""
        explained = 1 - float(self.error.mean()) / self.variance if self.variance else 0.0
        matched = self.scaling.length is not None
        return {
            "metric": self.metric, "score": self.score, "explained": explained, "matched": matched,
        }  # fmt: skip

    def clearly_better(self, other: _Trial) -> bool:
        """Surely more is found; or as much, with a smaller error."""
        gain = self.found - other.found
        if not gain.any():
            return bool(self.error.mean() <= other.error.mean())
        return surely_positive(gain)

    def trust(self, seed: int) -> dict[str, float]:
        """Kendall τ of score and error, and coverage."""
        return check_calibration(self.doubt, self.error, seed)


def _best_trial(name: str, task: Task, folds: list[Rows], scaling: Scaling, pairs: Pairs) -> _Trial:
    """One method on held-out pairs, its vectors of one length unless they are better as they come.

    Labels show more of the harm that short vectors do than neighbours, so that in doubt, lengths
    are matched.
    """
    held, fitted = _predict(name, task, folds)
    cuda = task.options.device if (task.options.device or "").startswith("cuda") else None
    plain = _Trial(held, fitted, scaling, pairs, cuda)
    if name == "paper" or scaling.unit or scaling.distance == "cosine":
        return plain  # as published, of unit length already, or of lengths that mean nothing
    matched = _Trial(held, fitted, scaling.matched(pairs.new.vectors), pairs, cuda)
    return plain if plain.clearly_better(matched) else matched


def _predict(name: str, task: Task, folds: list[Rows]) -> tuple[HeldOut, Fitted]:
    """Each fold predicted by a map of the other pairs, and the last map."""
    everything = np.arange(len(task.x))
    if name in EXACT:
        fitted = METHODS[name](task)
        assert fitted.held_out is not None  # noqa: S101 - the methods in EXACT know it
        return _some(fitted.held_out, np.concatenate(folds)), fitted
    parts, scores = [], []
    quiet = replace(task.options, report=task.options.report if len(folds) == 1 else None)
    for held in folds:
        kept = np.setdiff1d(everything, held)
        fitted = METHODS[name](replace(task.take(kept), options=quiet))
        h, score = APPLY[name](fitted.arrays, task.x[held])
        parts.append(h)
        scores.append(score.astype(np.float64))
    rows = np.concatenate(folds)
    return HeldOut(rows, np.concatenate(parts), np.concatenate(scores)), fitted


def _some(held: HeldOut, rows: Rows) -> HeldOut:
    """The predictions for these rows, in their order."""
    place = np.full(int(max(held.rows.max(), rows.max())) + 1, -1)
    place[held.rows] = np.arange(len(held.rows))
    return HeldOut(rows, held.h[place[rows]], held.doubt[place[rows]])
