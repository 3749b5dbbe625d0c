"""Passing over far items by half-precision products changes no rank: torch on a CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_metrics_ranks import ALL, scenes

from fastfill.errors import IdError, InputError
from fastfill.features import Distance
from fastfill.metrics import (
    Relevance,
    as_metrics,
    cuda,
    cuda_operands,
    cuda_plain,
    cuda_shards,
    cuda_streaming,
    curve_scores,
)
from fastfill.metrics.cuda_operands import TorchSpace, item_operand, query_operand, stored
from fastfill.metrics.cuda_shards import CudaShardedCurve
from fastfill.metrics.cuda_streaming import near_scores, near_share
from fastfill.metrics.cuda_thresholds import exact_distances
from fastfill.metrics.shards import GalleryShard
from fastfill.metrics.space import make_space
from fastfill.metrics.stages import Stages

CPU = torch.device("cpu")


def by_near(queries, before, after, positions, counts, relevance, distance="l2"):
    """The scores of the two-step counting on CPU tensors."""
    space = make_space(queries, before, after, distance)
    kept = np.flatnonzero(relevance.counts)
    return near_scores(space, Stages(positions, counts), relevance, kept, ALL, CPU)


@settings(max_examples=60)
@given(scenes(), st.sampled_from(["l2", "ip", "cosine"]))
def test_two_steps_and_numba_agree(scene, distance):
    """Ties, near-ties and duplicates included: only the last sums may round differently."""
    if distance == "cosine":
        assume(all(np.abs(side).sum(axis=1).all() for side in scene[:3]))
    expected = curve_scores(*scene, ALL, distance=distance)
    scores = by_near(*scene, distance)
    for i, metric in enumerate(ALL):
        np.testing.assert_allclose(
            scores[i], expected.values[metric.name], atol=1e-12, err_msg=metric.name
        )


@pytest.fixture(scope="module")
def scene():
    """Classes among many more items of no class, with duplicates and near-ties."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(12, 24)).astype(np.float32)
    labels = np.concatenate([np.arange(120) % 12, np.arange(12, 652)])
    new = np.float32(1.4) * rng.normal(size=(760, 24)).astype(np.float32) + np.float32(3)
    new[:120] = centres[labels[:120]] + np.float32(0.6) * new[:120] + np.float32(1.2)
    new[400:] = new[:360] + np.float32(1e-6) * rng.integers(0, 3, (360, 24)).astype(np.float32)
    aligned = new + np.float32(0.2) * rng.normal(size=new.shape).astype(np.float32)
    counts = np.linspace(0, 760, 7).astype(int)
    relevance = Relevance.from_labels(labels)
    return new, aligned, new, rng.permutation(760), counts, relevance


@pytest.mark.parametrize(
    ("span", "share", "queries", "products"),
    [(256, 128, 50, 1 << 15), (1024, 512, 7, 1 << 25)],
)
def test_spans_and_blocks_change_nothing(monkeypatch, scene, span, share, queries, products):
    """However items and queries are cut, every value is the same, bit for bit."""
    expected = by_near(*scene)
    for module in (cuda_operands, cuda_plain):
        monkeypatch.setattr(module, "PASS", share)
    for module in (cuda_operands, cuda_streaming, cuda_streaming.NearCurve.show.__globals__):
        monkeypatch.setitem(module if isinstance(module, dict) else vars(module), "SPAN", span)
    monkeypatch.setattr(cuda_streaming, "QUERIES", queries)
    monkeypatch.setattr(cuda_streaming, "CPU_BYTES", 1 << 17)  # so that the gallery passes twice
    monkeypatch.setattr(cuda_plain, "_PRODUCTS", products)
    np.testing.assert_array_equal(by_near(*scene), expected)


def operands(kind: str, squared: bool):
    """Queries and items of one kind, their space, and their float64 distances."""
    rng = np.random.default_rng(3)
    queries, items = (rng.normal(size=(n, 70)).astype(np.float32) for n in (40, 300))
    if kind == "far from the origin":
        queries, items = (np.float32(1000) + np.float32(0.01) * side for side in (queries, items))
    elif kind == "of many sizes":
        queries *= np.float32(2) ** rng.integers(-30, 12, (40, 1))
        items *= np.float32(2) ** rng.integers(-30, 12, (300, 70))
    elif kind == "in step":  # all terms of a product have the same sign: nothing cancels
        queries, items = np.abs(queries) + 1, np.abs(items) + 1
    queries, items = torch.tensor(queries), torch.tensor(items)
    centre = torch.zeros(70) if kind == "in step" else items.mean(dim=0)
    space = TorchSpace.of(float(queries.abs().max()), centre, squared)
    return space, queries, items, exact_distances(queries[:, None], items[None], squared)


def truncated_sums(first, terms, group):
    """A sum as tensor cores make it: some terms at a time, cut to the digits of the largest."""
    total = first
    for start in range(0, terms.shape[-1], group):
        parts = torch.cat([total[..., None], terms[..., start : start + group]], dim=-1)
        digit = 2.0 ** (torch.frexp(parts.abs().amax(dim=-1)).exponent.double() - 24)
        total = (torch.trunc(parts / digit[..., None]) * digit[..., None]).sum(dim=-1)
        digit = 2.0 ** (torch.frexp(total).exponent.double() - 24)
        total = torch.trunc(total / digit) * digit
    return total


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("kind", ["usual", "far from the origin", "of many sizes", "in step"])
@pytest.mark.parametrize("group", [2, 4, 16])
def test_products_are_never_off_by_more_than_their_bound(kind, squared, group):
    """Summed in float32 digits that are cut off, n at a time, as hardware may do it."""
    space, queries, items, exact = operands(kind, squared)
    q = query_operand(space, queries, torch.zeros(len(queries)))
    g = item_operand(space, items, torch.zeros(len(items)))
    terms = q.halves[:40, None].double() * g.halves[None, :300].double()
    values = truncated_sums(g.offsets[:300].double().expand(40, 300), terms, group) / g.unit
    order = torch.argsort((items - space.centre).double().square().sum(dim=1), stable=True)
    if squared:
        shifts = (queries.double() - space.centre.double()).square().sum(dim=1)
    else:
        shifts = -(queries.double() @ space.centre.double())
    error = (values - (exact[:, order] - shifts[:, None])).abs()
    bound = q.by_norm[:40, None] * g.norms + q.by_residual[:40, None] * g.residuals
    bound = bound.double() + g.by_square * g.norms.double() ** 2
    assert (error <= bound).all()
    assert bound.min() < 1e-2 * exact.abs().max()


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("group", [2, 4, 16])
def test_sums_alone_are_never_off_by_more_than_their_share(monkeypatch, squared, group):
    """Of whole numbers, of which copies lose nothing: only the digits that a sum cuts off."""
    monkeypatch.setattr(cuda_operands, "product_error", lambda *given: (0.0, 0.0, 0.0))
    rng = np.random.default_rng(6)
    queries, items = (
        torch.tensor(rng.integers(1024, 2048, (n, 250)) * 1.0).float() for n in (9, 99)
    )
    space = TorchSpace.of(2048, torch.zeros(250), squared)
    q = query_operand(space, queries, torch.zeros(9))
    g = item_operand(space, items, torch.arange(99))
    terms = q.halves[:9, None].double() * g.halves[None, :99].double()
    sums = truncated_sums(g.offsets[:99].double().expand(9, 99), terms, group)
    error = (sums - (g.offsets[:99].double() + terms.sum(dim=-1))).abs() / g.unit
    bound = q.by_norm[:9, None].double() * g.norms + g.by_square * g.norms.double() ** 2
    assert g.residuals.max() < 1e-40
    assert error.max() > 0
    assert (error <= bound).all()


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("kind", ["usual", "far from the origin", "of many sizes", "in step"])
def test_no_near_item_is_passed_over_and_most_far_ones_are(kind, squared):
    """Every item up to a query's limit is found; of the others only those at the limit itself."""
    space, queries, items, exact = operands(kind, squared)
    farthest = exact.sort(dim=1).values[:, 20]
    q, g = query_operand(space, queries, farthest), item_operand(space, items, torch.arange(300))
    found = cuda_plain.near_pairs(q, g, slice(0, 300))[:40, :300]
    near = (exact <= farthest[:, None])[:, g.steps.long()]
    assert (found >= near).all()
    if kind != "of many sizes":
        assert found.sum() < 1.2 * near.sum()


def test_filled_up_queries_and_items_are_never_near():
    """What only fills a block up is in no near pair."""
    space, queries, items, exact = operands("usual", True)
    q = query_operand(space, queries, exact.amax(dim=1))
    g = item_operand(space, items, torch.arange(300))
    found = cuda_plain.near_pairs(q, g, slice(0, len(g.halves)))
    assert found[:40, :300].all()
    assert not found[40:].any()
    assert not found[:, 300:].any()


@pytest.mark.parametrize("dim", [1, 7, 16, 100, 384])
def test_neighbours_of_the_stored_order_are_halves(dim):
    """Adding neighbours level by level gives the bits of the sum by halves."""
    rng = np.random.default_rng(dim)
    a, b = torch.tensor(rng.normal(size=(2, 50, dim)).astype(np.float32))
    terms = (stored(a).double() - stored(b).double()).square()
    while terms.shape[1] > 1:
        terms = terms[:, ::2] + terms[:, 1::2]
    assert torch.equal(terms[:, 0], exact_distances(a, b, squared=True))
    assert torch.equal(stored(stored(a))[:, :dim], a)


def test_the_torch_path_takes_two_steps_where_that_pays(monkeypatch, scene):
    """The public path gives the same scores by either way, and tells progress to the end."""
    space = make_space(*scene[:3], "l2")
    stages, relevance = Stages(*scene[3:5]), scene[5]
    kept = np.flatnonzero(relevance.counts)
    arguments = space, stages, relevance, kept, ALL, "cpu"
    expected = cuda.torch_scores(*arguments)
    monkeypatch.setattr(cuda, "pays", lambda *given: True)
    monkeypatch.setattr(cuda, "_block_scores", None)  # the other way
    told = []
    scores = cuda.torch_scores(*arguments, lambda done, total: told.append((done, total)))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)
    assert told[-1] == (len(kept), len(kept))


def test_it_pays_only_on_cards(scene):
    """A CPU takes the other way."""
    space = make_space(*scene[:3], "l2")
    kept = np.flatnonzero(scene[5].counts)
    assert not cuda_streaming.pays(space, Stages(*scene[3:5]), scene[5], kept, CPU)


def test_the_share_of_near_pairs_is_estimated():
    """Small where relevant items are near, large where they are anywhere."""
    rng = np.random.default_rng(2)
    labels = np.arange(1000) // 4
    centres = rng.normal(size=(250, 16)).astype(np.float32)
    shares = []
    for noise in (0.05, 5.0):
        new = centres[labels] + np.float32(noise) * rng.normal(size=(1000, 16)).astype(np.float32)
        space = make_space(new, new, new, "l2")
        stages = Stages(np.arange(1000), np.array([500]))
        shares.append(
            near_share(space, stages, Relevance.from_labels(labels), np.arange(1000), CPU)
        )
    assert 0.003 < shares[0] < 0.01  # the query itself and three others
    assert shares[1] > 0.3


METRICS = as_metrics("map,cmc@1,ndcg@5,recall@3")


@pytest.mark.parametrize("distance", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("own", [True, False])
def test_shards_add_up_to_the_whole_curve(distance: Distance, own: bool) -> None:
    """For queries of the gallery and others, with ties, and shards of any rows."""
    rng = np.random.default_rng(4)
    before, after = (rng.integers(-3, 4, size=(90, 4)).astype(np.float32) + 0.5 for _ in "ab")
    labels = rng.integers(0, 7, size=90)
    queries = after if own else after[:20] + np.float32(0.25)
    relevance = Relevance.from_labels(labels, None if own else labels[:20])
    positions, counts = rng.permutation(90), np.array([5, 10, 45, 80])
    whole = curve_scores(
        queries, before, after, positions, counts, relevance, METRICS, distance=distance
    )
    steps = Stages(positions, counts).steps
    everything = GalleryShard(np.arange(90), before, after)
    curve = CudaShardedCurve(
        queries, everything, relevance, steps, 4, METRICS, distance, device="cpu"
    )
    parts = np.array_split(rng.permutation(90), 4)
    told: list[int] = []
    shards = (GalleryShard(rows, before[rows], after[rows]) for rows in parts)
    added = curve.scores(shards, told.append)
    assert sum(told) == 90
    assert np.array_equal(added.queries, whole.queries)
    assert added.excluded == whole.excluded
    for name, values in whole.values.items():
        np.testing.assert_allclose(added.values[name], values, rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("size", [1e-15, 1e15])
def test_huge_and_tiny_vectors_are_counted_like_others(size: float) -> None:
    """A scale of the vectors changes nothing."""
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(40, 6)).astype(np.float32)
    relevance = Relevance.from_labels(np.arange(40) % 8)
    values = []
    for scale in (1, size):
        shard = GalleryShard(
            np.arange(40), vectors * np.float32(scale), vectors * np.float32(scale)
        )
        steps = np.zeros(40, dtype=np.int64)
        curve = CudaShardedCurve(
            shard.after, shard, relevance, steps, 1, METRICS, "l2", device="cpu"
        )
        values.append(curve.scores([shard]).values["map"])
    np.testing.assert_allclose(values[0], values[1])


def test_items_without_vectors_are_named() -> None:
    """Relevant ones, and queries that are items, whatever shard they are in."""
    vectors = np.ones((4, 2), dtype=np.float32)
    with pytest.raises(IdError, match="items 3, which are relevant"):
        CudaShardedCurve(
            vectors, GalleryShard(np.arange(3), vectors[:3], vectors[:3]),
            Relevance.from_labels([0, 0, 1, 1]), np.zeros(4, dtype=np.int64), 1, METRICS,
        )  # fmt: skip


def test_too_many_queries_for_the_memory_are_refused(monkeypatch) -> None:
    """In one sentence, with both sizes and the way out."""
    vectors = np.ones((40, 2), dtype=np.float32)
    shard = GalleryShard(np.arange(40), vectors, vectors)
    curve = CudaShardedCurve(
        vectors, shard, Relevance.from_labels(np.zeros(40)), np.zeros(40, dtype=np.int64), 1,
        METRICS, device="cpu",
    )  # fmt: skip
    monkeypatch.setattr(cuda_shards, "CPU_BYTES", 1000)
    with pytest.raises(InputError, match=r"40 queries .* GB free: measure some of the queries"):
        curve.scores([shard])
