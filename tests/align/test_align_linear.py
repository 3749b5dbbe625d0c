"""Ridge and Procrustes against scikit-learn, SciPy and really leaving out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from sklearn.linear_model import Ridge

from fastfill.align.linear import LAMBDAS, fit_procrustes, fit_ridge


def problem(rows: int, d_old: int, d_new: int, noise: float, seed: int = 0) -> tuple[Any, Any]:
    """A noisy linear map between spaces that are not centred."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, d_old)) * np.linspace(0.2, 2, d_old) + 3
    y = x @ rng.normal(size=(d_old, d_new)) + 1 + noise * rng.normal(size=(rows, d_new))
    return x.astype(np.float32), y.astype(np.float32)


def penalty(x: Any, lam: float) -> float:
    """λ in scikit-learn's units: relative to the mean eigenvalue of the centred XᵀX."""
    centred = x.astype(float) - x.mean(0, dtype=float)
    return lam * float(np.square(centred).sum()) / x.shape[1]


@pytest.mark.parametrize(
    ("rows", "d_old", "d_new", "noise"), [(60, 8, 5, 3.0), (200, 4, 9, 0.1), (15, 40, 6, 1.0)]
)
def test_ridge_equals_scikit_learn(rows: int, d_old: int, d_new: int, noise: float) -> None:
    """At the λ that was chosen, weights, bias and predictions are scikit-learn's."""
    x, y = problem(rows, d_old, d_new, noise)
    found = fit_ridge(x, y)
    expected = Ridge(alpha=penalty(x, found.facts["lambda"])).fit(x.astype(float), y.astype(float))
    np.testing.assert_allclose(found.weight, expected.coef_.T, atol=2e-4)
    np.testing.assert_allclose(found(x), expected.predict(x), atol=2e-3)


def left_out(x: Any, y: Any, alpha: float) -> Any:
    """y − ŷ of every row, ŷ from a fit that has not seen it."""
    rows = np.arange(len(x))
    return np.concatenate(
        [y[i : i + 1] - Ridge(alpha=alpha).fit(x[rows != i], y[rows != i]).predict(x[i : i + 1])
         for i in rows]
    )  # fmt: skip


@pytest.mark.parametrize(("rows", "d_old"), [(30, 6), (12, 20)])
def test_residuals_are_those_of_really_leaving_out(rows: int, d_old: int) -> None:
    """The residuals equal those of fitting again without each pair, one after the other."""
    x, y = problem(rows, d_old, 3, 1.0)
    found = fit_ridge(x, y)
    alpha = penalty(x, found.facts["lambda"])
    expected = left_out(x.astype(float), y.astype(float), alpha)
    np.testing.assert_allclose(found.residuals, expected, rtol=1e-3, atol=1e-3)


def test_the_best_lambda_is_chosen() -> None:
    """No other λ of the grid has a smaller leave-one-out error."""
    x, y = problem(25, 10, 3, 2.0)
    errors = [
        np.square(left_out(x.astype(float), y.astype(float), penalty(x, lam))).sum()
        for lam in LAMBDAS[::4]
    ]
    own = np.square(left_out(x.astype(float), y.astype(float),
                             penalty(x, fit_ridge(x, y).facts["lambda"]))).sum()  # fmt: skip
    assert own <= min(errors) * (1 + 1e-6)


def test_more_noise_asks_for_more_penalty() -> None:
    """λ rises with the noise."""
    quiet = fit_ridge(*problem(50, 20, 4, 0.01)).facts["lambda"]
    loud = fit_ridge(*problem(50, 20, 4, 30.0)).facts["lambda"]
    assert quiet < loud


@pytest.mark.parametrize(("d_old", "d_new"), [(6, 6), (4, 7), (7, 4)])
def test_procrustes_equals_scipy(d_old: int, d_new: int) -> None:
    """The rotation is SciPy's (on spaces padded to one size), with the best scale and the means."""
    x, y = problem(80, d_old, d_new, 0.5)
    found = fit_procrustes(x, y)
    size = max(d_old, d_new)
    xc, yc = (np.pad(m - m.mean(0, dtype=float), ((0, 0), (0, size - m.shape[1]))) for m in (x, y))
    rotation = orthogonal_procrustes(xc, yc)[0][:d_old, :d_new]
    turned = xc[:, :d_old] @ rotation
    scale = (turned * yc[:, :d_new]).sum() / np.square(turned).sum()
    assert found.facts["scale"] == pytest.approx(scale, rel=1e-5)
    np.testing.assert_allclose(found.weight, scale * rotation, atol=1e-5)
    np.testing.assert_allclose(found(x.mean(0, keepdims=True)), y.mean(0, keepdims=True), atol=1e-4)
    np.testing.assert_allclose(found.residuals, y - found(x), atol=1e-3)


def test_procrustes_keeps_angles() -> None:
    """The map of equal dimensions is a rotation times one number."""
    weight = fit_procrustes(*problem(50, 5, 5, 1.0)).weight.astype(float)
    gram = weight.T @ weight
    np.testing.assert_allclose(gram, gram[0, 0] * np.eye(5), atol=1e-5)


@pytest.mark.parametrize("fit", [fit_ridge, fit_procrustes])
def test_degenerate_spaces_give_finite_maps(fit: Any) -> None:
    """Dead dimensions, repeated columns and fewer pairs than dimensions do no harm."""
    x, y = problem(10, 30, 4, 0.1)
    x[:, 3] = 0
    x[:, 7] = x[:, 8]
    found = fit(x, y)
    assert np.isfinite(found.weight).all()
    assert np.isfinite(found.residuals).all()
