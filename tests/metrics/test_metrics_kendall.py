"""Kendall's τ-b, against SciPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from fastfill.errors import ShapeError
from fastfill.metrics import kendall_tau


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(2, 70), st.sampled_from([2, 5, 1000]))
def test_tau_is_that_of_scipy(seed, items, values):
    """Ties in one ranking, in the other and in both are counted as τ-b counts them."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, values, (2, items)) / 7
    expected = kendalltau(a, b).statistic
    assert kendall_tau(a, b) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_many_items_are_ranked_as_by_scipy():
    """Sizes that are no power of 2, and far more items than a block of the merge sort."""
    rng = np.random.default_rng(3)
    a = rng.normal(size=50_001)
    b = np.round(a + rng.normal(size=len(a)), 2)
    assert kendall_tau(a, b) == pytest.approx(kendalltau(a, b).statistic, abs=1e-12)


@pytest.mark.parametrize("values", [[3, 3, 3], [1, float("nan"), 2]])
def test_no_order_has_no_tau(values):
    """A constant ranking, or one with a hole, cannot be compared."""
    assert np.isnan(kendall_tau(values, [1, 2, 3]))


def test_rankings_of_other_items_are_refused():
    """Both must have one number per item."""
    with pytest.raises(ShapeError, match="Rankings of the same items"):
        kendall_tau([1, 2], [1, 2, 3])
