"""Calibration: from a score to a predicted error that can be trusted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfill.align.calibration import Calibration, check_calibration


def noisy(rows: int, slope: float, offset: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Errors that scatter around exp(offset + slope·score) as a squared norm does."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=rows)
    return score, np.exp(offset + slope * score) * rng.gamma(4.0, 0.25, size=rows)


@given(slope=st.floats(0.2, 3.0), offset=st.floats(-20.0, 20.0), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_the_true_curve_is_found(slope: float, offset: float, seed: int) -> None:
    """From noisy errors the slope and the offset behind them come back."""
    found = Calibration.fit(*noisy(4000, slope, offset, seed))
    assert found.slope == pytest.approx(slope, abs=0.06)
    assert found.offset == pytest.approx(offset, abs=0.06)


@given(factor=st.floats(1e-8, 1e8))
@settings(max_examples=30)
def test_errors_in_other_units_change_only_the_unit(factor: float) -> None:
    """Multiplying the errors multiplies the prediction, and nothing else."""
    score, error = noisy(500, 1.0, 0.0)
    one, other = Calibration.fit(score, error), Calibration.fit(score, factor * error)
    assert other.slope == pytest.approx(one.slope, rel=1e-5)
    assert other.bound == pytest.approx(one.bound, rel=1e-5)
    s = score.astype(np.float32)
    np.testing.assert_allclose(other(s), factor * one(s), rtol=1e-4)


@given(gain=st.floats(1e-3, 1e3), shift=st.floats(-50, 50))
@settings(max_examples=30)
def test_the_units_of_the_score_do_not_matter(gain: float, shift: float) -> None:
    """A score that is stretched and moved gives the same predictions."""
    score, error = noisy(500, 1.0, 0.0)
    one, other = Calibration.fit(score, error), Calibration.fit(gain * score + shift, error)
    a = one.offset + one.slope * score
    b = other.offset + other.slope * (gain * score + shift)
    np.testing.assert_allclose(a, b, atol=1e-4)


def test_a_higher_score_never_predicts_a_smaller_error() -> None:
    """The prediction rises with the score, even where the held-out errors fall with it."""
    score, error = noisy(500, -2.0, 0.0)
    found = Calibration.fit(score, error)
    predicted = found(np.sort(score).astype(np.float32))
    assert (np.diff(predicted) >= 0).all()
    assert found.slope > 0
    assert predicted.mean() == pytest.approx(error.mean(), rel=0.01)


def test_a_constant_score_predicts_the_mean_error() -> None:
    """A map without uncertainty says the same of every item: the mean error."""
    error = np.random.default_rng(0).gamma(2.0, size=300)
    found = Calibration.fit(np.zeros(300), error)
    np.testing.assert_allclose(found(np.zeros(5, dtype=np.float32)), error.mean(), rtol=1e-5)


@pytest.mark.parametrize("error", [np.zeros(50), np.full(50, 3.0)])
def test_errors_without_spread_are_no_problem(error: np.ndarray) -> None:
    """Perfect maps and equal errors calibrate to finite numbers, and τ is a number."""
    score = np.linspace(-1, 1, 50)
    found = Calibration.fit(score, error)
    assert np.isfinite([found.offset, found.slope, found.bound]).all()
    assert np.isfinite(found(score.astype(np.float32))).all()
    assert check_calibration(score, error)["kendall_tau"] == 0.0


def test_extreme_scores_give_finite_positive_errors() -> None:
    """However far a score lies from those seen, its predicted error is a positive number."""
    found = Calibration.fit(*noisy(200, 2.0, 5.0))
    predicted = found(np.float32([-1e30, -1e3, 1e3, 1e30]))
    assert np.isfinite(predicted).all()
    assert (predicted > 0).all()


def test_ninety_percent_lie_below_the_bound() -> None:
    """The bound covers 90 % of the errors that it was fitted on, and about that of others."""
    score, error = noisy(5000, 1.0, 2.0)
    found = Calibration.fit(score[:2500], error[:2500])
    predicted = found.bound * np.exp(found.offset + found.slope * score)
    assert (error <= predicted)[:2500].mean() == pytest.approx(0.9, abs=0.001)
    assert (error <= predicted)[2500:].mean() == pytest.approx(0.9, abs=0.02)


def test_trust_is_measured_as_kendall_tau_and_coverage() -> None:
    """τ is the share of pairs of items in the right order, minus the wrong ones."""
    score, error = noisy(300, 1.0, 0.0)
    signs = np.sign(score[:, None] - score) * np.sign(error[:, None] - error)
    obvious = signs.sum() / (300 * 299)
    trust = check_calibration(score, error)
    assert trust["kendall_tau"] == pytest.approx(obvious)
    assert trust["coverage_90"] == pytest.approx(0.9, abs=0.05)
    assert check_calibration(np.zeros(300), error)["kendall_tau"] == 0.0
