"""Every metric at every stage, against the obvious way and scikit-learn."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from obvious_metrics import distances, obvious_scores
from sklearn.metrics import average_precision_score, ndcg_score

from fastfill.errors import InputError, LabelError, ShapeError, ZeroVectorError
from fastfill.metrics import Relevance, as_metrics, curve_scores, gallery_scores, neighbours

ALL = as_metrics(
    "map,cmc@1,cmc@3,mrr,mrr@2,mrr@1000,recall@1,recall@4,recall@1000,ndcg@1,ndcg@5,ndcg@1000"
)


def vectors(rng, kind, rows, dim):
    """Few whole numbers: ties and duplicates; normal: none; far: near-ties beside a large mean."""
    if kind == "few":
        return rng.integers(-2, 3, size=(rows, dim)).astype(np.float32)
    if kind == "far":
        return (100 + 0.001 * rng.integers(0, 4, size=(rows, dim))).astype(np.float32)
    return rng.normal(size=(rows, dim)).astype(np.float32)


@st.composite
def scenes(draw):
    """Queries, both galleries, an order, its stages and what is relevant."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["few", "normal", "far"]))
    n, dim, asked = draw(st.integers(1, 30)), draw(st.integers(1, 40)), draw(st.integers(1, 8))
    before, after = vectors(rng, kind, n, dim), vectors(rng, kind, n, dim)
    labels = rng.integers(0, draw(st.integers(1, 5)), n)
    how = draw(st.sampled_from(["same", "separate", "graded"]))
    queries = after if how == "same" else vectors(rng, kind, asked, dim)
    if how == "same":
        relevance = Relevance.from_labels(labels)
    elif how == "separate":
        relevance = Relevance.from_labels(labels, rng.integers(0, 6, asked))
    else:
        names = [f"q{i}" for i in range(asked)]
        judged = {q: {str(i): int(rng.integers(0, 4)) for i in range(n)} for q in names}
        relevance = Relevance.from_qrels(judged, names, [str(i) for i in range(n)])
    assume(relevance.counts.any())
    counts = np.sort(rng.integers(0, n + 1, draw(st.integers(1, 5))))
    return queries, before, after, rng.permutation(n), counts, relevance


@settings(max_examples=150)
@given(scenes(), st.sampled_from(["l2", "ip", "cosine"]))
def test_every_metric_at_every_stage_is_that_of_the_obvious_way(scene, distance):
    """One pass gives what building each gallery and counting gives, ties included."""
    if distance == "cosine":
        assume(all(np.abs(side).sum(axis=1).all() for side in scene[:3]))
    scores = curve_scores(*scene, ALL, distance=distance)
    kept, expected = obvious_scores(*scene, ALL, distance)
    assert scores.queries.tolist() == kept.tolist()
    assert scores.excluded == len(scene[5]) - len(kept)
    for metric in ALL:
        np.testing.assert_allclose(
            scores.values[metric.name], expected[metric.name], atol=1e-12, err_msg=metric.name
        )


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.sampled_from(["few", "normal"]))
def test_average_precision_is_that_of_scikit_learn(seed, kind):
    """With ties or without, AP is the area under the precision-recall curve of scikit-learn."""
    rng = np.random.default_rng(seed)
    gallery, labels = vectors(rng, kind, 40, 3), rng.integers(0, 3, 40)
    scores = gallery_scores(gallery, gallery, Relevance.from_labels(labels), as_metrics("map"))
    table = distances(gallery, gallery, "l2")
    for i, value in zip(scores.queries, scores.values["map"][:, 0], strict=True):
        others = np.arange(40) != i
        expected = average_precision_score(labels[others] == labels[i], -table[i][others])
        assert value == pytest.approx(expected, abs=1e-12)


def test_ndcg_is_that_of_scikit_learn_where_nothing_is_tied():
    """Graded gains, linear, with the logarithmic discount."""
    rng = np.random.default_rng(5)
    gallery, queries = vectors(rng, "normal", 50, 6), vectors(rng, "normal", 9, 6)
    gains = rng.integers(0, 4, (9, 50))
    judged = {str(q): {str(i): int(g) for i, g in enumerate(row)} for q, row in enumerate(gains)}
    relevance = Relevance.from_qrels(
        judged, [str(q) for q in range(9)], [str(i) for i in range(50)]
    )
    scores = gallery_scores(queries, gallery, relevance, as_metrics("ndcg@10"))
    expected = ndcg_score(gains, -distances(queries, gallery, "l2"), k=10)
    assert scores.values["ndcg@10"].mean() == pytest.approx(expected, abs=1e-12)


def test_judged_queries_are_measured_as_a_sorted_list_shows_and_others_are_counted():
    """With few graded answers among many documents; a query without one has no value."""
    rng = np.random.default_rng(11)
    gallery, queries = vectors(rng, "normal", 400, 8), vectors(rng, "normal", 30, 8)
    grades = rng.integers(1, 4, (30, 400)) * (rng.random((30, 400)) < 0.02)
    grades[::5] = 0
    grades[0, 7] = -1  # judged, but not relevant
    judged = {
        str(q): {str(i): int(row[i]) for i in np.flatnonzero(row)} for q, row in enumerate(grades)
    }
    relevance = Relevance.from_qrels(
        judged, [str(q) for q in range(30)], [str(i) for i in range(400)]
    )
    metrics = as_metrics("ndcg@10,recall@10,recall@100,mrr,mrr@10")
    scores = gallery_scores(queries, gallery, relevance, metrics)
    asked = [q for q in range(30) if q % 5]
    assert scores.queries.tolist() == asked
    assert scores.excluded == 6
    table = distances(queries, gallery, "l2")
    ideal = ndcg_score(grades[asked], -table[asked], k=10)
    assert scores.values["ndcg@10"].mean() == pytest.approx(ideal, abs=1e-12)
    for row, q in enumerate(asked):
        right = grades[q][np.argsort(table[q])] > 0
        first = 1 + right.argmax()
        for k in (10, 100):
            share = right[:k].sum() / right.sum()
            assert scores.values[f"recall@{k}"][row, 0] == pytest.approx(share)
        assert scores.values["mrr"][row, 0] == pytest.approx(1 / first)
        assert scores.values["mrr@10"][row, 0] == pytest.approx(1 / first if first <= 10 else 0)


def test_the_first_ranks_are_those_of_a_sorted_list():
    """Without ties CMC, recall and MRR are what a sorted list of the items shows."""
    rng = np.random.default_rng(6)
    gallery, labels = vectors(rng, "normal", 60, 4), rng.integers(0, 6, 60)
    metrics = as_metrics("cmc@3,recall@5,mrr")
    scores = gallery_scores(gallery, gallery, Relevance.from_labels(labels), metrics)
    table = distances(gallery, gallery, "l2")
    for row, i in enumerate(scores.queries):
        ranked = [j for j in np.argsort(table[i]) if j != i]
        right = labels[ranked] == labels[i]
        assert scores.values["cmc@3"][row, 0] == right[:3].any()
        assert scores.values["recall@5"][row, 0] == right[:5].sum() / right.sum()
        assert scores.values["mrr"][row, 0] == pytest.approx(1 / (1 + right.argmax()))


@settings(max_examples=40)
@given(scenes(), st.integers(0, 2**32))
def test_a_permutation_of_the_gallery_changes_nothing(scene, seed):
    """Ties are counted, not broken: the order of the rows has no say."""
    queries, before, after, positions, counts, relevance = scene
    places = np.random.default_rng(seed).permutation(len(before))
    turned = np.argsort(places)  # new row of each old row
    moved = Relevance(
        relevance.items,
        np.arange(len(relevance)),
        np.concatenate([[0], np.cumsum([len(relevance.of(q)) for q in range(len(relevance))])]),
        np.concatenate([np.sort(turned[relevance.of(q)]) for q in range(len(relevance))]),
        np.concatenate(
            [
                relevance.gains_of(q)[np.argsort(turned[relevance.of(q)])]
                for q in range(len(relevance))
            ]
        ),
        np.where(relevance.own >= 0, turned[relevance.own], -1),
    )
    here = curve_scores(*scene, ALL)
    there = curve_scores(
        queries, before[places], after[places], turned[positions], counts, moved, ALL
    )
    for metric in ALL:
        np.testing.assert_array_equal(here.values[metric.name], there.values[metric.name])


@settings(max_examples=30)
@given(scenes())
def test_scaling_the_features_changes_nothing(scene):
    """Ranks do not depend on the unit, not even a huge or a tiny one."""
    queries, before, after, *rest = scene
    expected = curve_scores(*scene, ALL)
    for scale in (np.float32(2.0**60), np.float32(2.0**-70)):
        sides = [side * scale for side in (queries, before)]
        scaled = curve_scores(*sides, after * scale, *rest, ALL)
        for metric in ALL:
            np.testing.assert_array_equal(scaled.values[metric.name], expected.values[metric.name])


def test_an_outlier_does_not_disturb_the_others():
    """One vector a million times longer than the rest leaves every rank exact."""
    rng = np.random.default_rng(7)
    gallery = vectors(rng, "normal", 200, 16)
    gallery[17] *= 1e6
    relevance = Relevance.from_labels(rng.integers(0, 5, 200))
    scene = (gallery, gallery, gallery, np.arange(200), np.array([200]), relevance)
    scores = curve_scores(*scene, ALL)
    _, expected = obvious_scores(*scene, ALL)
    for metric in ALL:
        np.testing.assert_allclose(scores.values[metric.name], expected[metric.name], atol=1e-12)


def test_duplicates_of_the_answer_and_of_others_are_ties():
    """A non-relevant duplicate of the nearest relevant item comes before it."""
    gallery = np.float32([[1, 1], [1, 1], [9, 9]])
    relevance = Relevance.from_labels([0, 1, 1], [0])
    metrics = as_metrics("cmc@1,cmc@2,map,mrr")
    scores = gallery_scores(np.float32([[0, 0]]), gallery, relevance, metrics)
    found = {name: float(value[0, 0]) for name, value in scores.values.items()}
    assert found == {"cmc@1": 0.0, "cmc@2": 1.0, "map": 0.5, "mrr": 0.5}


def test_equally_near_answers_do_not_stand_in_each_others_way():
    """Two relevant items at the same distance, alone in front, are first and second."""
    gallery = np.float32([[1, 1], [1, 1], [9, 9]])
    relevance = Relevance.from_labels([0, 0, 1], [0])
    metrics = as_metrics("cmc@1,recall@1,recall@2,map")
    scores = gallery_scores(np.float32([[0, 0]]), gallery, relevance, metrics)
    found = {name: float(value[0, 0]) for name, value in scores.values.items()}
    assert found == {"cmc@1": 1.0, "recall@1": 0.5, "recall@2": 1.0, "map": 1.0}


def test_vectors_without_any_difference_are_all_tied():
    """Where every item is at the same distance, the relevant ones come last, under any distance."""
    gallery = np.float32([[100.001], [100.002], [100.003], [100.004]])  # one direction
    relevance = Relevance.from_labels([0, 0, 1, 1])
    scores = gallery_scores(
        gallery, gallery, relevance, as_metrics("map,cmc@2,cmc@3"), distance="cosine"
    )
    found = {name: value.ravel().tolist() for name, value in scores.values.items()}
    assert found == {"map": [1 / 3] * 4, "cmc@2": [0.0] * 4, "cmc@3": [1.0] * 4}


def test_one_class_alone_is_always_found():
    """With one class every ranking is perfect."""
    gallery = vectors(np.random.default_rng(8), "normal", 12, 3)
    scores = gallery_scores(gallery, gallery, Relevance.from_labels(np.zeros(12, int)), ALL[:2])
    assert scores.values["map"].min() == scores.values["cmc@1"].min() == 1


def test_a_class_of_one_item_is_left_out_and_counted():
    """A query without a relevant item has no value, and does not lower the mean."""
    gallery = np.float32([[0], [1], [50]])
    scores = gallery_scores(gallery, gallery, Relevance.from_labels([0, 0, 1]), as_metrics("map"))
    assert scores.excluded == 1
    assert scores.queries.tolist() == [0, 1]


def test_nothing_relevant_at_all_is_an_error():
    """Where no query can be answered there is nothing to measure."""
    with pytest.raises(LabelError, match="No query has a relevant item"):
        gallery_scores(
            np.float32([[0], [1]]), np.float32([[0], [1]]), Relevance.from_labels([0, 1]), ALL
        )


def test_shapes_that_do_not_fit_are_named():
    """Dimensions and rows that differ are refused before anything is computed."""
    two, three = np.ones((4, 2), np.float32), np.ones((4, 3), np.float32)
    relevance = Relevance.from_labels([0, 0, 1, 1])
    with pytest.raises(ShapeError, match="The queries have 3 dimensions and the aligned gallery"):
        gallery_scores(three, two, relevance, ALL)
    with pytest.raises(ShapeError, match="new gallery: 3 rows where 4 are expected"):
        curve_scores(two, two, two[:3], np.arange(4), np.array([0]), relevance, ALL)


def test_zero_vectors_have_no_cosine():
    """The named error of the features is raised, with the row."""
    gallery = np.float32([[0, 0], [1, 0], [1, 1]])
    with pytest.raises(ZeroVectorError, match="rows 0"):
        gallery_scores(gallery, gallery, Relevance.from_labels([0, 0, 0]), ALL, distance="cosine")


def test_an_unknown_device_is_refused():
    """Only CPU and CUDA are known."""
    gallery = np.float32([[0], [1]])
    with pytest.raises(InputError, match="Unknown device 'tpu'"):
        gallery_scores(gallery, gallery, Relevance.from_labels([0, 0]), ALL, device="tpu")


def test_stages_must_rise():
    """A gallery cannot be less backfilled at a later stage."""
    gallery = np.float32([[0], [1]])
    with pytest.raises(InputError, match="must rise within"):
        curve_scores(
            gallery,
            gallery,
            gallery,
            np.arange(2),
            np.array([2, 1]),
            Relevance.from_labels([0, 0]),
            ALL,
        )


@settings(max_examples=40)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["few", "normal", "far"]),
    st.sampled_from(["l2", "ip"]),
    st.integers(1, 30),
    st.booleans(),
)
def test_neighbours_are_those_of_the_obvious_way(seed, kind, distance, k, same):
    """Items that at most k items are as near as, the query itself left out."""
    rng = np.random.default_rng(seed)
    gallery = vectors(rng, kind, 25, 5)
    queries = gallery if same else vectors(rng, kind, 7, 5)
    found = neighbours(queries, gallery, k, distance=distance, same=same)
    table = distances(queries, gallery, distance)
    for q, row in enumerate(table):
        others = np.arange(25) != (q if same else -1)
        near = [i for i in np.flatnonzero(others) if (row[others] <= row[i]).sum() <= k]
        assert found.of(q).tolist() == near


def test_agreement_is_complete_when_everything_is_new():
    """At 100 % the neighbours are found, however many are tied; before, fewer."""
    rng = np.random.default_rng(9)
    new = vectors(rng, "few", 80, 3)
    aligned = new + rng.normal(size=new.shape).astype(np.float32)
    near = neighbours(new, new, 5, same=True)
    scores = curve_scores(
        new, aligned, new, np.arange(80), np.array([0, 80]), near, as_metrics("agreement@5")
    )
    start, end = scores.values["agreement@5"].mean(axis=0)
    assert end == 1
    assert start < 0.9
