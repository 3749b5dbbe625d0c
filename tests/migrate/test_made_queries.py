"""Without queries of the application, the first sentences of the items stand in for them."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.features import Matrix
from fastfill.gallery import Gallery, MemoryStore, Store
from fastfill.migrate import Migration
from fastfill.migrate.ledger.query_sample import QuerySample

WORDS = [f"word{number}" for number in range(60)]
ITEMS = 80


def bag_of_words(texts: Any, dim: int, seed: int) -> Matrix:
    """(n, dim) sums of random vectors, one for each word."""
    rows = []
    for text in texts:
        codes = [zlib.crc32(word.encode()) for word in re.findall(r"\w+", text)]
        rows.append(sum(np.random.default_rng([seed, code]).normal(size=dim) for code in codes))
    return np.asarray(rows, dtype=np.float32)


def encode_old(texts: Any) -> Matrix:
    """The old model."""
    return bag_of_words(texts, 12, 1)


def encode_new(texts: Any) -> Matrix:
    """The new model."""
    return bag_of_words(texts, 16, 2)


def documents(sentences: int) -> dict[str, Any]:
    """Items of so many sentences of four words."""
    rng = np.random.default_rng(0)
    texts = [
        " ".join(f"{' '.join(rng.choice(WORDS, 4))}." for _ in range(sentences))
        for _ in range(ITEMS)
    ]
    ids = [str(number) for number in range(ITEMS)]
    return {"id": ids, "text": texts, "vector": encode_old(texts).tolist()}


def make_store(kind: str, folder: Path, values: dict[str, Any]) -> Store:
    """The items in a store of this kind."""
    if kind == "memory":
        return MemoryStore(values)
    lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
    import pyarrow as pa

    from fastfill.wiring import open_store

    vectors = pa.array(values["vector"], pa.list_(pa.float32(), 12))
    lancedb.connect(folder).create_table("docs", pa.table({**values, "vector": vectors}))
    return open_store(f"lance://{folder}#docs.vector")


@pytest.mark.parametrize("kind", ["memory", "lance"])
def test_first_sentences_are_asked_where_there_are_no_queries(kind: str, tmp_path: Path) -> None:
    """They are embedded by both models, kept, and named in the line that says what serves."""
    values = documents(sentences=3)
    gallery = Gallery(make_store(kind, tmp_path, values), input="text", distance="cosine")
    migration = Migration(gallery, encode_new, encoder_name="new")
    migration.start(30, method="ridge", encode_old=encode_old)
    sample = QuerySample.load(gallery.store)
    assert sample is not None
    assert sample.made
    firsts = [text.split(". ")[0] + "." for text in values["text"]]
    distances = np.abs(encode_new(firsts)[:, None] - sample.new[None]).max(axis=2)
    assert (distances.min(axis=0) < 1e-5).all()
    choice = migration.status().serving
    assert choice is not None
    assert f"agreement@10 on {len(sample.new)} first sentences" in str(choice)


def test_items_of_one_sentence_make_no_queries() -> None:
    """An item is no query for itself: the pairs are asked instead."""
    gallery = Gallery(MemoryStore(documents(sentences=1)), input="text", distance="cosine")
    migration = Migration(gallery, encode_new, encoder_name="new")
    migration.start(30, method="ridge", encode_old=encode_old)
    assert QuerySample.load(gallery.store) is None
    assert "first sentences" not in str(migration.status().serving)
