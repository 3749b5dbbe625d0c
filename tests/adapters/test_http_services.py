"""The protocols of embedding services, each answered by a real server as its documentation says."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from embedding_server import Answer, Server, running

from fastfill.adapters.encoders.http import HttpEncoder
from fastfill.errors import EncoderError
from fastfill.gallery import Gallery, MemoryStore
from fastfill.migrate import Migration, QuerySet

TEXTS = ["a", "bb", "ccc"]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server for one test."""
    yield from running()


def vector(text: str, dim: int | None = None) -> list[float]:
    """What the model of the service makes of a text."""
    return [float(len(text)), *(float(ord(c)) for c in (text * 3)[:3])][:dim]


def openai(body: dict[str, Any]) -> Answer:
    """OpenAI's answer; Voyage's has the same shape."""
    dim = body.get("dimensions", body.get("output_dimension"))
    rows = [np.array(vector(text, dim), dtype="<f4") for text in body["input"]]
    in_base64 = body.get("encoding_format") == "base64"
    data = [
        {"index": i, "embedding": base64.b64encode(row).decode() if in_base64 else row.tolist()}
        for i, row in enumerate(rows)
    ]
    return 200, {}, {"data": data, "usage": {"total_tokens": 7 * len(rows)}}


def vllm(body: dict[str, Any]) -> Answer:
    """The answer of vLLM, which serves models by name and tells more of its own."""
    if body.get("model") != "small":
        return 404, {}, {"error": {"message": "The model does not exist.", "code": 404}}
    status, headers, answer = openai(body)
    usage = {**answer["usage"], "completion_tokens": 0, "prompt_tokens_details": None}
    data = [{"object": "embedding", **entry} for entry in answer["data"]]
    more = {"id": "embd-1", "object": "list", "created": 1, "model": "small"}
    return (
        status,
        headers,
        {**more, "data": data, "usage": {**usage, "prompt_tokens_details": None}},
    )


def tei(body: dict[str, Any]) -> Answer:
    """The answer of Hugging Face's Text Embeddings Inference."""
    rows = [vector(text, body.get("dimensions")) for text in body["inputs"]]
    return 200, {"x-compute-tokens": str(7 * len(rows)), "x-compute-characters": "6"}, rows


def ollama(body: dict[str, Any]) -> Answer:
    """Ollama's answer."""
    rows = [vector(text, body.get("dimensions")) for text in body["input"]]
    return 200, {}, {"embeddings": rows, "prompt_eval_count": 7 * len(rows)}


def cohere(body: dict[str, Any]) -> Answer:
    """Cohere's answer, which demands an input type."""
    if "input_type" not in body or body.get("embedding_types") != ["float"]:
        return 400, {}, {"message": "input_type"}
    rows = [vector(text, body.get("output_dimension")) for text in body["texts"]]
    usage = {"billed_units": {"input_tokens": 7 * len(rows)}}
    return 200, {}, {"embeddings": {"float": rows}, "meta": usage}


@pytest.mark.parametrize(
    ("path", "options", "answer", "types", "tokens"),
    [
        ("/v1/embeddings", "", openai, (None, None), 21),
        ("/v1/embeddings", "", vllm, (None, None), 21),
        ("/v1/embeddings", "&api=voyage", openai, ("document", "query"), 21),
        ("/v2/embed", "", cohere, ("search_document", "search_query"), 21),
        ("/api/embed", "", ollama, (None, None), 21),
        ("/embed", "", tei, (None, None), 21),
    ],
)
def test_every_service_is_spoken_to_as_it_expects(
    server: Server,
    path: str,
    options: str,
    answer: Callable[[dict[str, Any]], Answer],
    types: tuple[str | None, str | None],
    tokens: int,
) -> None:
    """Vectors, dimensions, input types of items and queries, and counted tokens."""
    server.answer = answer
    address = server.url.replace("/v1/embeddings", path)
    encode = HttpEncoder(f"{address}#small?dim=3{options}")
    expected = [vector(text, 3) for text in TEXTS]
    np.testing.assert_array_equal(encode(TEXTS), np.float32(expected))
    assert encode.tokens_used == tokens
    np.testing.assert_array_equal(encode.encode_query(TEXTS), np.float32(expected))
    bodies = [body for body, _ in server.seen]
    assert tuple(body.get("input_type") for body in bodies) == types
    assert all(body["model"] == "small" for body in bodies)


def test_options_say_what_a_side_is_given(server: Server) -> None:
    """Input types and prompts of items and of queries are those of the name."""
    server.answer = openai
    encode = HttpEncoder(
        f"{server.url}#m?input_type=passage&query_input_type=query"
        "&prompt=passage:%20&query_prompt=query:%20"
    )
    encode(["red"])
    encode.encode_query(["red"])
    items, queries = (body for body, _ in server.seen)
    assert (items["input"], items["input_type"]) == (["passage: red"], "passage")
    assert (queries["input"], queries["input_type"]) == (["query: red"], "query")


def test_where_base64_is_refused_numbers_are_asked_for(server: Server) -> None:
    """The first request is made again without; the next ones are made without at once."""

    def strict(body: dict[str, Any]) -> Answer:
        return (400, {}, {}) if "encoding_format" in body else openai(body)

    server.answer = strict
    encode = HttpEncoder(f"{server.url}#m")
    for _ in range(2):
        np.testing.assert_array_equal(encode(TEXTS), np.float32([vector(t) for t in TEXTS]))
    asked = ["encoding_format" in body for body, _ in server.seen]
    assert asked == [True, False, False]


def test_a_refusal_after_good_answers_is_not_about_base64(server: Server) -> None:
    """One item that a service refuses costs one request, and later answers stay in base64."""
    server.answer = openai
    encode = HttpEncoder(f"{server.url}#m")
    encode(TEXTS)
    server.answer = lambda _: (400, {}, {})
    with pytest.raises(EncoderError, match="400"):
        encode(TEXTS)
    assert len(server.seen) == 2
    server.answer = openai
    encode(TEXTS)
    assert server.seen[-1][0]["encoding_format"] == "base64"


def test_requests_are_bounded_by_tokens(server: Server) -> None:
    """Long texts go in requests of fewer; one that is too long by itself goes alone."""
    server.answer = openai
    texts = ["a" * 40, "b" * 36, "c" * 400, "d", "e"]
    vectors = np.asarray(HttpEncoder(f"{server.url}#m?tokens=25")(texts))
    assert [len(body["input"]) for body, _ in server.seen] == [2, 1, 2]
    np.testing.assert_array_equal(vectors[:, 0], [len(text) for text in texts])


def test_a_request_of_another_script_is_not_longer_than_it_may_be(server: Server) -> None:
    """A character of Chinese is counted as a token, not as a quarter of one."""
    server.answer = openai
    HttpEncoder(f"{server.url}#m?tokens=25")(["红" * 11, "车" * 11, "船" * 11, "d" * 44])
    assert [len(body["input"]) for body, _ in server.seen] == [2, 2]


def test_an_answer_without_a_count_counts_nothing(server: Server) -> None:
    """A header that is missing or says something else is no number of tokens."""
    encode = HttpEncoder(f"{server.url.replace('/v1/embeddings', '/embed')}#m")
    for headers in ({}, {"x-compute-tokens": "many"}):
        server.answer = lambda body, headers=headers: (200, headers, tei(body)[2])
        encode(TEXTS)
        assert encode.tokens_used == 0


def test_wrong_options_are_named() -> None:
    """A service, an option or a number that means nothing is one sentence, before any request."""
    for options, words in (
        ("api=cohre", "did you mean 'cohere'"),
        ("dimension=3", "Unknown option 'dimension': use one of api, dim"),
        ("batch=0", "batch is a whole number from 1 on"),
    ):
        with pytest.raises(EncoderError, match=words):
            HttpEncoder(f"https://example.org/v1/embeddings#m?{options}")


def test_the_query_of_an_address_is_the_services_own(server: Server) -> None:
    """What stands before the # goes to the server as it is."""
    server.answer = openai
    encode = HttpEncoder(f"{server.url}?api-version=2#m?dim=2")
    assert np.asarray(encode(["a"])).shape == (1, 2)
    assert server.paths == ["/v1/embeddings?api-version=2"]


def test_a_migration_embeds_its_queries_as_queries(server: Server) -> None:
    """Items are sent as documents, the queries of a start as queries, to both models."""
    server.answer = openai
    texts = [f"{n:03d} text" for n in range(80)]
    old_name, new_name = (f"{server.url}#{m}?api=voyage&dim=4" for m in ("old", "new"))
    old = np.asarray(HttpEncoder(old_name)(texts))
    values = {"id": [*range(80)], "text": texts, "vector": old.tolist()}
    gallery = Gallery(MemoryStore(values, distance="l2"), input="text")
    migration = Migration(gallery, HttpEncoder(new_name), encoder_name=new_name)
    queries = QuerySet([str(n) for n in range(20)], texts=[f"what is {n}" for n in range(20)])
    migration.start(pairs=40, method="ridge", queries=queries, encode_old=HttpEncoder(old_name))
    types: dict[tuple[str, bool], set[str]] = {}
    for body, _ in server.seen:
        for text in body["input"]:
            asked = text.startswith("what is")
            types.setdefault((body["model"], asked), set()).add(body["input_type"])
    assert types == {
        ("new", False): {"document"},
        ("new", True): {"query"},
        ("old", False): {"document"},
        ("old", True): {"query"},
    }


def test_an_http_encoder_tells_what_it_asks_for(server: Server) -> None:
    """Input types that a service has by default count as if they were typed; batches do not."""
    typed = "input_type=document&query_input_type=query&dim=4&prompt=&query_prompt="
    told = HttpEncoder(f"{server.url}#m?batch=7&api=voyage&dim=4").identity
    assert told == HttpEncoder(f"{server.url}#m?api=voyage&{typed}").identity
    assert told["query_input_type"] == "query"
    assert HttpEncoder(f"{server.url}#m?api=voyage&dim=4&prompt=a").identity != told


def test_tokens_of_a_plan_are_those_that_the_service_counts(server: Server) -> None:
    """Where the answer tells its usage, nothing is guessed."""
    server.answer = openai
    values = {
        "id": [*range(50)],
        "text": [f"{n:03d} a longer text" for n in range(50)],
        "vector": np.eye(50, 4, dtype=np.float32).tolist(),
    }
    gallery = Gallery(MemoryStore(values, distance="l2"), input="text")
    assert Migration(gallery, HttpEncoder(f"{server.url}#m")).plan().tokens == 7 * 50
