"""Numbers as people read them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from report_samples import sample_findings

from fastfill.report.formats import chance, marks_of, points


@given(st.floats(-1, 1))
def test_points_use_a_true_minus(value: float) -> None:
    """A difference is signed, and its minus is not a hyphen."""
    assert points(value)[0] in "+−"
    assert "-" not in points(value)


def test_chance_never_says_zero() -> None:
    """No resampling proves a p of 0."""
    assert chance(0.0) == "< 0.001"
    assert chance(0.5) == "0.500"


def test_every_comparison_has_its_sign() -> None:
    """The signs are found by the metric and the name of the curve that was compared."""
    findings = sample_findings()
    assert set(marks_of(findings)) == {(one.metric, one.a) for one in findings.comparisons}
    assert set(marks_of(findings).values()) <= {" ▲", " ▼", ""}
