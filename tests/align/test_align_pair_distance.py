"""σ² that knows the pairs: the distance from the nearest new vector that was learned from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fastfill.align import Alignment, fit_part, pair_distance
from fastfill.align.leave_one_out import LeaveOut
from fastfill.align.pair_distance import PairDistance
from fastfill.errors import ArtefactError
from fastfill.features import Features, Pairs
from fastfill.metrics import kendall_tau

if TYPE_CHECKING:
    from pathlib import Path


def clustered(items: int = 900, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """New vectors in tight clusters, some of which look much alike to the old model."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(size=(20, 12))
    label = rng.integers(20, size=items)
    new = 3 * centres[label] + 0.1 * rng.normal(size=(items, 12))
    blur = 0.1 + 2.0 * (rng.random(items) < 0.3)
    old = (new + blur[:, None] * rng.normal(size=new.shape)) @ rng.normal(size=(12, 12))
    return old.astype(np.float32), new.astype(np.float32)


def fit(rows: int, **options: object) -> tuple[Alignment, Pairs]:
    """A ridge map of the first rows."""
    old, new = clustered()
    pairs = Pairs(Features(old[:rows]), Features(new[:rows]))
    return Alignment.fit(pairs, method="ridge", **options), pairs  # type: ignore[arg-type]


def test_the_distance_is_that_to_the_nearest_in_the_main_directions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One product finds what a loop over all pairs of vectors finds, across blocks."""
    monkeypatch.setattr(pair_distance, "BLOCK", 7)
    monkeypatch.setattr(pair_distance, "DIRECTIONS", 3)
    monkeypatch.setattr(pair_distance, "SAMPLE", 15)
    rng = np.random.default_rng(0)
    new = (rng.normal(size=(40, 6)) * [5, 4, 3, 0.1, 0.1, 0.1]).astype(np.float32)
    near = PairDistance.of(new, seed=0)
    h = rng.normal(size=(20, 6)).astype(np.float32)
    expected = [
        min(np.square((row - other) @ near.directions).sum() for other in new[near.rows])
        for row in h
    ]
    assert near.sample.shape == (15, 3)
    assert near.sample.dtype == np.float16
    assert np.allclose(np.exp(near.log_squares(h)), expected, rtol=0.02)


def test_a_pair_is_not_its_own_neighbour() -> None:
    """Of a held-out pair the other pairs are looked at, never the vector that is to be told."""
    new = clustered(60)[1]
    near = PairDistance.of(new, seed=0)
    rows = np.array([7, 30, 59])
    assert (near.log_squares(new[rows]) < np.log(1e-3)).all()
    others = [np.square(np.delete(new, row, axis=0) - new[row]).sum(1).min() for row in rows]
    assert np.allclose(np.exp(near.log_squares(new[rows], rows)), others, rtol=0.1)


def test_sigma_ranks_true_errors_better_with_it() -> None:
    """On items that were not learned from, by much more than the held-out pairs had to promise."""
    old, new = clustered()
    with_it, _ = fit(500)
    without, _ = fit(500, pair_distance=False)
    taus = []
    for alignment in (without, with_it):
        aligned = alignment(old[500:])
        error = np.square(aligned.h - new[500:], dtype=np.float64).sum(1)
        taus.append(kendall_tau(aligned.variance.astype(np.float64), error))
    assert without.pair_distance is None
    assert taus[1] > taus[0] + 0.1
    held = with_it.facts["held_out"]
    assert held["kendall_tau"] > held["kendall_tau_of_score"] + 0.1
    assert held["kendall_tau"] == pytest.approx(taus[1], abs=0.1)


def test_where_it_says_nothing_the_score_stays_alone() -> None:
    """New vectors without clusters, equally hard everywhere: the error is as it was before."""
    rng = np.random.default_rng(0)
    old = rng.normal(size=(400, 5))
    new = old @ rng.normal(size=(5, 5)) + 0.3 * rng.normal(size=(400, 5))
    fitted = Alignment.fit(Pairs(Features(old), Features(new)), method="ridge")
    assert fitted.pair_distance is None
    assert "kendall_tau_of_score" not in fitted.facts["held_out"]


def test_weights_are_never_negative() -> None:
    """A score that falls with the error is left out; a larger distance never means less error."""
    rng = np.random.default_rng(0)
    logs = rng.normal(size=300)
    noise = rng.normal(size=(2, 300))
    against, along = -logs + noise[0], logs + noise[1]
    for columns in ((against, along), (along, against), (against, against)):
        weights = pair_distance._monotone_weights(np.stack(columns, axis=1), logs)
        assert (weights >= 0).all()
        assert [weight > 0 for weight in weights] == [column is along for column in columns]


@pytest.mark.usefixtures("narrow")
def test_the_published_method_keeps_its_own_sigma_unless_asked() -> None:
    """`paper` is for comparison with the paper; with pair_distance=True it knows the pairs too."""
    old, new = clustered(400)
    pairs = Pairs(Features(old), Features(new))
    assert Alignment.fit(pairs, method="paper", epochs=1).pair_distance is None
    asked = Alignment.fit(pairs, method="paper", epochs=20, batch=50, pair_distance=True)
    assert asked.pair_distance is not None


def test_an_artefact_keeps_the_sample(tmp_path: Path) -> None:
    """A saved alignment predicts the same errors after loading, and has another fingerprint."""
    old, _ = clustered()
    alignment, _ = fit(500)
    alignment.save(tmp_path / "a.safetensors")
    again = Alignment.load(tmp_path / "a.safetensors")
    assert np.array_equal(again(old).variance, alignment(old).variance)
    assert again.fingerprint == alignment.fingerprint
    assert fit(500, pair_distance=False)[0].fingerprint != alignment.fingerprint


def test_a_sample_that_does_not_fit_is_refused() -> None:
    """An artefact whose sample has other directions than it says is not used."""
    alignment, _ = fit(500)
    near = alignment.pair_distance
    assert near is not None
    object.__setattr__(near, "sample", np.ascontiguousarray(near.sample[:, 1:]))
    with pytest.raises(ArtefactError, match="sample of pairs does not fit its directions"):
        Alignment.from_bytes(alignment.to_bytes())


def test_a_part_looks_at_its_own_pairs_alone() -> None:
    """A map of some rows must not know the new vectors of the others, which it is tested on."""
    whole, pairs = fit(500)
    rows = np.arange(0, 500, 2)
    part = fit_part(pairs, rows, whole)
    assert whole.pair_distance is not None
    assert part.pair_distance is not None
    assert part.pair_distance.rows.tolist() == rows.tolist()
    assert part.pair_distance.weights == whole.pair_distance.weights


def test_pairs_left_out_alone_do_not_know_their_new_vector() -> None:
    """The errors of a kernel map's pairs, each without itself, are as large as those of others."""
    old, new = clustered()
    pairs = Pairs(Features(old[:500]), Features(new[:500]))
    alignment = Alignment.fit(pairs, method="kernel", penalty=0.0)
    assert alignment.pair_distance is not None
    leave = LeaveOut.of(alignment, pairs)
    assert leave is not None
    unseen = alignment(old[500:]).variance
    assert leave.pairs.variance.mean() == pytest.approx(unseen.mean(), rel=0.25)
