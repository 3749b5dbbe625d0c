"""The methods by name: from scaled pairs to the arrays that `align.apply` uses.

torch is imported only by the methods that train a network.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from fastfill.align.apply import error_features
from fastfill.align.linear import LinearMap, fit_procrustes, fit_ridge
from fastfill.align.losses import Discriminative, LossSpec, Reduction
from fastfill.errors import InputError
from fastfill.features import Matrix, check_positive


@dataclass(frozen=True)
class Task:
    """Scaled pairs, and how a network is to be trained on them."""

    x: Matrix  # (n, d_old + d_side), scaled
    y: Matrix  # (n, d_new), scaled
    old_dim: int
    labels: NDArray[np.int64] | None
    head: Matrix | None  # (classes, d_new), for vectors in scaled units
    loss: LossSpec
    options: Options
    seed: int

    def take(self, rows: NDArray[np.int64]) -> Task:
        """The same task on some of the pairs."""
        labels = None if self.labels is None else self.labels[rows]
        return Task(
            self.x[rows], self.y[rows], self.old_dim, labels, self.head, self.loss, self.options,
            self.seed,
        )  # fmt: skip


@dataclass(frozen=True)
class Options:
    """Choices that only networks know; the defaults are the paper's."""

    epochs: int | None = None
    batch: int | None = None
    rate: float | None = None
    weight_decay: float | None = None
    reduction: Reduction = "mean"  # of the l2 term over dimensions; the paper writes the sum
    discriminative: Discriminative = "cross-entropy"
    smoothing: float = 0.1
    lam: float = 1.0  # λ of eq. 4 and 5
    diagonal: bool = False  # one σ² per dimension instead of one per item
    device: str | None = None
    report: Callable[[int, int, float], None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.epochs is not None:
            check_positive(self.epochs, "epochs")
        if self.batch is not None and self.batch < 2:  # batch norm needs two
            raise InputError(f"batch must be at least 2, got {self.batch}.")
        for name in ("rate", "lam"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{name} must be a positive number, got {value}.")
        if not 0 <= self.smoothing < 1:
            raise InputError(f"smoothing must be from 0 to below 1, got {self.smoothing}.")
        for name, kind in (("reduction", Reduction), ("discriminative", Discriminative)):
            if getattr(self, name) not in get_args(kind):
                raise InputError(
                    f"Unknown {name} {getattr(self, name)!r}: "
                    f"use one of {', '.join(get_args(kind))}."
                )


@dataclass(frozen=True)
class HeldOut:
    """What a method predicts for pairs by fits without them, in the units of learning."""

    rows: NDArray[np.int64]
    h: Matrix
    doubt: NDArray[np.float64]  # the raw scores of the expected error


@dataclass(frozen=True)
class Fitted:
    """The arrays of a map, and facts about its training."""

    arrays: dict[str, Matrix]
    facts: dict[str, Any]
    held_out: HeldOut | None = None  # where the method knows it without further fits


def ridge(task: Task) -> Fitted:
    """Least squares with a penalty, chosen by exact leave-one-out."""
    return _linear(task, fit_ridge(task.x, task.y))


def procrustes(task: Task) -> Fitted:
    """A rotation, a scale and two means: cannot overfit, needs few pairs."""
    return _linear(task, fit_procrustes(task.x, task.y))


def _linear(task: Task, fitted: LinearMap) -> Fitted:
    arrays = {"out.weight": fitted.weight, "out.bias": fitted.bias, **_whitening(task)}
    logs = np.log(np.square(fitted.residuals).sum(1) + 1e-12)
    features = error_features(arrays, task.x, fitted(task.x))
    weight = np.linalg.lstsq(features.astype(np.float64), logs, rcond=1e-6)[0]
    return Fitted({**arrays, "error.weight": weight.astype(np.float32)}, fitted.facts)


def _whitening(task: Task) -> dict[str, Matrix]:
    """‖(x − μ)·whiten‖² is the leverage of x; directions that the pairs do not span are damped."""
    mean = task.x.mean(0, dtype=np.float64)
    centred = task.x - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    damped = np.maximum(values, 0) + 1e-3 * max(float(values.mean()), 1e-12)
    whiten = vectors / np.sqrt(damped)
    h_mean = task.y.mean(0, dtype=np.float64)
    parts = {"x.mean": mean, "h.mean": h_mean, "whiten": whiten}
    return {name: np.ascontiguousarray(part, dtype=np.float32) for name, part in parts.items()}


def kernel(task: Task) -> Fitted:
    """Kernel ridge regression: smooth and curved, in closed form."""
    from fastfill.align.kernel import fit_kernel, kernel_arrays

    fitted = fit_kernel(task.x, task.y, task.seed)
    arrays, scores = kernel_arrays(fitted, task.x, task.y)
    rows = fitted.left_out.rows
    h = (task.y[rows] - fitted.left_out.residuals).astype(np.float32)
    return Fitted(arrays, fitted.facts, HeldOut(rows, h, scores))


def residual(task: Task) -> Fitted:
    """A ridge map plus a small network that starts at zero."""
    from fastfill.align.training_tasks import fit_residual

    return fit_residual(task)


def paper(task: Task) -> Fitted:
    """The paper's network, losses and schedule."""
    from fastfill.align.training_tasks import fit_paper

    return fit_paper(task)


METHODS: dict[str, Callable[[Task], Fitted]] = {
    "ridge": ridge,
    "procrustes": procrustes,
    "kernel": kernel,
    "residual": residual,
    "paper": paper,
}
AUTO = ("ridge", "procrustes", "kernel", "residual")  # what `auto` chooses from
NETWORK_PAIRS = 5_000


def candidates(task: Task) -> tuple[str, ...]:
    """What `auto` tries: a network only where it can be better than what a kernel learns sooner.

    That is with many pairs, or where the classifier teaches it what squared errors do not say.
    """
    network = task.loss.disc or len(task.x) >= NETWORK_PAIRS
    return AUTO if network else tuple(name for name in AUTO if name != "residual")
