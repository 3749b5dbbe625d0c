"""The kinds of map by name: how each is learned, how it is applied, and what is special about it.

torch is imported only by the methods that train a network. It is an extra, `networks`: without it
these methods are refused, `auto` does without them, and maps of every kind can still be applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from fastfill.align import apply
from fastfill.align.apply import Arrays, Vector, error_features
from fastfill.align.item_folds import fit_procrustes_views, fit_ridge_views
from fastfill.align.linear import LinearMap, fit_procrustes, fit_ridge
from fastfill.align.task import Fitted, HeldOut, Task
from fastfill.errors import MissingExtraError
from fastfill.features import Distance, Matrix

NETWORK_PAIRS = 5_000  # from so many on a network may learn what a kernel does not
WITHOUT_NETWORKS = "kernel"  # learns what comes nearest to a network


@dataclass(frozen=True)
class Method:
    """A kind of map, with all that the rest of the library must know of it.

    >>> METHODS["kernel"].exact, METHODS["paper"].network
    (True, True)
    """

    name: str  # in artefacts, in `Alignment.fit` and on the command line
    fit: Callable[[Task], Fitted]
    apply: Callable[[Arrays, Matrix], tuple[Matrix, Vector]]
    tried: Callable[[Task], bool]  # does `auto` try it on these pairs?
    margin: float = 0.0  # standard errors by which it must beat ridge to be chosen by `auto`
    margin_ip: float | None = None  # under an inner product, if another
    network: bool = False  # trained with torch, by the loss that was asked for; others by l2
    exact: bool = False  # leaves every pair out at the price of one fit; with views, by folds
    as_published: bool = False  # trained once; no lengths matched, no penalty unless asked for

    def margin_under(self, distance: Distance) -> float:
        """The margin; an inner product's few longest items, neighbours of all, ask for more."""
        return self.margin if distance != "ip" or self.margin_ip is None else self.margin_ip

    @property
    def installed(self) -> bool:
        """Is there all that it needs to learn a map?"""
        return not self.network or find_spec("torch") is not None


def _always(_: Task) -> bool:
    return True


def _never(_: Task) -> bool:
    return False


def _if_it_pays(task: Task) -> bool:
    """With many pairs, or where the classifier teaches it what squared errors do not say."""
    return task.loss.disc or len(task) >= NETWORK_PAIRS


def ridge(task: Task) -> Fitted:
    """Least squares with a penalty, chosen by exact leave-one-out (with views, by folds)."""
    return _linear(task, ridge_map(task))


def ridge_map(task: Task) -> LinearMap:
    """The ridge map of the pairs, or of all views of them."""
    if task.views is None:
        return fit_ridge(task.x, task.y)
    return fit_ridge_views(task.looks(), (task.x, task.y), task.options.seed)


def procrustes(task: Task) -> Fitted:
    """A rotation, a scale and two means: cannot overfit, needs few pairs."""
    if task.views is None:
        return _linear(task, fit_procrustes(task.x, task.y))
    return _linear(task, fit_procrustes_views(task.looks(), (task.x, task.y)))


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
    from fastfill.align.kernel_views import fit_kernel_views

    if task.views is None:
        fitted = fit_kernel(task.x, task.y, task.options.seed)
    else:
        fitted = fit_kernel_views(task)
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


METHODS: dict[str, Method] = {  # in the order in which `auto` tries them, ridge first
    method.name: method
    for method in (
        Method("ridge", ridge, apply.linear, _always),
        Method("procrustes", procrustes, apply.linear, _always, margin=1.0),
        Method("kernel", kernel, apply.kernel, _always, margin_ip=2.0, exact=True),
        Method("residual", residual, apply.residual, _if_it_pays, margin=2.0, network=True),
        Method("paper", paper, apply.paper, _never, network=True, as_published=True),
    )
}
METHOD_NAMES = ("auto", *METHODS)  # what may be asked for


def candidates(task: Task) -> tuple[Method, ...]:
    """What `auto` tries on these pairs."""
    return tuple(m for m in METHODS.values() if m.tried(task) and m.installed)


def not_tried(task: Task) -> str | None:
    """A sentence about what `auto` would try on these pairs if torch were installed."""
    names = [m.name for m in METHODS.values() if m.tried(task) and not m.installed]
    if not names:
        return None
    return (
        f"auto has not tried {', '.join(names)}, which needs torch: to have it tried, "
        "run pip install 'fastfill[networks]'."
    )


def check_installed(name: str) -> None:
    """Refuse a method that trains a network where torch is not installed; `auto` never is.

    >>> check_installed("ridge")
    """
    if name in METHODS and not METHODS[name].installed:
        raise MissingExtraError("torch", "networks", f"The method {name!r}")


def installed_or_kernel(name: str) -> str:
    """The method, or the kernel map in its place where it needs torch and torch is missing.

    A map that was learned on another machine is learned again on this one.

    >>> installed_or_kernel("ridge"), installed_or_kernel("auto")
    ('ridge', 'auto')
    """
    return name if name not in METHODS or METHODS[name].installed else WITHOUT_NETWORKS


def relearned_by(name: str) -> str:
    """The method by which a map like this one is learned from a gallery's pairs.

    A map that is not learned from pairs alone (corrected), or takes too long (`paper`), is followed
    by the small network, or without torch by the kernel map.

    >>> relearned_by("ridge"), relearned_by("paper") in ("residual", "kernel")
    ('ridge', True)
    """
    method = METHODS.get(name)
    quick = name if method is not None and not method.as_published else "residual"
    return installed_or_kernel(quick)
