"""Retrievers of LangChain, LlamaIndex and Haystack along a real migration on LanceDB."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from docs_world import ROOT, make_lance, names_of_the_reader, run_page

import fastfill as ff
from fastfill.errors import InputError

lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

GUIDE = ROOT / "docs" / "how-to" / "use-a-gallery-as-a-retriever.md"
ROWS = 120
MIX = np.random.default_rng(5).standard_normal((6, 8)).astype(np.float32)
os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")
Found = list[tuple[str, str, int]]  # id, text and album of each answer


def encode_old(texts: Sequence[Any]) -> Any:
    """The old model."""
    seeds = [zlib.crc32(str(text).encode()) for text in texts]
    return np.stack([np.random.default_rng(s).standard_normal(6).astype("f4") for s in seeds])


def encode_new(texts: Sequence[Any]) -> Any:
    """The new one, of other dimensions."""
    return np.tanh(encode_old(texts) @ MIX)


@pytest.fixture
def gallery(tmp_path: Path) -> ff.Gallery:
    """Documents in albums, as the old model has embedded them."""
    texts = [f"text {n}" for n in range(ROWS)]
    flat = pa.FixedSizeListArray.from_arrays(pa.array(encode_old(texts).ravel()), 6)
    columns = {"id": range(ROWS), "text": texts, "album": [n % 3 for n in range(ROWS)]}
    table = pa.table({**{k: list(v) for k, v in columns.items()}, "vector": flat})
    lancedb.connect(tmp_path).create_table("docs", table)
    url = f"lance://{tmp_path}#docs.vector"
    return ff.connect(url, input="text", distance="l2", query_old=encode_old, query_new=encode_new)


def by_langchain(gallery: ff.Gallery, query: str) -> Found:
    """Through LangChain."""
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from fastfill.retrievers.langchain import LangChainRetriever

    retriever = LangChainRetriever(
        gallery=gallery, k=5, filter={"album": 1}, metadata_columns=["album"]
    )
    documents = retriever.invoke(query)
    scores = [document.metadata["score"] for document in documents]
    assert scores == sorted(scores, reverse=True)
    return [(str(d.id), d.page_content, d.metadata["album"]) for d in documents]


def by_llamaindex(gallery: ff.Gallery, query: str) -> Found:
    """Through LlamaIndex."""
    pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")
    from fastfill.retrievers.llamaindex import LlamaIndexRetriever

    retriever = LlamaIndexRetriever(gallery, k=5, filter={"album": 1}, metadata_columns=["album"])
    nodes = retriever.retrieve(query)
    return [(each.node.node_id, each.node.text, each.node.metadata["album"]) for each in nodes]


def by_haystack(gallery: ff.Gallery, query: str) -> Found:
    """Through a pipeline of Haystack."""
    pytest.importorskip("haystack", reason="haystack-ai is not installed")
    from haystack import Pipeline

    from fastfill.retrievers.haystack import HaystackRetriever

    pipeline = Pipeline()
    retriever = HaystackRetriever(gallery, filter={"album": 1}, metadata_columns=["album"])
    pipeline.add_component("retriever", retriever)
    answer = pipeline.run({"retriever": {"query": query, "top_k": 5}})
    return [(d.id, d.content, d.meta["album"]) for d in answer["retriever"]["documents"]]


RETRIEVERS = [by_langchain, by_llamaindex, by_haystack]


def test_they_follow_a_migration_from_its_start_to_its_end(gallery: ff.Gallery) -> None:
    """In each phase all of them answer as the gallery does, by the models that serve then."""

    def check(serving: str) -> None:
        gallery._read_at = 0.0  # a reader may go on for a second with the phase that it knows
        assert gallery.serving == serving
        hits = gallery.search("text 40", 5, {"album": 1})
        expected = [(str(key), f"text {key}", 1) for key in hits.ids]
        assert expected[0] == ("40", "text 40", 1)
        for retriever in RETRIEVERS:
            assert retriever(gallery, "text 40") == expected

    migration = ff.Migration(gallery, encode_new)
    check("old")
    migration.start(pairs=60, serving="both")
    check("both")
    migration.start(pairs=60, serving="aligned")
    for _ in migration.backfill():
        pass
    check("aligned")
    migration.complete()
    check("aligned")


def test_every_block_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each framework finds the documents that the docs ask for."""
    monkeypatch.chdir(tmp_path)
    make_lance(tmp_path)
    names = names_of_the_reader()
    run_page(GUIDE, names)
    assert len(names["documents"]) == len(names["nodes"]) == 5


def test_a_gallery_without_a_text_column_is_refused(gallery: ff.Gallery) -> None:
    """Where the gallery has no input, the column of the text must be named."""
    from fastfill.gallery import Gallery
    from fastfill.retrievers.answers import AnswerColumns, find_answers

    bare = Gallery(gallery.store, distance="l2", query_old=encode_old)
    with pytest.raises(InputError, match="which column holds the text"):
        find_answers(bare, "text 1", 3)
    named = find_answers(bare, "text 1", 1, columns=AnswerColumns(text="text"))
    assert [answer.text for answer in named] == ["text 1"]


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("fastfill.retrievers.langchain", "langchain_core.callbacks", "langchain"),
        ("fastfill.retrievers.llamaindex", "llama_index.core.schema", "llamaindex"),
        ("fastfill.retrievers.haystack", "haystack", "haystack"),
        ("fastfill.align.onnx_graph", "onnx", "onnx"),
        ("fastfill.sklearn", "sklearn.base", "sklearn"),
    ],
)
def test_a_package_that_is_not_installed_is_named(
    module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which extra brings what is missing."""
    import importlib
    import sys

    from fastfill.errors import MissingExtraError

    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    load: Callable[[str], Any] = importlib.import_module
    with pytest.raises(MissingExtraError, match=rf"fastfill\[{extra}\]"):
        load(module)
