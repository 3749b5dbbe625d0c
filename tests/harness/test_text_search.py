"""The benchmark of document search: vectors made once, backfills kept, tables of odd queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.shared import text_encoders, text_sets
from benchmarks.shared.text_runs import (
    POINTS,
    Played,
    Run,
    half_done,
    play_missing,
    read_played,
    read_upgrade,
)
from benchmarks.shared.text_tables import check_table, downgrades, summarise, upgrade_table
from fastfill.evaluate import serving_curves
from fastfill.evaluate.curve_builder import Way

DOCUMENTS, QUERIES = 90, 24


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A judged set named `tiny`; each query asks for one document."""
    folder = tmp_path / "data" / "text" / "tiny"
    folder.mkdir(parents=True)
    for name, count in (("corpus", DOCUMENTS), ("queries", QUERIES)):
        lines = [json.dumps({"_id": f"{name}{i}", "text": "x" * (i % 7)}) for i in range(count)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    pairs = [f"queries{i}\tcorpus{3 * i}\t1" for i in range(QUERIES)]
    (folder / "qrels.tsv").write_text("\n".join(pairs))
    monkeypatch.setenv("FASTFILL_DATA", str(tmp_path / "data"))
    text_sets.judged_set.cache_clear()
    return folder


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Vectors of three models, each nearer to the truth than the one before."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(DOCUMENTS, 12))
    asked = truth[3 * np.arange(QUERIES)]
    for model, noise in (("a", 1.5), ("b", 0.8), ("c", 0.2)):
        turn = rng.normal(size=(12, 10))
        corpus, queries = (
            ((part + noise * rng.normal(size=part.shape)) @ turn).astype(np.float32)
            for part in (truth, asked)
        )
        np.savez(text_sets.vector_file(tmp_path, "tiny", model), corpus=corpus, queries=queries)
    return tmp_path


def test_vectors_are_made_once_and_in_the_order_of_the_texts(
    tmp_path: Path, judged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are embedded by length, kept by row, and a second call embeds nothing."""
    calls: list[int] = []

    def encode(texts: Sequence[str], kind: text_encoders.Kind) -> text_encoders.Vectors:
        calls.append(len(texts))
        return np.array([[len(text), kind == "query"] for text in texts], dtype=np.float32)

    monkeypatch.setattr(text_sets, "BATCH", 40)
    monkeypatch.setitem(text_encoders.ENCODERS, "lengths", lambda: encode)
    for _ in range(2):
        text_sets.embed_missing(tmp_path, ["tiny"], ["lengths"])
    assert calls == [40, 40, 10, 24]
    with np.load(text_sets.vector_file(tmp_path, "tiny", "lengths")) as made:
        assert made["corpus"][:, 0].tolist() == [i % 7 for i in range(DOCUMENTS)]
        assert made["queries"].tolist() == [[i % 7, 1] for i in range(QUERIES)]


def test_an_empty_text_has_a_direction(tmp_path: Path) -> None:
    """Zeros, which some encoders give, cannot be compared by their angle."""
    corpus = np.array([[0, 0], [3, 4]], dtype=np.float32)
    np.savez(text_sets.vector_file(tmp_path, "s", "e"), corpus=corpus, queries=corpus[1:])
    documents = text_sets.read_embedded(tmp_path, "s", "e").documents
    assert np.linalg.norm(documents, axis=1).min() > 0
    assert documents[1].tolist() == [3, 4]


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors that were not made, and packages that are not there, end it with a way out."""
    with pytest.raises(SystemExit, match=r"s-e\.npz: no such file\. Make it: .* --embed"):
        text_sets.read_embedded(tmp_path, "s", "e")
    monkeypatch.setenv("FASTFILL_TEXT", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("glove", "use"):
        with pytest.raises(SystemExit, match=f"The encoder {name} is not here .* Set it up as"):
            text_encoders.load_encoder(name)


def test_a_kept_run_is_what_curves_of_each_way_show(judged: Path, vectors: Path) -> None:
    """Also `auto`: odd-numbered queries are served by what even-numbered ones choose."""
    run, folder = Run("tiny", ("a", "c"), "30", 1), vectors / "runs"
    play_missing([run], folder, vectors, jobs=1)
    written = run.file(folder).stat().st_mtime_ns
    play_missing([run], folder, vectors, jobs=1)
    assert run.file(folder).stat().st_mtime_ns == written
    played = read_played(run, folder)
    upgrade = read_upgrade(run, vectors)
    curves = serving_curves(
        upgrade.old, upgrade.new, upgrade.labels, pairs=30, metrics="ndcg@10",
        queries=upgrade.queries, queries_old=upgrade.queries_old, distance="cosine", seed=1,
    )  # fmt: skip
    kept = played.curves("ndcg@10")
    assert set(kept) == set(curves)
    for way, by_metric in curves.items():
        per_query = by_metric["ndcg@10"].per_query
        assert per_query is not None
        assert kept[way] == pytest.approx(100 * per_query[1::2].mean(axis=0), abs=1e-4), way


def test_a_chain_begins_with_a_gallery_that_is_half_done(judged: Path, vectors: Path) -> None:
    """Half of the old vectors are those of the second model, the others are aligned with it."""
    first, second = (text_sets.read_embedded(vectors, "tiny", m).documents for m in "ab")
    gallery = half_done(first, second, seed=0)
    assert (gallery == second).all(axis=1).sum() == DOCUMENTS // 2
    upgrade = read_upgrade(Run("tiny", ("a", "b", "c"), "30", 0), vectors)
    assert np.array_equal(upgrade.old, gallery)


def made(old: float, aligned: Sequence[float], both: Sequence[float]) -> Played:
    """A run of four queries that all measure the same."""
    ways = {Way("old"): np.full(POINTS, old), Way("aligned"): aligned, Way("both"): both}
    values = {way: np.tile(np.asarray(v, dtype=np.float32), (4, 1)) for way, v in ways.items()}
    return Played(np.arange(4), {"ndcg@10": values})


def test_tables_say_what_serving_promises() -> None:
    """Loss against the old search, gain of area, and right choices are those of the curves."""
    rising = np.linspace(0.2, 0.8, POINTS)
    summary = summarise(made(0.4, rising, np.full(POINTS, 0.5)))
    assert summary["choices"][0] == "b"
    assert summary["choices"][-1] == "a"
    run = Run("tiny", ("a", "b"), "5 %", 0)
    [auto] = [row for row in upgrade_table({run: summary}).splitlines() if "| auto |" in row]
    assert [cell.strip() for cell in auto.split("|")[3:6]] == ["50.0", "50.0", "50.0"]
    assert auto.endswith("| 80.0 | 57.5 | +10.0 |")
    checks = check_table({run: summary}).splitlines()[-1]
    assert "all but 0 of 21 | +10.0 ± 0.0 | +10.0 | +7.5 | +7.5 | 100 % | 100 %" in checks


def test_upgrades_that_lose_are_named() -> None:
    """The new model is compared with the old one in the first metric."""
    scores = {"s": {"a": {"ndcg@10": 40.0, "mrr@10": 1.0}, "b": {"ndcg@10": 38.5, "mrr@10": 2.0}}}
    assert downgrades(scores, [("a", "b"), ("b", "a")]) == ["s: a → b (-1.5)"]
