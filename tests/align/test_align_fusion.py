"""Scores of two models on one scale: the definition, its inner product, its data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfill.align import Alignment, Fusion, Reference, Weights
from fastfill.errors import ArtefactError, InputError, ShapeError
from fastfill.features import DISTANCES, Distance, Features, Matrix, Pairs, pairwise

OLD, NEW = 5, 7


def world(rows: int, seed: int = 0) -> tuple[Matrix, Matrix, Matrix]:
    """Old, new and aligned vectors of some items: the map errs by a part of the new vector."""
    rng = np.random.default_rng(seed)
    old = rng.normal(size=(rows, OLD)).astype(np.float32)
    new = np.tanh(old @ rng.normal(size=(OLD, NEW))).astype(np.float32)
    return old, new, (new + 0.5 * rng.normal(size=new.shape)).astype(np.float32)


def some_fusion(distance: Distance, seed: int = 0, keep: float = 0.5) -> Fusion:
    """Of fifty pairs of a world."""
    old, new, aligned = world(50, seed)
    reference = Reference(old, new, aligned)
    return Fusion.learn(reference, distance=distance, items=1_000, keep=keep)


def obvious_scores(
    fusion: Fusion, asks: tuple[Matrix, Matrix], old: Matrix, added: Matrix, new: Matrix
) -> Matrix:
    """The formula of the documentation, item by item and with plain distances."""
    sides = []
    for query, items, reference in ((asks[0], old, fusion.old), (asks[1], added, fusion.new)):
        known = -pairwise(query[None], reference, fusion.distance)[0].astype(np.float64)
        similar = -pairwise(query[None], items, fusion.distance)[0].astype(np.float64)
        sides.append((similar - known.mean()) / known.std())
    weights, scores = fusion.weights, []
    for z_old, z_added, is_new in zip(*sides, new, strict=True):
        aligned = weights.old * z_old + weights.aligned * z_added + weights.constant
        scores.append(fusion.keep * z_old + (z_added if is_new else aligned))
    return np.array(scores)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 99),
    distance=st.sampled_from(DISTANCES),
    keep=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_scores_follow_the_definition(seed: int, distance: Distance, keep: float) -> None:
    """One query at a time, or all as an inner product: both are the formula."""
    fusion = some_fusion(distance, seed, keep)
    old, new, aligned = world(40, seed + 100)
    is_new = np.random.default_rng(seed).random(40) < 0.5
    added = np.where(is_new[:, None], new, aligned)
    query_old, query_new, _ = world(3, seed + 200)
    products = (
        fusion.query_vectors(query_old, query_new) @ fusion.item_vectors(old, added, is_new).T
    )
    for row in range(3):
        asks = (query_old[row], query_new[row])
        wanted = obvious_scores(fusion, asks, old, added, is_new)
        np.testing.assert_allclose(fusion.scores(*asks, old, added, is_new), wanted, atol=1e-3)
        np.testing.assert_allclose(products[row], wanted, atol=1e-2)


@pytest.mark.parametrize("distance", DISTANCES)
def test_full_hit_lists_are_fused_as_the_definition_says(distance: Distance) -> None:
    """With every item in both lists the k best are those of the scores."""
    fusion = some_fusion(distance)
    old, new, aligned = world(60, 7)
    is_new = np.arange(60) % 3 == 0
    added = np.where(is_new[:, None], new, aligned)
    query = (old[11], new[11])
    scale = fusion.scale(*query)
    from fastfill.align.fusion import similarities

    by_old = similarities(query[0][None], old, distance)[0]
    by_added = similarities(query[1][None], added, distance)[0]
    hits = fusion.fuse(
        scale,
        {n: float(by_old[n]) for n in range(60)},
        {n: (float(by_added[n]), bool(is_new[n])) for n in range(60)},
        k=10,
    )
    best = np.argsort(-fusion.scores(*query, old, added, is_new), kind="stable")[:10]
    assert [key for key, _ in hits] == best.tolist()


def test_an_item_that_a_list_lacks_is_not_lost() -> None:
    """It is taken to be as similar as the last of that list, and no hits give no answer."""
    fusion = some_fusion("l2")
    scale = fusion.scale(np.zeros(OLD), np.zeros(NEW))
    hits = fusion.fuse(scale, {"a": 3.0, "b": 1.0}, {"c": (2.0, True), "b": (1.0, False)}, k=9)
    assert {key for key, _ in hits} == {"a", "b", "c"}
    assert fusion.fuse(scale, {}, {}, k=3) == []


def test_a_perfect_map_is_trusted_and_a_useless_one_is_not() -> None:
    """The weights follow what the aligned vectors are worth."""
    old, new, _ = world(300)
    rng = np.random.default_rng(1)
    perfect = Fusion.learn(Reference(old, new, new), distance="cosine")
    useless = Fusion.learn(Reference(old, new, rng.normal(size=new.shape)), distance="cosine")
    assert perfect.weights.aligned == pytest.approx(1.0, abs=1e-3)
    assert abs(perfect.weights.old) + abs(perfect.weights.constant) < 1e-2
    assert abs(useless.weights.aligned) < 0.1


def test_aligned_items_get_their_share_of_the_first_answers() -> None:
    """Of items that are the same but for their generation, both kinds are found about as often."""
    old, new, aligned = world(2_300, 3)
    reference = Reference(old[:300], new[:300], aligned[:300])
    fusion = Fusion.learn(reference, distance="cosine", items=2_000)
    items, is_new = slice(300, None), np.arange(2_000) % 2 == 0
    added = np.where(is_new[:, None], new[items], aligned[items])
    queries = np.random.default_rng(0).permutation(300)[:100]
    scores = (
        fusion.query_vectors(old[queries], new[queries])
        @ fusion.item_vectors(old[items], added, is_new).T
    )
    first = np.argsort(-scores, axis=1)[:, :10]
    assert 0.35 < is_new[first].mean() < 0.65


def test_scaling_a_model_changes_nothing() -> None:
    """Standardised scores do not depend on a model's unit of length."""
    old, new, aligned = world(80)
    plain = Fusion.learn(Reference(old, new, aligned))
    scaled = Fusion.learn(Reference(3 * old, 0.2 * new, 0.2 * aligned))
    np.testing.assert_allclose(
        [plain.weights.old, plain.weights.aligned, plain.weights.constant],
        [scaled.weights.old, scaled.weights.aligned, scaled.weights.constant],
        rtol=1e-3,
        atol=1e-3,
    )


def test_an_alignment_keeps_its_fusion() -> None:
    """Reference pairs and weights travel in the artefact; the map's fingerprint is its own."""
    old, new, _ = world(200)
    pairs = Pairs(Features(old), Features(new))
    alignment = Alignment.fit(pairs, method="ridge", distance="cosine")
    tag = alignment.fingerprint
    assert alignment.reference is not None
    assert len(alignment.reference) == 200
    queries = world(30, 5)[:2]
    alignment.fusion = Fusion.learn(alignment.reference, queries, distance="cosine", items=500)
    again = Alignment.from_bytes(alignment.to_bytes())
    assert again.fusion is not None
    assert again.fusion.weights == alignment.fusion.weights
    assert again.fusion.distance == "cosine"
    np.testing.assert_array_equal(again.fusion.new, alignment.reference.new)
    assert again.fingerprint == alignment.fingerprint == tag


def test_reference_pairs_are_those_that_were_drawn_at_random() -> None:
    """Rows that a policy chose do not stand for the gallery; too few random ones are not enough."""
    old, new, _ = world(200)
    for drawn, expected in ((np.arange(200) < 60, 60), (np.arange(200) < 5, 200)):
        pairs = Pairs(Features(old), Features(new), drawn=drawn)
        for method in ("ridge", "kernel"):
            reference = Alignment.fit(pairs, method=method, distance="cosine").reference
            assert reference is not None
            assert len(reference) == expected
            rows = [int(np.flatnonzero((old == row).all(axis=1))[0]) for row in reference.old]
            assert sorted(rows) == list(range(expected))


def test_a_fusion_travels_alone() -> None:
    """As bytes and as JSON it is the same, and an alignment is not mistaken for one."""
    fusion = some_fusion("cosine")
    again = Fusion.from_bytes(fusion.to_bytes())
    query_old, query_new, _ = world(1, 9)
    assert again.scale(query_old[0], query_new[0]) == fusion.scale(query_old[0], query_new[0])
    assert again.document() == fusion.document()
    plain = json.loads(json.dumps(fusion.to_json()))
    old, new = (np.array(plain[side], dtype=np.float32) for side in ("old", "new"))
    assert Fusion.from_parts(old, new, plain).weights == fusion.weights
    old, new, _ = world(60)
    alignment = Alignment.fit(Pairs(Features(old), Features(new)), method="ridge")
    with pytest.raises(ArtefactError, match="not a fusion"):
        Fusion.from_bytes(alignment.to_bytes())


def test_reference_pairs_are_held_out() -> None:
    """What is kept of a pair is how a map without it sees it: no better than a stranger."""
    rng = np.random.default_rng(2)
    old = rng.normal(size=(150, 40)).astype(np.float32)
    new = rng.normal(size=(150, 6)).astype(np.float32)  # nothing to be learned
    alignment = Alignment.fit(Pairs(Features(old), Features(new)), method="ridge")
    reference = alignment.reference
    assert reference is not None
    error = np.square(reference.aligned - reference.new).sum(axis=1).mean()
    assert error > 0.8 * np.square(new - new.mean(axis=0)).sum(axis=1).mean()


def test_what_does_not_belong_together_is_refused() -> None:
    """Numbers of queries, reference pairs and shares are checked in one sentence each."""
    old, new, aligned = world(20)
    with pytest.raises(ShapeError, match="3 old and 2 new"):
        Fusion.learn(Reference(old, new, aligned), (old[:3], new[:2]))
    with pytest.raises(ShapeError, match="do not belong together"):
        Reference(old[:3], new, aligned)
    with pytest.raises(InputError, match="keep"):
        Fusion(old, new, "l2", Weights(0, 1, 0), keep=-1)
    with pytest.raises(ShapeError, match="20 old and 3 new"):
        Fusion(old, new[:3], "l2", Weights(0, 1, 0))
