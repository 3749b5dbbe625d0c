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
from fastfill.align.methods import AUTO, METHODS, Fitted, Options, Task
from fastfill.align.scaling import Scaling
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
NEIGHBOURS = 10
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
    **options: Any,
) -> Alignment:
    """Learn h: old → new and its error from pairs.

    method: `auto` (the best of ridge, procrustes and residual on held-out pairs), one of these, or
    `paper`. loss: `l2`, `disc`, `l2+disc`, each with or without `+uncertainty`; by default all that
    the pairs allow: the discriminative term needs labels and the new model's classifier `head`.
    models: the names of the old and the new model, kept in the artefact.
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
    names = AUTO if method == "auto" else (method,)
    trials = {name: _trial(name, task, folds, scaling) for name in names}
    cuda = task.options.device if (task.options.device or "").startswith("cuda") else None
    quality = {name: trial.quality(pairs, distance, cuda) for name, trial in trials.items()}
    chosen = max(names, key=lambda name: quality[name]["score"])
    trial = trials[chosen]
    refit = len(folds) > 1 or (len(pairs) < REFIT_BELOW and chosen != "paper")
    fitted = METHODS[chosen](task) if refit else trial.fitted
    facts: dict[str, Any] = {
        "old_dim": task.old_dim,
        "pairs": len(pairs),
        "seed": seed,
        "loss": str(task.loss) if chosen in ("paper", "residual") else "l2",
        "models": {"old": models[0], "new": models[1]},
        "training": fitted.facts,
        "held_out": {"pairs": len(trial.rows), **quality[chosen], **trial.trust(seed)},
    }
    if method == "auto":
        facts["compared"] = quality
    kept = as_matrix(head, "head") if head is not None else None
    side_dim = 0 if pairs.side is None else int(pairs.side.shape[1])
    return Alignment(
        chosen, fitted.arrays, scaling, Calibration.fit(trial.score, trial.error),
        side_dim=side_dim, head=kept, facts=facts,
    )  # fmt: skip


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
        side_dim=like.side_dim, head=like.head, facts=facts,
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
    return [np.sort(order[: min(max(rows // 10, 400), MOST_HELD_OUT)])]


def held_out_quality(
    new: Matrix, aligned: Matrix, labels: Array | None, distance: Distance, device: str | None
) -> tuple[str, float]:
    """Quality of aligned vectors as a gallery for their own new vectors: (metric, value).

    mAP where there are labels, else the share of the 10 new neighbours that are found.
    """
    relevance, name = None, "map"
    if labels is not None:
        relevance = Relevance.from_labels(labels)
    if relevance is None or not relevance.counts.any():  # every class has one item only
        relevance, name = neighbours(new, new, NEIGHBOURS, distance=distance, same=True), AGREEMENT
    scores = gallery_scores(
        new, aligned, relevance, as_metrics(name), distance=distance, device=device
    )
    return name, float(scores.values[name].mean())


class _Trial:
    """What one method predicts for pairs that it was not fitted on."""

    def __init__(self, rows: Rows, h: Matrix, score: Matrix, new: Matrix, fitted: Fitted) -> None:
        self.rows, self.h, self.fitted = rows, h, fitted
        self.score = score.astype(np.float64)
        self.error = np.square(h - new, dtype=np.float64).sum(1)

    def quality(self, pairs: Pairs, distance: Distance, device: str | None) -> dict[str, Any]:
        """Retrieval among the held-out pairs, new queries on their aligned vectors."""
        new = pairs.new.vectors[self.rows]
        labels = None if pairs.labels is None else pairs.labels[self.rows]
        name, score = held_out_quality(new, self.h, labels, distance, device)
        variance = float(np.square(new - new.mean(0)).sum(1).mean())
        explained = 1 - float(self.error.mean()) / variance if variance else 0.0
        return {"metric": name, "score": score, "explained": explained}

    def trust(self, seed: int) -> dict[str, float]:
        """Kendall τ of score and error, and coverage."""
        return check_calibration(self.score, self.error, seed)


def _trial(name: str, task: Task, folds: list[Rows], scaling: Scaling) -> _Trial:
    everything = np.arange(len(task.x))
    rows, parts, scores = [], [], []
    quiet = replace(task.options, report=task.options.report if len(folds) == 1 else None)
    for held in folds:
        kept = np.setdiff1d(everything, held)
        fitted = METHODS[name](replace(task.take(kept), options=quiet))
        h, score = APPLY[name](fitted.arrays, task.x[held])
        rows.append(held)
        parts.append(scaling.outputs(h))
        scores.append(score)
    index = np.concatenate(rows)
    new = task.y[index] * np.float32(scaling.new)
    return _Trial(index, np.concatenate(parts), np.concatenate(scores), new, fitted)
