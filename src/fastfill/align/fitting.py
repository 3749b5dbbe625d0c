"""Learning an alignment: choose the method on held-out pairs, fit it, calibrate its error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfill.align.alignment import Alignment
from fastfill.align.calibration import Calibration, check_calibration
from fastfill.align.held_out import is_left_out_alone, make_folds, predict_held_out
from fastfill.align.losses import LossSpec
from fastfill.align.methods import METHODS, candidates, check_installed, not_tried, ridge_map
from fastfill.align.options import FitOptions
from fastfill.align.scaling import Scaling
from fastfill.align.selection import MethodTrial, choose, choose_penalty, try_method
from fastfill.align.task import Fitted, Look, ScaledViews, Task
from fastfill.errors import LabelError, ShapeError
from fastfill.features import Distance, Matrix, Pairs, as_matrix, check_classes, check_distance

MIN_PAIRS = 20
REFIT_BELOW = 20_000  # with more pairs, the held-out ones would hardly add anything


def fit_alignment(
    pairs: Pairs,
    options: FitOptions | None = None,
    *,
    head: ArrayLike | None = None,
    distance: Distance = "l2",
    models: tuple[str, str] = ("old", "new"),
) -> Alignment:
    """`Alignment.fit` with its options as one value.

    >>> from fastfill.features import Features
    >>> old = np.random.default_rng(0).normal(size=(60, 4))
    >>> fit_alignment(Pairs(Features(old), Features(old + 1)), FitOptions(method="ridge"))
    Alignment(ridge, 4→4, l2, 60 pairs)
    """
    options = options or FitOptions()
    check_installed(options.method)
    _check_enough(len(pairs))
    scaling = Scaling.of(pairs, check_distance(distance))
    classifier = None if head is None else as_matrix(head, "head")
    task = _task(pairs, scaling, classifier, options)
    folds = make_folds(len(pairs), options.seed)
    methods = candidates(task) if options.method == "auto" else (METHODS[options.method],)
    trials = [try_method(method, task, folds, scaling, pairs) for method in methods]
    trial = choose(trials)
    fitted = _final(trial, task, len(folds))
    penalty = choose_penalty(trial, pairs.new.vectors, classifier, options.penalty)
    facts = _facts(trial, fitted, task, models)
    if options.method == "auto":
        facts["compared"] = {each.method.name: each.quality for each in trials}
        facts |= {"not_tried": said} if (said := not_tried(task)) else {}
    return Alignment(
        trial.method.name, fitted.arrays, trial.scaling, trial.calibration, facts=facts,
        side_dim=0 if pairs.side is None else int(pairs.side.shape[1]), head=classifier,
        penalty=penalty, reference=trial.reference(penalty, classifier),
        pair_distance=trial.pair_distance,
    )  # fmt: skip


def _check_enough(pairs: int) -> None:
    if pairs < MIN_PAIRS:
        raise ShapeError(
            f"{pairs} pairs are too few to learn from: give at least {MIN_PAIRS}, better 500."
        )


def _final(trial: MethodTrial, task: Task, folds: int) -> Fitted:
    """The map of all pairs, where that of the trial has not seen those that it held out."""
    method = trial.method
    worth_it = folds > 1 or (len(task) < REFIT_BELOW and not method.as_published)
    seen = is_left_out_alone(method, trial.scaling.distance)
    return method.fit(task) if worth_it and not seen else trial.fitted


def _facts(
    trial: MethodTrial, fitted: Fitted, task: Task, models: tuple[str, str]
) -> dict[str, Any]:
    """What an artefact says about itself."""
    seed = task.options.seed
    return {
        "old_dim": task.old_dim,
        "pairs": len(task),
        **({} if task.views is None else {"views": task.views.count}),
        "seed": seed,
        "loss": str(task.loss) if trial.method.network else "l2",
        "models": {"old": models[0], "new": models[1]},
        "training": fitted.facts,
        "held_out": {"pairs": len(trial.error), **trial.quality, **trial.trust()},
    }


def fit_residuals(x: Matrix, residuals: Matrix, seed: int = 0) -> Alignment:
    """A kernel map from x to what another map leaves over, with its calibrated error."""
    _check_enough(len(x))
    unit = max(float(np.sqrt(np.square(residuals, dtype=np.float64).mean())), 1e-12)
    scaling = Scaling(1.0, unit, 1.0, "l2", unit=False)
    options = FitOptions(method="kernel", seed=seed)
    spec = LossSpec.parse("l2")
    task = Task(x, scaling.targets(residuals), x.shape[1], None, None, spec, options)
    held, fitted = predict_held_out(METHODS["kernel"], task, make_folds(len(x), seed), alone=True)
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


def fit_few(pairs: Pairs, *, distance: Distance = "l2", seed: int = 0) -> Alignment:
    """A ridge map from so few pairs, or so few different ones, that none can be held out.

    It is measured on nothing but its own leave-one-out errors.

    >>> from fastfill.features import Features
    >>> old = np.random.default_rng(0).normal(size=(10, 2))
    >>> fit_few(Pairs(Features(old), Features(old + 1)))
    Alignment(ridge, 2→2, l2, 10 pairs)
    """
    scaling = replace(Scaling.of(pairs, check_distance(distance)), unit=False)
    options = FitOptions(method="ridge", seed=seed)
    task = _task(pairs, scaling, None, options)
    learned = ridge_map(task)
    fitted = METHODS["ridge"].fit(task)
    score = METHODS["ridge"].apply(fitted.arrays, task.x)[1].astype(np.float64)
    error = np.square(learned.residuals * scaling.new).sum(1)
    facts = {
        "old_dim": task.old_dim, "pairs": len(task), "seed": seed, "loss": "l2",
        "models": {"old": "old", "new": "new"}, "training": fitted.facts,
    }  # fmt: skip
    return Alignment("ridge", fitted.arrays, scaling, Calibration.fit(score, error), facts=facts)


def fit_part(
    pairs: Pairs,
    rows: NDArray[np.int64],
    like: Alignment,
    options: FitOptions | None = None,
    *,
    head: ArrayLike | None = None,
) -> Alignment:
    """The same method, scaling and calibration on some of the pairs: one fit, no trials.

    What a map is worth on items that it has not seen is found out by maps like it.

    >>> from fastfill.features import Features
    >>> rng = np.random.default_rng(0); old = rng.normal(size=(60, 4))
    >>> pairs = Pairs(Features(old), Features(old[:, ::-1] + 1))
    >>> whole = Alignment.fit(pairs, method="ridge")
    >>> fit_part(pairs, np.arange(40), whole)
    Alignment(ridge, 4→4, l2, 40 pairs)
    """
    options = replace(options or FitOptions(), method=like.method)
    check_installed(like.method)
    classifier = None if head is None else as_matrix(head, "head")
    task = _task(pairs, like.scaling, classifier, options)
    fitted = METHODS[like.method].fit(task.take(np.asarray(rows, dtype=np.int64)))
    facts = like.facts | {"pairs": len(rows), "seed": options.seed, "training": fitted.facts}
    near = like.pair_distance
    return Alignment(
        like.method, fitted.arrays, like.scaling, like.calibration,
        side_dim=like.side_dim, head=like.head, penalty=like.penalty, facts=facts,
        pair_distance=None if near is None else near.of_pairs(pairs.new.vectors, rows),
    )  # fmt: skip


def _task(pairs: Pairs, scaling: Scaling, head: Matrix | None, options: FitOptions) -> Task:
    """Scaled pairs and a loss that they allow, or an error that says what is missing."""
    supervised = head is not None and pairs.labels is not None
    default = "l2+disc+uncertainty" if supervised else "l2+uncertainty"
    spec = LossSpec.parse(options.loss or default)
    if spec.disc and not supervised:
        missing = "the new model's classifier head" if head is None else "labels of the pairs"
        raise LabelError(
            f"The loss {spec} needs {missing}. Give them, or use the loss l2 or l2+uncertainty."
        )
    labels = None if head is None else _check_head(head, pairs)
    x = scaling.inputs(pairs.old.vectors, pairs.side, pairs.old.name)
    y = scaling.targets(pairs.new.vectors)
    return Task(
        x,
        y,
        pairs.old.dim,
        labels if spec.disc else None,
        # the classifier sees the unscaled output: κ·(scale·h) = (scale·κ)·h
        head * np.float32(scaling.new) if head is not None and spec.disc else None,
        spec,
        options,
        _scaled_views(pairs, scaling, (x, y)),
    )


def _scaled_views(pairs: Pairs, scaling: Scaling, plain: Look) -> ScaledViews | None:
    """None also where the only view is the plain look: every pair can be left out exactly."""
    if pairs.views is None:
        return None
    views = ScaledViews(pairs.views, scaling, pairs.side, pairs.old.name)
    if views.count == 1 and all(map(np.array_equal, views.look(0), plain)):
        return None
    return views


def _check_head(head: Matrix, pairs: Pairs) -> NDArray[np.int64] | None:
    """The labels as classes of the head; refuses a head that does not fit the new vectors."""
    if head.shape[1] != pairs.new.dim:
        raise ShapeError(
            f"head: shape {head.shape}, but the new vectors have {pairs.new.dim} dimensions. "
            "Give the classifier's weight as (classes, dimensions)."
        )
    return None if pairs.labels is None else check_classes(pairs.labels, len(head))
