"""The kernel map of several looks at each item: γ and λ are chosen by folds over items.

As in `fastfill.align.kernel`, with sums over the mean of an item's looks in place of sums over
items: λ and the variance that the pairs leave keep their meaning. Landmarks are plain looks.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fastfill.align.item_folds import item_folds
from fastfill.align.kernel import (
    LAMBDAS,
    SEARCHED,
    WIDTHS,
    KernelMap,
    LandmarkFrame,
    LeftOut,
    Solved,
    Wide,
    landmark_sums,
    split,
)
from fastfill.align.task import Look, Task
from fastfill.features import Ints

MOST_ROWS = 100_000  # that are summed up, over all looks: more would take minutes
SEARCHED_LOOKS = 4  # from which γ is chosen

Moments = tuple[Wide, Wide]  # Σ k·kᵀ (m, m), Σ k·(y − μ)ᵀ (m, d_new)


def fit_kernel_views(task: Task) -> KernelMap:
    """Kernel ridge regression on all looks, or on as many as 100,000 rows allow."""
    seed = task.options.seed
    order = np.random.default_rng(seed).permutation(len(task))
    small = task.take(order[:SEARCHED])
    spread = float(np.square(small.x - small.x.mean(0, dtype=np.float64)).sum(1).mean())
    looks = list(_some_looks(small, SEARCHED_LOOKS))
    everything = np.arange(len(small))
    tried = [fit_looks(small, everything, looks, width / spread, LAMBDAS) for width in WIDTHS]
    gamma = min(tried, key=lambda fitted: fitted.left_out.error).gamma
    looks_used = _some_looks(task, max(1, MOST_ROWS // len(task)))
    return fit_looks(task, order, looks_used, gamma, LAMBDAS)


def _some_looks(task: Task, most: int) -> Iterable[Look]:
    """At most so many of the looks, spread over all."""
    assert task.views is not None  # noqa: S101 - asked by the caller
    count = task.views.count
    for number in np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int)):
        yield task.views.look(int(number))


def fit_looks(
    task: Task, rows: Ints, looks: Iterable[Look], gamma: float, lambdas: tuple[float, ...]
) -> KernelMap:
    """Fit the items `rows` with the first of them as landmarks; λ by folds of the last.

    See `fit_landmarks` for which items are landmarks and which are left out.
    """
    marks, left = split(rows)
    frame = LandmarkFrame.of(task.x, task.y, rows, marks, gamma)
    folds = item_folds(left, task.options.seed)
    rest = np.setdiff1d(rows, left)
    sums = _fold_sums(frame, looks, [*folds, rest] if len(rest) else folds)
    total = _added(sums)
    place = np.empty(len(task), dtype=np.int64)  # of an item among those left out
    place[left] = np.arange(len(left))
    residuals = np.empty((len(lambdas), len(left), task.y.shape[1]))
    variance = np.empty((len(lambdas), len(left)))
    for items, part in zip(folds, sums, strict=False):
        others = Solved.of(frame, total[0] - part[0], total[1] - part[1])
        F = frame.values(task.x[items]) @ others.basis
        F2, Y = np.square(F), task.y[items] - frame.bias
        for number, lam in enumerate(lambdas):
            shrink = others.g + lam
            residuals[number, place[items]] = Y - F @ (others.moment / shrink[:, None])
            variance[number, place[items]] = 1 - F2.sum(1) + lam * (F2 @ (1 / shrink))
    best = int(np.argmin([np.square(errors).sum() for errors in residuals]))
    left_out = LeftOut(left, residuals[best], variance[best])
    return Solved.of(frame, *total).map(frame, lambdas[best], left_out)


def _fold_sums(frame: LandmarkFrame, looks: Iterable[Look], folds: list[Ints]) -> list[Moments]:
    """The sums of each fold, for the mean of the looks."""
    sums: list[Moments] = []
    count = 0
    for x, y in looks:
        parts = [landmark_sums(frame, x, y, fold) for fold in folds]
        sums = [_added([a, b]) for a, b in zip(sums, parts, strict=True)] if sums else parts
        count += 1
    return [(gram / count, moment / count) for gram, moment in sums]


def _added(sums: list[Moments]) -> Moments:
    """Without a stack of them all: a matrix of 3,000 landmarks has 72 MB."""
    gram, moment = (part.copy() for part in sums[0])
    for more_gram, more_moment in sums[1:]:
        gram += more_gram
        moment += more_moment
    return gram, moment
