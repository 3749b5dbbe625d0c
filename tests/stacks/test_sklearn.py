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


ROUNDING = "the last bit of a float32 depends on how many rows are mapped together"
MAY_FAIL = {
    "check_methods_subset_invariance": ROUNDING,
    "check_methods_sample_order_invariance": ROUNDING,
}
MAY_BE_SKIPPED = {
    "check_array_api_input": "SCIPY_ARRAY_API is not set",
    "check_regressor_data_not_an_array": "pandas is not installed",
}


@pytest.mark.parametrize("method", ["auto", "ridge"])
def test_scikit_learns_own_checks_pass(method: str) -> None:
    """All but two that compare last bits; one needs pandas, one a setting of SciPy."""
    from fastfill.sklearn import AlignmentRegressor

    checks = sklearn_checks.check_estimator(
        AlignmentRegressor(method=method), on_skip=None, expected_failed_checks=MAY_FAIL
    )
    others = [check for check in checks if check["status"] != "passed"]
    for check in others:
        name, reason = check["check_name"], str(check["exception"])
        if check["status"] == "skipped":
            assert reason.startswith(MAY_BE_SKIPPED[name])
        else:
            assert (name in MAY_FAIL, check["status"]) == (True, "xfail")
            assert "rtol=1e-07" in reason
    assert len(checks) - len(others) >= 55  # how many last bits differ is the processor's matter
    assert not AlignmentRegressor(method=method).__sklearn_tags__().non_deterministic


def test_a_seed_decides_all() -> None:
    """Two fits of the default with the same seed estimate the same bits, as do two calls."""
    from fastfill.sklearn import AlignmentRegressor

    one, two = (AlignmentRegressor(random_state=5).fit(OLD, NEW) for _ in range(2))
    np.testing.assert_array_equal(one.predict(OLD), two.predict(OLD))
    np.testing.assert_array_equal(one.predict(OLD), one.predict(OLD))
    np.testing.assert_array_equal(one.predict_variance(OLD), two.predict_variance(OLD))


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
