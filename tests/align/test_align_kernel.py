"""Kernel ridge regression against scikit-learn, really leaving out, and slow obvious formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge

from fastfill.align import Alignment, apply, kernel
from fastfill.align.kernel import (
    LAMBDAS,
    WIDTHS,
    LandmarkFrame,
    Solved,
    fit_kernel,
    fit_landmarks,
    kernel_arrays,
    landmark_sums,
)
from fastfill.features import Features, Pairs

D_OLD, D_NEW = 5, 3


def problem(rows: int, noise: float = 0.1, seed: int = 0) -> tuple[Any, Any]:
    """A noisy curved map between spaces that are not centred."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, D_OLD)) + 4
    y = np.sin(x @ rng.normal(size=(D_OLD, D_NEW))) + 1 + noise * rng.normal(size=(rows, D_NEW))
    return x.astype(np.float32), y.astype(np.float32)


def spread(x: Any) -> float:
    """Mean squared distance from the mean."""
    return float(np.square(x - x.mean(0, dtype=float)).sum(1).mean())


def predicted(fitted: kernel.KernelMap, x: Any) -> Any:
    """h, by the formula of the module."""
    return kernel.gaussian(x - fitted.mean, fitted.landmarks, fitted.gamma) @ fitted.weight + (
        fitted.bias
    )


def reference(gamma: float, lam: float, x: Any, y: Any, mean: Any) -> KernelRidge:
    """scikit-learn's fit of what y differs from the mean by."""
    model = KernelRidge(kernel="rbf", gamma=gamma, alpha=lam)
    return model.fit(x.astype(float), y.astype(float) - mean)


@pytest.mark.parametrize("lam", [0.003, 0.1, 3.0])
@pytest.mark.parametrize("width", [0.5, 1.4])
def test_with_all_pairs_as_landmarks_it_equals_scikit_learn(width: float, lam: float) -> None:
    """The same γ and λ give scikit-learn's kernel ridge regression about the mean of y."""
    x, y = problem(150)
    gamma = width / spread(x)
    fitted = fit_landmarks(x, y, np.arange(150), gamma, (lam,))
    others = problem(40, seed=1)[0].astype(float)
    mean = y.mean(0, dtype=float)
    expected = reference(gamma, lam, x, y, mean).predict(others) + mean
    np.testing.assert_allclose(predicted(fitted, others), expected, rtol=5e-3, atol=2e-3)


def test_pairs_that_are_all_landmarks_are_solved_as_any_others() -> None:
    """The short way, by the landmarks' kernel alone, gives the map and features of the sums."""
    x, y = problem(150)
    rows = np.arange(150)
    frame = LandmarkFrame.of(x, y, rows, rows, 1.0 / spread(x))
    short, features = Solved.of_landmarks(frame, y - frame.bias)
    sums = Solved.of(frame, *landmark_sums(frame, x, y, rows))
    np.testing.assert_allclose(short.g, sums.g, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(frame.values(x) @ short.basis, features, atol=1e-6)
    maps = [each.basis @ (each.moment / (each.g + 0.1)[:, None]) for each in (short, sums)]
    np.testing.assert_allclose(frame.values(x) @ maps[0], frame.values(x) @ maps[1], atol=1e-6)


def test_residuals_are_those_of_really_leaving_out() -> None:
    """Each pair's residual equals that of a fit without the pair, about the same mean."""
    x, y = problem(60)
    found = fit_kernel(x, y)
    gamma, lam, mean = found.gamma, found.facts["lambda"], y.mean(0, dtype=float)
    left = found.left_out
    np.testing.assert_array_equal(np.sort(left.rows), np.arange(60))
    for row, residual in zip(left.rows, left.residuals, strict=True):
        kept = np.arange(60) != row
        model = reference(gamma, lam, x[kept], y[kept], mean)
        expected = y[row] - mean - model.predict(x[[row]].astype(float))[0]
        np.testing.assert_allclose(residual, expected, rtol=1e-2, atol=1e-3)


def test_variances_are_those_of_a_gaussian_process() -> None:
    """What the pairs leave open is a Gaussian process's variance, seen and left out."""
    x, y = problem(80)
    found = fit_kernel(x, y)
    gamma, lam = found.gamma, found.facts["lambda"]

    def variance(rows: Any, at: Any) -> Any:
        process = GaussianProcessRegressor(RBF((2 * gamma) ** -0.5), alpha=lam, optimizer=None)
        process.fit(x[rows].astype(float), y[rows, 0].astype(float))
        return np.square(process.predict(at.astype(float), return_std=True)[1])

    others = problem(30, seed=2)[0]
    known = kernel.gaussian(others - found.mean, found.landmarks, gamma) @ found.directions
    np.testing.assert_allclose(
        1 - np.square(known).sum(1), variance(np.arange(80), others), atol=1e-3
    )
    for row, left in zip(found.left_out.rows[:20], found.left_out.variance[:20], strict=True):
        kept = np.arange(80) != row
        assert left == pytest.approx(float(variance(kept, x[[row]])[0]), abs=1e-3)


def test_the_best_width_and_penalty_are_chosen() -> None:
    """No other γ and λ of the grids has a smaller leave-one-out error."""
    x, y = problem(70, noise=0.5)
    found = fit_kernel(x, y)
    errors = [
        fit_landmarks(x, y, np.arange(70), width / spread(x), (lam,)).left_out.error
        for width in WIDTHS
        for lam in LAMBDAS
    ]
    assert found.left_out.error == pytest.approx(min(errors), rel=1e-5)
    noisy = fit_kernel(*problem(70, noise=3.0)).facts["lambda"]
    assert noisy > fit_kernel(*problem(70, noise=0.01)).facts["lambda"]


def test_the_error_left_out_is_that_of_unseen_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few more pairs than landmarks: no landmark is left out, so the error is not too large."""
    monkeypatch.setattr(kernel, "LANDMARKS", 500)
    everything = problem(2_600, noise=0.3)
    x, y = (part[:600] for part in everything)
    unseen, truth = (part[600:] for part in everything)
    for lam in (0.003, 0.1):
        fitted = fit_landmarks(x, y, np.arange(600), 1.4 / spread(x), (lam,))
        assert fitted.left_out.rows.tolist() == list(range(300, 600))
        error = np.square(predicted(fitted, unseen) - truth).sum(1).mean()
        assert fitted.left_out.error == pytest.approx(error, rel=0.25)


def test_few_landmarks_for_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer landmarks than pairs it is least squares over the kernels of the landmarks."""
    monkeypatch.setattr(kernel, "LANDMARKS", 40)
    x, y = problem(300)
    gamma, lam = 0.7 / spread(x), 0.3
    fitted = fit_landmarks(x, y, np.arange(300), gamma, (lam,))
    assert fitted.weight.shape == (40, D_NEW)
    xc = x - x.mean(0, dtype=float)
    k, zz = (kernel.gaussian(a, xc[:40], gamma) for a in (xc, xc[:40]))
    # argmin_w Σ ‖y − μ − k·w‖² + λ·tr(wᵀ·k(z, z)·w)
    expected = np.linalg.solve(k.T @ k + lam * zz, k.T @ (y - y.mean(0, dtype=float)))
    np.testing.assert_allclose(k @ fitted.weight, k @ expected, atol=1e-3)
    assert np.square(predicted(fitted, x) - y).mean() < 0.5 * y.var()


@pytest.mark.parametrize("block", [7, 64, 299])
def test_blocks_make_no_difference(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over the pairs in blocks give the map of all pairs at once."""
    x, y = problem(300)
    whole = fit_landmarks(x, y, np.arange(300), 0.1, LAMBDAS)
    monkeypatch.setattr(kernel, "BLOCK", block)
    parts = fit_landmarks(x, y, np.arange(300), 0.1, LAMBDAS)
    np.testing.assert_allclose(predicted(parts, x), predicted(whole, x), atol=1e-6)
    np.testing.assert_allclose(parts.left_out.residuals, whole.left_out.residuals, atol=1e-5)


def test_many_pairs_are_searched_and_left_out_by_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many pairs γ is chosen on some, and λ and the error on others than the landmarks."""
    for name, rows in (("SEARCHED", 50), ("LANDMARKS", 60), ("LEFT_OUT", 100)):
        monkeypatch.setattr(kernel, name, rows)
    x, y = problem(400)
    found = fit_kernel(x, y)
    assert found.facts["landmarks"] == 60
    assert len(found.left_out.residuals) == 100
    landmarks = x - found.mean
    seen = [int(np.abs(landmarks - z).sum(1).argmin()) for z in found.landmarks]
    assert not set(seen) & set(found.left_out.rows.tolist())
    assert np.square(predicted(found, x) - y).mean() < 0.6 * y.var()


def slow_score(arrays: Any, fitted: kernel.KernelMap, x: Any) -> tuple[Any, Any]:
    """h and the score of one item, in float64, as the formulas are written."""
    k = np.array([np.exp(-fitted.gamma * ((x - fitted.mean - z) ** 2).sum())
                  for z in fitted.landmarks])  # fmt: skip
    h = fitted.bias + sum(value * row for value, row in zip(k, fitted.weight, strict=True))
    known = k @ fitted.directions
    squares = [1 - (known**2).sum(), ((h - fitted.bias) ** 2).sum(), (h**2).sum()]
    logs = [np.log(max(*pair)) for pair in zip(squares, arrays["error.floor"], strict=True)]
    return h, float(arrays["error.weight"] @ np.concatenate([[1], logs, known]))


def test_applying_is_the_obvious_formula() -> None:
    """Two products and one exp in float32 give what loops over the landmarks give in float64."""
    x, y = problem(120)
    fitted = fit_kernel(x, y)
    arrays, _ = kernel_arrays(fitted, x, y)
    assert all(array.dtype == np.float32 for array in arrays.values())
    far = np.concatenate([problem(20, seed=3)[0], np.full((1, D_OLD), 100, dtype=np.float32)])
    h, score = apply.kernel(arrays, far)
    for i, row in enumerate(far.astype(float)):
        expected, expected_score = slow_score(arrays, fitted, row)
        np.testing.assert_allclose(h[i], expected, atol=1e-3)
        assert score[i] == pytest.approx(expected_score, abs=0.02)


def test_far_from_the_pairs_it_answers_with_the_mean_and_doubts() -> None:
    """Far from everything the map is the mean, and its error is among the largest."""
    x, y = problem(120)
    fitted = fit_kernel(x, y)
    arrays, _ = kernel_arrays(fitted, x, y)
    h, score = apply.kernel(arrays, np.full((1, D_OLD), 1e3, dtype=np.float32))
    np.testing.assert_allclose(h[0], y.mean(0), atol=1e-5)
    assert score[0] > np.quantile(apply.kernel(arrays, x)[1], 0.9)


def test_repeated_and_constant_inputs_do_no_harm() -> None:
    """Pairs that occur many times, and dead dimensions, give finite maps."""
    x, y = problem(30)
    x, y = np.tile(x, (10, 1)), np.tile(y, (10, 1))
    x[:, 2] = 0
    arrays, _ = kernel_arrays(fit_kernel(x, y), x, y)
    h, score = apply.kernel(arrays, x)
    assert np.isfinite(h).all()
    assert np.isfinite(score).all()
    np.testing.assert_allclose(h, y, atol=0.05)


def test_landmarks_depend_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One seed gives one map, to the last bit; another seed other landmarks."""
    monkeypatch.setattr(kernel, "LANDMARKS", 50)
    x, y = problem(200)
    pairs = Pairs(Features(x), Features(y))
    first, second = (Alignment.fit(pairs, method="kernel", seed=3) for _ in range(2))
    other = Alignment.fit(pairs, method="kernel", seed=4)
    assert first.fingerprint == second.fingerprint
    assert first.fingerprint != other.fingerprint


def test_the_error_of_a_noisy_region_is_seen() -> None:
    """Where half of the space is noisy and some of it empty of pairs, σ² ranks a gallery."""
    rng = np.random.default_rng(0)

    def draw(rows: int, low: float) -> tuple[Any, Any]:
        x = rng.uniform(low, 3, size=(rows, 3))
        noise = np.where(x[:, :1] > 1, 0.8, 0.05) * rng.normal(size=(rows, 8))
        y = np.sin(x) @ np.ones((3, 8)) + np.cos(2 * x[:, :1]) * np.linspace(-1, 1, 8)
        return x, y + noise

    pairs = Pairs(*map(Features, draw(400, -1.0)))
    x, y = draw(1500, -3.0)
    aligned = Alignment.fit(pairs, method="kernel")(x)
    error = np.square(aligned.vectors - y).sum(1)
    assert kendalltau(aligned.variance, error).statistic > 0.45
    inside = (x > -1).all(1)
    assert kendalltau(aligned.variance[inside], error[inside]).statistic > 0.4
    assert np.median(aligned.variance[~inside]) > 3 * np.median(aligned.variance[inside])


def test_pairs_left_out_are_scored_as_if_they_had_been_held_out():
    """Exact leave-one-out and a fit without a tenth of the pairs agree on vectors and doubts."""
    from fastfill.features import Features, Pairs

    rng = np.random.default_rng(4)
    x = rng.normal(size=(1_000, 5)).astype(np.float32)
    y = np.tanh(x) + np.exp(x[:, :1] - 2) * rng.normal(size=x.shape)
    pairs = Pairs(Features(x[:900]), Features(y[:900]))
    alignment = Alignment.fit(pairs, method="kernel")
    aligned = alignment(x[900:])
    error = np.square(aligned.vectors - y[900:]).sum(1)
    held = alignment.facts["held_out"]
    assert held["pairs"] == 900
    rank = np.corrcoef(np.argsort(np.argsort(aligned.variance)), np.argsort(np.argsort(error)))
    assert rank[0, 1] > 0.3
    assert 0.5 < aligned.variance.mean() / error.mean() < 2
    assert held["kendall_tau"] > 0.2
