"""`AlignmentRegressor` is an estimator of scikit-learn, and the map that the library learns."""

from __future__ import annotations

import numpy as np
import pytest

from fastfill.align import Alignment
from fastfill.features import Features, Pairs

sklearn_checks = pytest.importorskip(
    "sklearn.utils.estimator_checks", reason="scikit-learn is not installed"
)

RNG = np.random.default_rng(0)
OLD = RNG.normal(size=(200, 6)).astype(np.float32)
NEW = np.tanh(OLD @ RNG.normal(size=(6, 5))).astype(np.float32)
NEW[:, 4] *= 1e-3  # a direction that is hardly used: there is a distance penalty


def test_scikit_learns_own_checks_pass() -> None:
    """Every check of `check_estimator` passes, or is skipped for a package that is not here."""
    from fastfill.sklearn import AlignmentRegressor

    checks = sklearn_checks.check_estimator(AlignmentRegressor(method="ridge"), on_skip=None)
    assert {check["status"] for check in checks} <= {"passed", "skipped"}
    assert sum(check["status"] == "passed" for check in checks) > 50


def test_it_is_the_librarys_map() -> None:
    """Estimates, errors and vectors to serve are those of `Alignment` with the same parameters."""
    from fastfill.sklearn import AlignmentRegressor

    model = AlignmentRegressor(method="ridge", penalty=0.4, random_state=3).fit(OLD, NEW)
    pairs = Pairs(Features(OLD), Features(NEW))
    aligned = Alignment.fit(pairs, method="ridge", penalty=0.4, seed=3)(OLD)
    np.testing.assert_array_equal(model.predict(OLD), aligned.h)
    np.testing.assert_array_equal(model.transform(OLD), aligned.vectors)
    np.testing.assert_array_equal(model.predict_variance(OLD), aligned.variance)
    assert (model.transform(OLD) != model.predict(OLD)).any()


def test_few_pairs_make_a_ridge_map() -> None:
    """From fewer than 20 different new vectors a ridge map is learned, with an error for each."""
    from fastfill.sklearn import AlignmentRegressor

    model = AlignmentRegressor(method="kernel").fit(OLD[:12], OLD[:12] * 3)
    assert model.alignment_.method == "ridge"
    assert model.score(OLD, OLD * 3) > 0.9
    assert (model.predict_variance(OLD) > 0).all()
