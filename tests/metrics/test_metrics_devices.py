"""The torch path and the blocks: nothing depends on how the work is cut or where it is done."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_metrics_ranks import ALL, scenes
from threadpoolctl import threadpool_info

import fastfill
from fastfill.errors import InputError
from fastfill.metrics import Relevance, cpu, cuda, curve_scores
from fastfill.metrics.space import exact_distances, make_space
from fastfill.metrics.stages import Stages, query_blocks


def by_torch(queries, before, after, positions, counts, relevance, distance="l2"):
    """The scores of the torch path on CPU tensors."""
    space = make_space(queries, before, after, distance)
    kept = np.flatnonzero(relevance.counts)
    return cuda.torch_scores(space, Stages(positions, counts), relevance, kept, ALL, "cpu")


@settings(max_examples=60)
@given(scenes(), st.sampled_from(["l2", "ip"]))
def test_torch_and_numba_agree(scene, distance):
    """Both paths count the same ranks; only the last sums may round differently."""
    expected = curve_scores(*scene, ALL, distance=distance)
    scores = by_torch(*scene, distance)
    for i, metric in enumerate(ALL):
        np.testing.assert_allclose(
            scores[i], expected.values[metric.name], atol=1e-12, err_msg=metric.name
        )


@pytest.fixture(scope="module")
def scene():
    """A gallery large enough for many blocks, with duplicates and near-ties."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 12, 240)
    new = rng.normal(size=(240, 24)).astype(np.float32) + np.float32(3)
    new[120:] = new[:120] + np.float32(1e-6) * rng.integers(0, 3, (120, 24)).astype(np.float32)
    aligned = new + 0.3 * rng.normal(size=new.shape).astype(np.float32)
    counts = np.linspace(0, 240, 11).astype(int)
    return new, aligned, new, rng.permutation(240), counts, Relevance.from_labels(labels)


@pytest.mark.parametrize(
    ("queries", "products", "tables"), [(3, 50, 1), (16, 7, 10**5), (50, 999, 10**6)]
)
def test_block_sizes_change_nothing(monkeypatch, scene, queries, products, tables):
    """However the queries and the columns are cut, every value is the same, bit for bit."""
    expected = curve_scores(*scene, ALL)
    monkeypatch.setattr(cpu, "QUERIES", queries)
    monkeypatch.setattr(cpu, "PRODUCTS", products * queries)
    monkeypatch.setattr(cpu, "TABLES", tables)
    scores = curve_scores(*scene, ALL)
    for metric in ALL:
        np.testing.assert_array_equal(scores.values[metric.name], expected.values[metric.name])


@pytest.mark.parametrize(("columns", "room"), [(37, 1 << 18), (1000, 1 << 30)])
def test_torch_blocks_change_nothing(monkeypatch, scene, columns, room):
    """The torch path too gives the same from small and from large blocks."""
    expected = by_torch(*scene)
    monkeypatch.setattr(cuda, "COLUMNS", columns)
    monkeypatch.setattr(cuda, "CPU_BYTES", room)
    np.testing.assert_allclose(by_torch(*scene), expected, rtol=0, atol=1e-12)


def test_the_number_of_threads_changes_nothing(monkeypatch, scene):
    """One thread or several: bit for bit the same."""
    expected = curve_scores(*scene, ALL)
    monkeypatch.setattr(cpu, "thread_count", lambda: 5)
    scores = curve_scores(*scene, ALL)
    for metric in ALL:
        np.testing.assert_array_equal(scores.values[metric.name], expected.values[metric.name])


def test_float64_distances_are_the_same_in_numpy_and_torch():
    """The sum by halves gives the same bits, whatever the dimension."""
    torch = pytest.importorskip("torch")
    from fastfill.metrics import cuda_thresholds

    rng = np.random.default_rng(1)
    for dim in (1, 2, 7, 8, 9, 16, 17, 100, 128, 384):
        a, b = rng.normal(size=(2, 50, dim)).astype(np.float32)
        for squared in (True, False):
            here = exact_distances(a, b, squared)
            there = cuda_thresholds.exact_distances(torch.tensor(a), torch.tensor(b), squared)
            np.testing.assert_array_equal(here, there.numpy())


def test_blocks_hold_every_query_once_within_their_bounds():
    """Blocks are cut by queries and by the size of their tables, a big one standing alone."""
    relevance = Relevance.from_labels(np.repeat(np.arange(6), [2, 3, 50, 2, 9, 4]))
    kept = np.flatnonzero(relevance.counts)
    blocks = list(query_blocks(relevance, kept, stages=3, cells=300, most=8))
    assert np.concatenate(blocks).tolist() == kept.tolist()
    for block in blocks:
        cells = (2 * relevance.counts[block] + 1).sum() * 4
        assert len(block) <= 8
        assert cells <= 300 or len(block) == 1


def test_threads_follow_the_environment(monkeypatch):
    """OMP_NUM_THREADS holds for the kernels as it does for BLAS."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert cpu.thread_count() == 1
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert cpu.thread_count() >= 1


def test_blas_gets_its_threads_back(scene):
    """A pass takes them away only while it counts, also when it fails."""

    def interrupt(done, total):
        raise KeyboardInterrupt

    before = [library["num_threads"] for library in threadpool_info()]
    curve_scores(*scene, ALL)
    with pytest.raises(KeyboardInterrupt):
        curve_scores(*scene, ALL, tick=interrupt)
    assert [library["num_threads"] for library in threadpool_info()] == before


def test_progress_is_told_to_the_end(scene):
    """The bar hears of every block, and ends at the number of queries."""
    told = []
    curve_scores(*scene, ALL, tick=lambda done, total: told.append((done, total)))
    assert told[-1] == (240, 240)


def test_a_device_that_is_not_there_is_refused(scene, monkeypatch):
    """CUDA without a card is said so in one sentence."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="torch sees no CUDA"):
        curve_scores(*scene, ALL, device="cuda")


def test_torch_counts_on_a_cpu_without_numba(scene, monkeypatch):
    """Where Numba is not installed, the same scores come from torch."""
    from fastfill.metrics import scores

    expected = curve_scores(*scene, ALL)
    monkeypatch.setattr(scores, "find_spec", lambda name: None if name == "numba" else name)
    monkeypatch.setitem(sys.modules, "fastfill.metrics.cpu", None)  # cannot be imported
    found = curve_scores(*scene, ALL)
    for metric in ALL:
        np.testing.assert_allclose(
            found.values[metric.name], expected.values[metric.name], atol=1e-12
        )


@settings(max_examples=60, deadline=None)
@given(scenes(), st.sampled_from(["l2", "ip", "cosine"]))
def test_numpy_and_numba_agree(scene, distance):
    """Where neither Numba nor torch is installed, the same scores come from NumPy."""
    from fastfill.metrics import scores

    if distance == "cosine":
        assume(all(np.abs(side).sum(axis=1).all() for side in scene[:3]))
    expected = curve_scores(*scene, ALL, distance=distance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores, "find_spec", lambda name: None)
        found = curve_scores(*scene, ALL, distance=distance)
    for metric in ALL:
        np.testing.assert_allclose(
            found.values[metric.name], expected.values[metric.name], atol=1e-12
        )


def test_the_rooms_load_without_numba_and_torch():
    """A machine with NumPy alone can import metrics, order and evaluate."""
    code = (
        "import sys; sys.modules['numba'] = sys.modules['torch'] = None\n"
        "import fastfill.metrics, fastfill.order, fastfill.evaluate"
    )
    source = str(Path(fastfill.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": source}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
