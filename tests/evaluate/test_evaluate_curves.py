"""A curve, its areas, and its file."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfill.errors import FileError, InputError, ShapeError
from fastfill.evaluate import BUDGETS, Curve, read_curves, write_curves

values = st.lists(st.floats(0, 1), min_size=2, max_size=25)


@given(values)
def test_the_area_is_the_trapezoid_integral_and_the_mean_is_that_of_the_points(numbers):
    """Both ways to write M̃: the integral, and the authors' mean of evenly spaced points."""
    curve = Curve("map", np.linspace(0, 1, len(numbers)), numbers)
    steps = [(a + b) / 2 for a, b in pairwise(numbers)]
    assert curve.area == pytest.approx(sum(steps) / len(steps))
    assert curve.mean == pytest.approx(sum(numbers) / len(numbers))
    assert (curve.start, curve.end) == (numbers[0], numbers[-1])


def slowly_reached(curve, target):
    """The first of many close fractions from which on every value is at the target or above."""
    fine = np.linspace(0, 1, 500 * (len(curve.values) - 1) + 1)  # every point is among them
    lines = np.interp(fine, curve.fractions, curve.values)
    return next(f for at, f in enumerate(fine) if (lines[at:] >= target - 1e-12).all())


@given(st.lists(st.integers(0, 100).map(lambda number: number / 100), min_size=2, max_size=15))
def test_a_share_of_the_end_is_reached_where_the_curve_is_never_below_again(numbers):
    """An obvious walk along the curve finds the same fraction, give or take its step."""
    curve = Curve("map", np.linspace(0, 1, len(numbers)), numbers)
    expected = slowly_reached(curve, 0.95 * curve.end)
    assert curve.fraction_at(0.95) == pytest.approx(expected, abs=0.002)


def test_a_share_that_is_lost_again_does_not_count():
    """A curve that dips below the level counts from where it leaves the dip for good."""
    curve = Curve("map", [0, 0.25, 0.5, 0.75, 1], [0.2, 0.9, 0.6, 0.95, 0.9])
    assert curve.fraction_at(1.0) == pytest.approx(0.5 + 0.25 * 0.3 / 0.35)
    with pytest.raises(InputError, match="it ends at 0"):
        curve.fraction_at(1.0, of=0.92)


def test_a_constant_curve_has_its_value_as_area():
    """The area is an average: a constant curve's is the constant, whatever its points."""
    for points in ([0, 1], [0, 0.1, 0.7, 1], [0.2, 0.4], [0.5]):
        assert Curve("map", points, np.full(len(points), 0.4)).area == pytest.approx(0.4)


def test_a_budget_between_two_points_lies_on_their_line():
    """5 % of a curve in tenths is half-way between its first two points."""
    curve = Curve("map", np.linspace(0, 1, 11), np.linspace(0.3, 0.5, 11) ** 2)
    assert curve.at(0.05) == pytest.approx((curve.values[0] + curve.values[1]) / 2)
    assert curve.at(1) == curve.end
    with pytest.raises(InputError, match="outside the curve"):
        curve.at(1.5)


def test_a_share_that_is_never_reached_is_an_error():
    """105 % of the end cannot be waited for."""
    with pytest.raises(InputError, match="never reaches 105%"):
        Curve("map", [0, 1], [0.1, 0.2]).fraction_at(1.05)


def test_quality_is_relative_to_everything_new():
    """1 at the end, whatever the metric is worth; undefined where the end is 0."""
    assert Curve("map", [0, 1], [0.3, 0.6]).quality.tolist() == [0.5, 1.0]
    with pytest.raises(InputError, match="no quality"):
        _ = Curve("map", [0, 1], [0.0, 0.0]).quality


def test_a_summary_has_the_figures_of_the_tables():
    """Ends, both areas, the budgets of the paper and the fractions to 95 and 99 %."""
    summary = Curve("map", np.linspace(0, 1, 21), np.linspace(0.4, 0.6, 21), "sigma").summary()
    assert summary["at_10%"] == pytest.approx(0.42)
    assert summary["fraction_at_95%"] == pytest.approx(0.85)
    assert {f"at_{budget:.0%}" for budget in BUDGETS} <= summary.keys()


@pytest.mark.parametrize(
    ("fractions", "numbers", "error"),
    [
        ([0, 1], [0.5], ShapeError),
        ([], [], ShapeError),
        ([0, 0.5, 0.5], [1, 1, 1], InputError),
        ([1, 0], [1, 1], InputError),
        ([-0.1, 1], [1, 1], InputError),
        ([0, 1.1], [1, 1], InputError),
        ([0, np.nan], [1, 1], InputError),
    ],
)
def test_what_is_no_curve_is_refused(fractions, numbers, error):
    """Fractions rise within 0 … 1 and have one value each."""
    with pytest.raises(error):
        Curve("map", fractions, numbers)


def test_values_per_query_must_fit():
    """One row per query and one column per fraction."""
    with pytest.raises(ShapeError, match="per_query"):
        Curve("map", [0, 1], [0.5, 0.5], per_query=np.zeros((4, 3)))
    with pytest.raises(ShapeError, match="queries names the rows"):
        Curve("map", [0, 1], [0.5, 0.5], per_query=np.zeros((4, 2)), queries=[1, 2])


def test_an_unknown_metric_is_no_curve():
    """The metric's name is checked like everywhere."""
    with pytest.raises(InputError, match="Unknown metric 'top1'"):
        Curve("top1", [0, 1], [0.5, 0.5])


def test_a_curve_is_frozen():
    """Nobody changes a curve that others hold."""
    curve = Curve("map", [0, 1], [0.5, 0.6])
    with pytest.raises(ValueError, match="read-only"):
        curve.values[0] = 1


def test_curves_survive_a_file(tmp_path):
    """What is written comes back, but for the values of each query."""
    curves = [Curve("cmc@1", [0, 0.5, 1], [0.1, 0.2, 1 / 3], "a", excluded=2)]
    write_curves(curves, tmp_path / "curves.json")
    (back,) = read_curves(tmp_path / "curves.json")
    assert back.to_dict() == curves[0].to_dict()


def test_values_per_query_survive_a_dict_where_asked_for():
    """The round trip through plain lists can keep them."""
    curve = Curve("map", [0, 1], [0.5, 0.5], per_query=[[0, 1], [1, 0]], queries=[3, 5])
    back = Curve.from_dict(curve.to_dict(per_query=True))
    assert back.per_query.tolist() == curve.per_query.tolist()
    assert back.queries.tolist() == [3, 5]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"curves": [{"metric": "map"}]}', "no json"])
def test_a_file_of_something_else_is_named(tmp_path, text):
    """A broken file is one sentence, not a stack of errors."""
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(FileError, match="is not a file of curves"):
        read_curves(tmp_path / "c.json")
    with pytest.raises(FileError, match="no such file"):
        read_curves(tmp_path / "none.json")
