"""A study: every number on a report is what the rooms above measure."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kendalltau

from fastfill.align import Aligned
from fastfill.errors import InputError, ShapeError
from fastfill.evaluate import (
    Candidate,
    Findings,
    Setting,
    backfill_curves,
    compare_curves,
    count_flips,
    group_curves,
    group_gap,
    plain_metrics,
    study,
)
from fastfill.features import Features
from fastfill.order import Order
from fastfill.report import html_page, marks_of


@pytest.fixture
def setting() -> Setting:
    """A small gallery of four classes, the old model weaker than the new."""
    rng = np.random.default_rng(1)
    labels = np.arange(48) % 4
    new = (rng.normal(size=(48, 6)) + 2 * np.eye(6)[labels]).astype(np.float32)
    old = (new @ rng.normal(size=(6, 5)) + rng.normal(size=(48, 5))).astype(np.float32)
    groups = np.where(labels == 0, "few", "many")
    return Setting(Features(new), labels, Features(old), groups=groups, points=5, seeds=2)


@pytest.fixture
def aligned(setting: Setting) -> Aligned:
    """The gallery with errors of known size."""
    rng = np.random.default_rng(2)
    error = rng.normal(size=setting.new.vectors.shape) * rng.gamma(1.0, size=(48, 1))
    return Aligned(
        (setting.new.vectors + error).astype(np.float32),
        (error**2).sum(axis=1).astype(np.float32),
    )


@pytest.fixture
def found(setting: Setting, aligned: Aligned) -> Findings:
    """Three orders of one aligned gallery."""
    head = 3 * np.eye(6, dtype=np.float32)[:4]
    orders = [
        Candidate("by sigma", aligned, "sigma", "mine", head),
        Candidate("by chance", aligned, "random", "mine", head),
        Candidate("as it is", aligned, Order(np.arange(48)), "mine", head),
    ]
    return study(setting, orders, takes=(30, "days"), command="fastfill curve")


def test_curves_are_those_of_the_simulation(
    found: Findings, setting: Setting, aligned: Aligned
) -> None:
    """Metric by metric, order by order; only random orders are drawn again for each seed."""
    names = ["by sigma", "by chance", "by chance", "as it is"]
    assert [curve.name for curve in found.curves] == names * 3
    assert found.metrics == ["cmc@1", "cmc@5", "map"]
    common = {"metrics": ["map"], "points": 5}
    sigma = backfill_curves(aligned, setting.new, setting.labels, policy="sigma", **common)
    chance = [
        backfill_curves(aligned, setting.new, setting.labels, policy="random", seed=s, **common)
        for s in (0, 1)
    ]
    for curve, expected in zip(found.curves[8:], [sigma, *chance], strict=False):
        np.testing.assert_array_equal(curve.values, expected["map"].values)


def test_levels_are_plain_evaluations(found: Findings, setting: Setting) -> None:
    """old/old searches the old gallery with old queries, new/new is where curves end."""
    assert setting.old is not None
    for name, gallery in (("old/old", setting.old), ("new/new", setting.new)):
        expected = plain_metrics(None, gallery, setting.labels)
        for metric, value in expected.items():
            assert found.levels[metric][name] == pytest.approx(value, abs=1e-9)


def test_agreement_of_the_old_model_is_with_the_new_neighbours(
    setting: Setting, aligned: Aligned
) -> None:
    """Without labels old/old is how many of the new model's neighbours the old model finds."""
    bare = replace(setting, labels=None, metrics=("agreement@3",), groups=None)
    found = study(bare, [Candidate("a", aligned, "random")])
    assert bare.old is not None
    near = [_nearest(side.vectors, 3) for side in (bare.old, bare.new)]
    shared = [len(set(a) & set(b)) / 3 for a, b in zip(*near, strict=True)]
    assert found.levels["agreement@3"]["old/old"] == pytest.approx(np.mean(shared))
    assert found.levels["agreement@3"]["new/new"] == 1.0
    assert found.flips is None


def _nearest(vectors: np.ndarray, k: int) -> list[list[int]]:
    distances = ((vectors[:, None] - vectors[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1)[:, :k].tolist()


def test_separate_queries_need_their_own_old_vectors_for_old_old(
    setting: Setting, aligned: Aligned
) -> None:
    """Where queries are a set of their own, old/old appears once they are known in both models."""
    assert setting.old is not None
    apart = replace(
        setting,
        queries=setting.new.take(range(10)),
        query_labels=setting.labels[:10],
        metrics=("map",),
        groups=None,
    )
    orders = [Candidate("a", aligned, "sigma")]
    assert "old/old" not in study(apart, orders).levels["map"]
    both = replace(apart, query_old=setting.old.take(range(10)))
    expected = plain_metrics(
        both.query_old, setting.old, setting.labels, query_labels=both.query_labels, metrics="map"
    )
    assert study(both, orders).levels["map"]["old/old"] == pytest.approx(expected["map"])


def test_flips_and_groups_are_averaged_over_seeds(found: Findings, setting: Setting) -> None:
    """Each line is the mean of what each seed's curve gives."""
    assert found.flips is not None
    assert found.groups is not None
    seeds = [c for c in found.curves if c.name == "by chance" and c.metric == "cmc@1"]
    won = next(one for one in found.flips.positive if one.name == "by chance")
    np.testing.assert_allclose(won.mean, np.mean([count_flips(c).positive for c in seeds], axis=0))
    parts = [group_curves(curve, setting.groups) for curve in seeds]
    few = found.groups.quality["cmc@1"]["by chance"][0]
    assert few.name == "few"
    np.testing.assert_allclose(few.mean, np.mean([part["few"].values for part in parts], axis=0))
    gap = next(one for one in found.groups.gaps if one.name == "by chance")
    np.testing.assert_allclose(gap.mean, np.mean([group_gap(part) for part in parts], axis=0))
    for series in found.groups.served.values():
        for one in series:
            assert one.mean[0] == 0
            assert one.mean[-1] == 1


def test_groups_of_items_alone_say_who_is_served_first(setting: Setting, aligned: Aligned) -> None:
    """Where queries are apart and have no groups, only the order's side can be told."""
    apart = replace(
        setting, queries=setting.new, query_labels=setting.labels, metrics=("map",), seeds=1
    )
    groups = study(apart, [Candidate("a", aligned, "sigma")]).groups
    assert groups is not None
    assert (groups.quality, list(groups.gaps), list(groups.served)) == ({}, [], ["a"])


def test_a_single_group_has_no_gap(setting: Setting, aligned: Aligned) -> None:
    """One group has a quality and nothing to differ from."""
    one = replace(setting, groups=np.full(48, "all"), metrics=("map",))
    groups = study(one, [Candidate("a", aligned, "sigma")]).groups
    assert groups is not None
    assert list(groups.gaps) == []
    assert list(groups.quality["map"]) == ["a"]


def test_a_constant_variance_has_no_tau(setting: Setting, aligned: Aligned) -> None:
    """τ of a constant does not exist: programs get null, people a dash."""
    flat = Aligned(aligned.vectors, np.ones(48, dtype=np.float32))
    found = study(setting, [Candidate("a", flat, "sigma", "mine")])
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["kendall_tau"] == {
        "mine": {"l2": None}
    }
    assert "Kendall τ –." in html_page(found)


def test_sigma_is_held_against_every_known_loss(found: Findings, aligned: Aligned) -> None:
    """With labels and head all three losses are known; τ is SciPy's."""
    sigma = found.sigma["mine"]
    assert list(sigma.taus) == ["l2", "disc", "l2+disc"]
    for name, loss in sigma.losses.items():
        assert sigma.taus[name] == pytest.approx(kendalltau(aligned.variance, loss).statistic)


def test_classes_outside_the_head_leave_the_l2_loss(setting: Setting, aligned: Aligned) -> None:
    """Unseen classes have no discriminative loss; the report goes on without it."""
    head = np.eye(6, dtype=np.float32)[:2]
    found = study(setting, [Candidate("a", aligned, "sigma", "mine", head)])
    assert list(found.sigma["mine"].losses) == ["l2"]


def test_a_variance_that_predicts_nothing_is_not_shown(setting: Setting, aligned: Aligned) -> None:
    """A stand-in for the variance is not held against the loss."""
    found = study(setting, [Candidate("a", aligned, "random", predicts=False)])
    assert found.sigma == {}


def test_everything_is_compared_with_the_random_order(found: Findings) -> None:
    """The baseline is the first random order, by a paired bootstrap over the queries."""
    assert {one.b for one in found.comparisons} == {"by chance"}
    assert [one.a for one in found.comparisons] == ["by sigma", "as it is"] * 3
    side = {
        name: [c for c in found.curves if c.name == name and c.metric == "map"]
        for name in ("by sigma", "by chance")
    }
    assert found.comparisons[4] == compare_curves(side["by sigma"], side["by chance"])
    assert set(marks_of(found)) == {(one.metric, one.a) for one in found.comparisons}


def test_a_timeline_needs_the_old_model(setting: Setting, aligned: Aligned) -> None:
    """Without old vectors nothing is known of the time before the update."""
    orders = [Candidate("a", aligned, "sigma")]
    with pytest.raises(InputError, match="old vectors"):
        study(replace(setting, old=None), orders, takes=(30, "days"))
    with pytest.raises(InputError, match="positive number of days, got -1"):
        study(setting, orders, takes=(-1, "days"))


def test_timelines_have_a_line_for_each_order(found: Findings) -> None:
    """One timeline per metric, in the unit given, ending where the curves end."""
    assert [one.metric for one in found.timelines] == found.metrics
    line = found.timelines[2].lines[0]
    assert line.name == "by sigma"
    assert line.x.max() == pytest.approx(33)
    assert line.y[-1] == found.levels["map"]["new/new"]


def test_facts_say_what_was_measured_on(setting: Setting, aligned: Aligned) -> None:
    """Sizes, distance and queries that nothing answers are told."""
    labels = np.array(setting.labels)
    labels[0] = 99
    found = study(replace(setting, labels=labels), [Candidate("a", aligned, "sigma")])
    assert found.facts["gallery"] == "48 items of 6 dimensions (5 under the old model)"
    assert found.facts["queries"].endswith("1 without a relevant item are left out")
    assert found.facts["labels"] == "5 classes"


def test_the_oracle_is_known_to_cheat(setting: Setting, aligned: Aligned) -> None:
    """Orders that look at the new vectors are told apart."""
    orders = [Candidate("best", aligned, "oracle"), Candidate("mine", aligned, "sigma")]
    assert study(setting, orders).cheating == {"best"}


def test_names_must_differ_and_the_baseline_must_exist(setting: Setting, aligned: Aligned) -> None:
    """Two orders of one name, no order, or an unknown baseline are refused."""
    one = Candidate("a", aligned, "sigma")
    with pytest.raises(InputError, match="Several orders are called a"):
        study(setting, [one, one])
    with pytest.raises(InputError, match="at least one order"):
        study(setting, [])
    with pytest.raises(InputError, match="No order is called 'b'"):
        study(setting, [one], baseline="b")


def test_a_setting_checks_its_parts(setting: Setting) -> None:
    """Old vectors of another number, or no seed, are refused."""
    with pytest.raises(ShapeError, match="47 rows where 48"):
        replace(setting, old=Features(np.ones((47, 2)), name="old.npy"))
    with pytest.raises(InputError, match="At least one seed"):
        replace(setting, seeds=0)


def test_findings_as_plain_numbers(found: Findings) -> None:
    """Programs get every curve with its summary, levels, comparisons and τ."""
    plain = found.to_dict()
    assert len(plain["curves"]) == 12
    assert plain["curves"][0]["area"] == found.curves[0].area
    assert plain["levels"] == found.levels
    assert plain["comparisons"][0].keys() >= {"a", "b", "difference", "low", "high", "p_value"}
    assert plain["kendall_tau"]["mine"].keys() == {"l2", "disc", "l2+disc"}
