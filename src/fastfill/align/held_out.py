"""Held-out pairs: which they are, what a method predicts for them, and how well that retrieves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastfill.align.methods import Method
from fastfill.align.task import Fitted, HeldOut, Task
from fastfill.features import Array, Distance, Ints, Matrix
from fastfill.metrics import Relevance, as_metrics, gallery_scores, neighbours

FOLDS_BELOW = 2_000  # with fewer pairs every pair is held out once, in one of FOLDS fits
FOLDS = 4
MOST_HELD_OUT = 1_000
SURE = 4  # standard errors; two are reached by chance once in the refits of a backfill
NEIGHBOURS = 5
AGREEMENT = f"agreement@{NEIGHBOURS}"

Scores = NDArray[np.float64]


def make_folds(rows: int, seed: int) -> list[Ints]:
    """The rows held out by each trial fit."""
    order = np.random.default_rng(seed).permutation(rows)
    if rows < FOLDS_BELOW:
        return [np.sort(part) for part in np.array_split(order, FOLDS)]
    return [np.sort(order[-min(max(rows // 10, 400), MOST_HELD_OUT) :])]


def is_left_out_alone(method: Method, distance: Distance) -> bool:
    """Is each pair held out by itself, where the method can do so in closed form?

    Not under an inner product: the pairs that matter there are the longest, and with all others of
    their kind still in the fit they flatter a map that knows nothing but its neighbourhood. Where
    there are views, such a method holds out folds of items within its one fit.
    """
    return method.exact and distance != "ip"


def predict_held_out(
    method: Method, task: Task, folds: list[Ints], alone: bool
) -> tuple[HeldOut, Fitted]:
    """Each fold predicted by a map of the other pairs, or each pair `alone`; and the last map."""
    if alone:
        fitted = method.fit(task)
        assert fitted.held_out is not None  # noqa: S101 - such methods know it
        return fitted.held_out.take(np.concatenate(folds)), fitted
    parts, scores = [], []
    quiet = replace(task.options, report=task.options.report if len(folds) == 1 else None)
    for held in folds:
        kept = np.setdiff1d(np.arange(len(task)), held)
        fitted = method.fit(replace(task.take(kept), options=quiet))
        h, score = method.apply(fitted.arrays, task.x[held])
        parts.append(h)
        scores.append(score.astype(np.float64))
    return HeldOut(np.concatenate(folds), np.concatenate(parts), np.concatenate(scores)), fitted


def held_out_scores(
    new: Matrix, aligned: Matrix, labels: Array | None, distance: Distance, device: str | None
) -> tuple[str, Scores]:
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


def surely_positive(gain: Scores) -> bool:
    """Is the mean above 0 by so much that it is no accident, even if asked again at every refit?

    >>> surely_positive(np.array([0.1, 0.2, 0.1, 0.2])), surely_positive(np.array([0.3, -0.1]))
    (True, False)
    """
    return bool(gain.mean() > SURE * gain.std() / len(gain) ** 0.5)
