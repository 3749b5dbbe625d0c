"""Several views of each item: what networks and closed forms learn from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fastfill.align import Alignment, fit_part, kernel
from fastfill.align.item_folds import fit_procrustes_views, fit_ridge_views, item_folds
from fastfill.align.kernel import gaussian
from fastfill.align.kernel_views import fit_looks
from fastfill.align.leave_one_out import LeaveOut
from fastfill.align.linear import LAMBDAS, fit_procrustes
from fastfill.align.losses import LossSpec
from fastfill.align.options import FitOptions
from fastfill.align.scaling import Scaling
from fastfill.align.task import ScaledViews, Task
from fastfill.align.training_data import ResidentPairs
from fastfill.errors import InputError, ShapeError
from fastfill.features import Distance, Features, Pairs, PairView, PairViews

METHODS = ("ridge", "procrustes", "kernel", "residual", "paper")


class NoisyWorld:
    """Items of six hidden numbers; a look at one adds noise that both models see."""

    def __init__(self, items: int = 240, views: int = 8, noise: float = 0.6, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.items = rng.normal(size=(items, 6))
        self.to_old, self.to_new = rng.normal(size=(6, 16)), rng.normal(size=(6, 12))
        looks = [self.look(noise, rng) for _ in range(views)]
        plain = self.look(0.0, rng)
        self.old = np.stack([plain[0], *(old for old, _ in looks)])  # (1 + views, n, 16)
        self.new = np.stack([plain[1], *(new for _, new in looks)])

    def look(self, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Old and new vectors; the old model adds errors of its own."""
        seen = self.items + noise * rng.normal(size=self.items.shape)
        old = np.tanh(seen @ self.to_old / 2) + 0.02 * rng.normal(size=(len(seen), 16))
        return old.astype(np.float32), np.sin(seen @ self.to_new / 2).astype(np.float32)

    def pairs(self, views: int | None, rows: slice = slice(None)) -> Pairs:
        """Items with so many views, the plain look first; None: with the plain look alone."""
        if views is None:
            return Pairs(Features(self.old[0, rows]), Features(self.new[0, rows]))
        return Pairs.from_views(self.old[:views, rows], self.new[:views, rows])


def scaled_task(pairs: Pairs, distance: Distance = "l2") -> Task:
    """The pairs in the units of learning."""
    scaling = Scaling.of(pairs, distance)
    assert pairs.views is not None
    return Task(
        scaling.inputs(pairs.old.vectors, pairs.side), scaling.targets(pairs.new.vectors),
        pairs.old.dim, None, None, LossSpec.parse("l2"), FitOptions(),
        ScaledViews(pairs.views, scaling, pairs.side, "old"),
    )  # fmt: skip


# --- networks -------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", ["l2", "cosine"])
@pytest.mark.parametrize("resident", [False, True])
def test_each_epoch_shows_another_view_in_the_same_memory(
    distance: Distance, resident: bool
) -> None:
    """View = epoch modulo their number, scaled like the pairs, for arrays and for tensors."""
    world = NoisyWorld(items=30, views=2)
    old, new = world.old, world.new
    views = PairViews.of_arrays(old, new)
    if resident:
        views = PairViews.of_arrays(torch.from_numpy(old), torch.from_numpy(new))
    pairs = Pairs(Features(old[0]), Features(new[0]), views=views)
    task = scaled_task(pairs, distance)
    shown = ResidentPairs(task, torch.device("cpu"))
    address = shown.x.data_ptr(), shown.y.data_ptr()
    scaling = Scaling.of(pairs, distance)
    for epoch in (0, 1, 2, 3, 4):
        shown.show_view(epoch)
        expected = scaling.inputs(old[epoch % 3], None), scaling.targets(new[epoch % 3])
        assert np.allclose(shown.x.numpy(), expected[0], rtol=1e-6)
        assert np.allclose(shown.y.numpy(), expected[1], rtol=1e-6)
        assert (shown.x.data_ptr(), shown.y.data_ptr()) == address
    assert np.array_equal(task.x, scaling.inputs(old[0], None))


def test_side_information_of_a_view_is_shown_with_it() -> None:
    """Views with side-information of their own bring it; others keep the plain look's."""
    rng = np.random.default_rng(0)
    old, new, side = (rng.normal(size=(3, 25, d)).astype(np.float32) for d in (4, 5, 2))
    with_own = Pairs.from_views(old, new, side=side)
    shared = Pairs.from_views(old, new, side=side[0])
    for pairs, number in ((with_own, 2), (shared, 0)):
        shown = ResidentPairs(scaled_task(pairs), torch.device("cpu"))
        shown.show_view(2)
        assert shown.side is not None
        scale = np.float32(Scaling.of(pairs, "l2").side)
        assert np.array_equal(shown.side.numpy(), side[number] / scale)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("method", ["paper", "residual"])
def test_tensors_in_half_precision_train_like_arrays(method: str) -> None:
    """Views that live on the device, in float16, give the map that the same numbers give."""
    world = NoisyWorld(items=120, views=3)
    half = world.old.astype(np.float16), world.new.astype(np.float16)
    plain = Features(world.old[0]), Features(world.new[0])
    tensors = PairViews.of_arrays(*map(torch.from_numpy, half))
    maps = [
        Alignment.fit(Pairs(*plain, views=views), method=method, epochs=5)
        for views in (PairViews.of_arrays(*half), tensors)
    ]
    assert np.allclose(maps[0](world.old[0]).vectors, maps[1](world.old[0]).vectors, atol=1e-5)


# --- every method ---------------------------------------------------------------------------


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("method", METHODS)
def test_one_view_equals_no_views(method: str) -> None:
    """A single view, in an array or from a function, gives exactly the map without views."""
    world = NoisyWorld(items=90, views=0)
    options: dict[str, Any] = {"method": method, "epochs": 3}
    without = Alignment.fit(world.pairs(None), **options)
    single = PairViews.generated(1, lambda _: PairView(world.old[0], world.new[0]))
    generated = Pairs(Features(world.old[0]), Features(world.new[0]), views=single)
    for pairs in (world.pairs(1), generated):
        assert Alignment.fit(pairs, **options).fingerprint == without.fingerprint


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(("method", "share"), [("kernel", 0.9), ("residual", 0.97), ("auto", 0.9)])
def test_views_help_where_pairs_are_few(method: str, share: float) -> None:
    """Curved maps that have seen eight noisy looks at each item err less on items unseen."""
    world = NoisyWorld(items=500, noise=0.4)
    known, unseen = slice(None, 150), slice(150, None)

    def error(views: int | None) -> float:
        fitted = Alignment.fit(world.pairs(views, known), method=method, penalty=0.0)
        return float(np.square(fitted(world.old[0, unseen]).h - world.new[0, unseen]).mean())

    assert error(9) < share * error(None)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("method", ["ridge", "procrustes", "kernel", "residual"])
def test_held_out_quality_is_that_of_the_plain_look(method: str) -> None:
    """Held-out pairs are measured as the gallery has them, by maps that saw no look at them."""
    world = NoisyWorld(items=400, views=4)
    known, unseen = slice(None, 200), slice(200, None)
    fitted = Alignment.fit(world.pairs(5, known), method=method, epochs=10, penalty=0.0)
    new = world.new[0, unseen]
    error = np.square(fitted(world.old[0, unseen]).h - new).sum(1).mean()
    explained = 1 - error / np.square(new - new.mean(0)).sum(1).mean()
    assert fitted.facts["held_out"]["explained"] == pytest.approx(explained, abs=0.06)
    assert fitted.facts["views"] == 5


def test_looks_at_held_out_items_are_in_no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An item whose looks are spoiled changes the maps of other folds, never that of its own."""
    monkeypatch.setattr("fastfill.align.item_folds.LAMBDAS", np.array([0.01]))
    world = NoisyWorld(items=60, views=3)
    task = scaled_task(world.pairs(4))
    folds = item_folds(np.arange(60), seed=0)
    looks = list(task.looks())
    before = fit_ridge_views(looks, (task.x, task.y), seed=0)
    spoiled = [(x.copy(), y.copy()) for x, y in looks]
    for _, y in spoiled:
        y[folds[0]] += 5.0
    after = fit_ridge_views(spoiled, (task.x, task.y), seed=0)
    assert not np.allclose(before.residuals[folds[1]], after.residuals[folds[1]], atol=0.1)
    assert np.allclose(before.residuals[folds[0]], after.residuals[folds[0]], atol=1e-4)


# --- against slow, obvious versions ---------------------------------------------------------


def plain_ridge(x: np.ndarray, y: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias of one penalty, relative to the mean eigenvalue."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    xc, yc = x - x.mean(0), y - y.mean(0)
    gram = xc.T @ xc
    unit = np.trace(gram) / len(gram)
    weight = np.linalg.solve(gram + lam * unit * np.eye(len(gram)), xc.T @ yc)
    return weight, y.mean(0) - x.mean(0) @ weight


def test_ridge_on_views_is_ridge_on_all_looks_with_folds_over_items() -> None:
    """The map is that of all looks in one heap, its residuals those of fits without a fold."""
    world = NoisyWorld(items=48, views=3)
    task = scaled_task(world.pairs(4))
    looks = list(task.looks())
    fitted = fit_ridge_views(looks, (task.x, task.y), seed=0)
    lam = fitted.facts["lambda"]
    folds = item_folds(np.arange(48), seed=0)

    def fit(rows: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
        heap = [np.concatenate([look[i][rows] for look in looks]) for i in (0, 1)]
        return plain_ridge(heap[0], heap[1], lam)

    def left_out(lam: float) -> np.ndarray:
        residuals = np.empty(task.y.shape)
        for held in folds:
            weight, bias = fit(np.setdiff1d(np.arange(48), held), lam)
            residuals[held] = task.y[held] - task.x[held] @ weight - bias
        return residuals

    weight, bias = fit(np.arange(48), lam)
    assert np.allclose(fitted.weight, weight, atol=1e-4)
    assert np.allclose(fitted.bias, bias, atol=1e-4)
    assert np.allclose(fitted.residuals, left_out(lam), atol=1e-4)
    errors = [np.square(left_out(each)).sum() for each in LAMBDAS]
    assert np.square(left_out(lam)).sum() == pytest.approx(min(errors), rel=1e-6)


def test_procrustes_on_views_is_procrustes_on_all_looks() -> None:
    """The rotation of all looks in one heap."""
    world = NoisyWorld(items=40, views=3)
    task = scaled_task(world.pairs(4))
    looks = list(task.looks())
    fitted = fit_procrustes_views(looks, (task.x, task.y))
    heap = fit_procrustes(*(np.concatenate([look[i] for look in looks]) for i in (0, 1)))
    assert np.allclose(fitted.weight, heap.weight, atol=1e-5)
    assert np.allclose(fitted.residuals, task.y - heap(task.x), atol=1e-5)


@pytest.mark.parametrize("landmarks", [3_000, 30])
def test_kernel_on_views_is_the_mean_look_with_folds_over_items(
    landmarks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Items left out are predicted as by fits on all looks at the others, with all or few marks."""
    monkeypatch.setattr(kernel, "LANDMARKS", landmarks)
    monkeypatch.setattr(kernel, "APART", 20)
    world = NoisyWorld(items=60, views=2)
    task = scaled_task(world.pairs(3))
    looks, rows, gamma, lam = list(task.looks()), np.arange(60), 0.02, 0.1
    fitted = fit_looks(task, rows, looks, gamma, (lam,))
    marks, left = kernel.split(rows)
    mean, bias = task.x.mean(0, dtype=np.float64), task.y.mean(0, dtype=np.float64)
    z = task.x[marks] - mean
    among = gaussian(z, z, gamma) + kernel.JITTER * np.eye(len(z))

    def weight(items: np.ndarray) -> np.ndarray:
        """argmin Σ ‖y − μ − k·w‖² / looks + λ·wᵀ·K·w."""
        k = np.concatenate([gaussian(x[items] - mean, z, gamma) for x, _ in looks])
        y = np.concatenate([y[items] - bias for _, y in looks])
        return np.linalg.solve(k.T @ k / len(looks) + lam * among, k.T @ y / len(looks))

    assert fitted.left_out.rows.tolist() == left.tolist()
    for held in item_folds(left, seed=0):
        h = gaussian(task.x[held] - mean, z, gamma) @ weight(np.setdiff1d(rows, held)) + bias
        place = np.searchsorted(left, held)
        assert np.allclose(fitted.left_out.residuals[place], task.y[held] - h, atol=1e-6)
    assert np.allclose(fitted.weight, weight(rows), atol=1e-4)


# --- other doors ----------------------------------------------------------------------------


def test_a_part_of_the_pairs_is_learned_with_its_views() -> None:
    """`fit_part` learns from all looks at the rows that it is given, and from no others."""
    world = NoisyWorld(items=80, views=3)
    pairs = world.pairs(4)
    whole = Alignment.fit(pairs, method="ridge")
    rows = np.arange(0, 80, 2)
    part = fit_part(pairs, rows, whole)
    spoiled = world.old.copy()
    spoiled[1:, 1::2] += 7
    again = fit_part(Pairs.from_views(spoiled, world.new), rows, whole)
    assert np.array_equal(part.arrays["out.weight"], again.arrays["out.weight"])
    assert not np.allclose(
        part.arrays["out.weight"], fit_part(world.pairs(None), rows, whole).arrays["out.weight"]
    )


def test_a_kernel_map_of_views_has_no_exact_leave_one_out() -> None:
    """The closed form knows one look at each pair; with several, maps are fitted in parts."""
    world = NoisyWorld(items=60, views=2)
    pairs = world.pairs(3)
    assert LeaveOut.of(Alignment.fit(pairs, method="kernel"), pairs) is None


def test_views_that_do_not_fit_are_refused() -> None:
    """Other numbers of views or rows, other models and other shapes are named in one sentence."""
    old, new = np.ones((3, 25, 4)), np.ones((3, 25, 5))
    with pytest.raises(ShapeError, match=r"old views has 3 views of 25 rows and new views 2 of 25"):
        Pairs.from_views(old, new[:2])
    with pytest.raises(ShapeError, match=r"expected views as a 3-D array .*got shape \(25, 4\)"):
        Pairs.from_views(old[0], new)
    with pytest.raises(ShapeError, match=r"shape \(25, 4\) where \(25, 3\) is expected"):
        Pairs(Features(np.ones((25, 3))), Features(new[0]), views=PairViews.of_arrays(old, new))
    with pytest.raises(ShapeError, match=r"A view has 25 old and 24 new vectors"):
        PairView(old[0], new[0, 1:])
    with pytest.raises(InputError, match=r"The number of views must be at least 1, got 0"):
        PairViews.generated(0, lambda _: PairView(old[0], new[0]))
