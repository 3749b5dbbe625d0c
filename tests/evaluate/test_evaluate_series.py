"""Series: what was measured along the fraction, and its spread over seeds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfill.errors import InputError
from fastfill.evaluate import Curve, Estimate, Series, metrics_of


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_estimate_is_mean_and_sample_deviation(values: list[float]) -> None:
    """An estimate agrees with NumPy's mean and its deviation with n − 1."""
    found = Estimate.of(values)
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert found.std == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    assert found.seeds == len(values)


def test_curves_of_one_name_and_metric_are_seeds_of_one_series() -> None:
    """Grouping keeps the order of appearance and stacks the seeds."""
    curves = [
        Curve(metric, [0, 0.5, 1], [0.2, 0.5 + seed / 10, 0.8], name)
        for metric in ("cmc@1", "map")
        for name, seeds in (("sigma", 1), ("random", 3))
        for seed in range(seeds)
    ]
    series = Series.group(curves)
    assert [(one.name, one.metric) for one in series] == [
        ("sigma", "cmc@1"),
        ("random", "cmc@1"),
        ("sigma", "map"),
        ("random", "map"),
    ]
    assert [len(one.values) for one in series] == [1, 3, 1, 3]
    assert metrics_of(series) == ["cmc@1", "map"]
    assert series[0].std is None
    np.testing.assert_allclose(series[1].std, series[1].values.std(axis=0, ddof=1))


def test_seeds_of_different_fractions_are_refused() -> None:
    """Seeds that were measured elsewhere cannot be averaged."""
    with pytest.raises(InputError, match=r"'a' \(map\).*different fractions"):
        Series.group([Curve("map", [0, 1], [0, 1], "a"), Curve("map", [0, 0.5], [0, 1], "a")])


def test_values_that_do_not_fit_the_fractions_are_refused() -> None:
    """A series has one value per fraction."""
    with pytest.raises(InputError, match="one value per fraction"):
        Series("a", "map", np.array([0.0, 1.0]), np.array([1.0, 2.0, 3.0]))


def test_an_estimate_leaves_out_seeds_without_a_value() -> None:
    """A seed for which a number does not exist does not count."""
    (series,) = Series.group([Curve("map", [0, 1], [0.2, v], "a") for v in (0.4, 0.6)])
    assert series.estimate(lambda curve: None).seeds == 0
    assert series.estimate(lambda c: c.end if c.end > 0.5 else None) == Estimate(0.6, 0.0, 1)
