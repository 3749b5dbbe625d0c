"""A real model with prompts behind a real server: the vectors are those that its card says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from embedding_server import Answer, Server, running
from tiny_model import PROMPTS, WORDS, library_model, save_tiny_model

from fastfill.gallery import Gallery, MemoryStore
from fastfill.migrate import Migration
from fastfill.wiring import open_encoder

pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
# The library and those that it stands on warn of their own future at import.
pytestmark = pytest.mark.filterwarnings("ignore")
ITEMS = [f"{a} {b}" for a in WORDS for b in WORDS]
QUERIES = ["green bicycle", "red", "blue house"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The model, loaded as its card says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        return library_model(save_tiny_model(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture
def server() -> Iterator[Server]:
    """A server for one test."""
    yield from running()


def openai(model: Any) -> Callable[[dict[str, Any]], Answer]:
    """A service of OpenAI's protocol, which puts nothing before a text: prompts are the client's.

    (An empty prompt keeps the library from putting one there by itself.)
    """

    def answer(body: dict[str, Any]) -> Answer:
        vectors = model.encode(body["input"], prompt="")
        data = [{"index": i, "embedding": row.tolist()} for i, row in enumerate(vectors)]
        return 200, {}, {"data": data}

    return answer


def tei(model: Any) -> Callable[[dict[str, Any]], Answer]:
    """Text Embeddings Inference, which puts the prompt of the model's that is named."""

    def answer(body: dict[str, Any]) -> Answer:
        vectors = model.encode(body["inputs"], prompt=model.prompts[body["prompt_name"]])
        return 200, {}, vectors.tolist()

    return answer


@pytest.mark.parametrize(
    ("path", "service", "options"),
    [
        ("/v1/embeddings", openai, "prompt=passage:%20&query_prompt=query:%20"),
        ("/embed", tei, "input_type=passage&query_input_type=query"),
    ],
)
def test_a_migration_gets_the_vectors_of_the_models_card(
    server: Server, model: Any, path: str, service: Any, options: str
) -> None:
    """Every item is embedded as a passage and every query as a query, to the end of a migration."""
    server.answer = service(model)
    name = f"{server.url.replace('/v1/embeddings', path)}#tiny?{options}"
    encode: Any = open_encoder(name)
    as_items = model.encode(ITEMS, prompt=PROMPTS["passage"])
    as_queries = model.encode(QUERIES, prompt=PROMPTS["query"])
    np.testing.assert_allclose(encode(ITEMS), as_items, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(encode.encode_query(QUERIES), as_queries, rtol=1e-5, atol=1e-7)
    assert np.abs(model.encode(QUERIES, prompt="") - as_queries).max() > 0.01

    old = np.random.default_rng(0).standard_normal((len(ITEMS), 6)).astype(np.float32)
    values = {"id": [*range(len(ITEMS))], "text": ITEMS, "vector": old.tolist()}
    store = MemoryStore(values, distance="cosine")
    migration = Migration(Gallery(store, input="text"), encode, encoder_name=name)
    migration.start(pairs=30, method="ridge")
    assert [*migration.backfill()][-1].fraction == 1
    migration.complete()
    (rows,) = store.scan("new", batch=100, new=True)
    np.testing.assert_allclose(rows.new, as_items[rows.ids.astype(int)], rtol=1e-5, atol=1e-7)
    gallery = Gallery(store, query_new=encode)
    for query, vector in zip(QUERIES, as_queries, strict=True):
        hits = gallery.search(query, k=5)
        np.testing.assert_allclose(
            as_items[[int(key) for key in hits.ids]] @ vector,
            np.sort(as_items @ vector)[::-1][:5],
            atol=1e-5,
        )
