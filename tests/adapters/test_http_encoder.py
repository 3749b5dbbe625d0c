"""The encoder behind the OpenAI-compatible protocol, against a real server on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from embedding_server import Answer, Server, running

from fastfill.adapters.encoders.http import HttpEncoder, retry_after
from fastfill.errors import EncoderBusyError, EncoderError


@pytest.fixture
def server() -> Iterator[Server]:
    """A server for one test."""
    yield from running()


@pytest.fixture
def other() -> Iterator[Server]:
    """Another server, for the same test."""
    yield from running()


def test_texts_are_sent_in_batches(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors come in the order of the texts, the key only in its header."""
    monkeypatch.setenv("FASTFILL_API_KEY", "a-secret")
    encode = HttpEncoder(f"{server.url}#small-model", at_once=2)
    vectors = np.asarray(encode(["a", "bb", "ccc"]))
    np.testing.assert_array_equal(vectors[:, 0], [1, 2, 3])
    assert [len(body["input"]) for body, _ in server.seen] == [2, 1]
    assert server.seen[0][0]["model"] == "small-model"
    assert server.seen[0][1]["Authorization"] == "Bearer a-secret"
    assert "a-secret" not in json.dumps([body for body, _ in server.seen])


def test_a_busy_server_is_passed_on(server: Server) -> None:
    """429 becomes an error that says how long to wait."""
    server.answer = lambda _: (429, {"Retry-After": "7"}, {})
    with pytest.raises(EncoderBusyError) as caught:
        HttpEncoder(server.url)(["a"])
    assert caught.value.retry_after == 7.0


def test_failures_of_the_server_are_tried_again(server: Server) -> None:
    """A 500 is tried again after a pause; a refusal is not."""
    answers = iter([(500, {}, {}), (500, {}, {})])
    server.answer = lambda body: next(answers, None) or Server.embed(body)
    pauses: list[float] = []
    np.asarray(HttpEncoder(server.url, sleep=pauses.append)(["abc"]))
    assert len(pauses) == 2
    server.answer = lambda _: (400, {}, {})
    with pytest.raises(EncoderError, match="400"):
        HttpEncoder(server.url, sleep=pauses.append)(["abc"])
    assert len(pauses) == 2


def test_items_without_an_answer_are_marked(server: Server) -> None:
    """Good items of a batch are kept where others are missing."""

    def partial(body: dict[str, Any]) -> Answer:
        status, headers, value = Server.embed(body)
        return status, headers, {"data": [e for e in value["data"] if e["index"] != 1]}

    server.answer = partial
    vectors = np.asarray(HttpEncoder(server.url)(["a", "bb", "ccc"]))
    assert np.isnan(vectors).any(axis=1).tolist() == [False, True, False]


def test_a_missing_key_is_named(server: Server) -> None:
    """401 tells which variable to set; a key in the address is refused."""
    server.answer = lambda _: (401, {}, {})
    with pytest.raises(EncoderError, match="FASTFILL_API_KEY"):
        HttpEncoder(server.url)(["a"])
    with pytest.raises(EncoderError, match="out of the address"):
        HttpEncoder("https://me:secret@example.org/v1/embeddings")


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_takes_the_key_nowhere(
    server: Server, other: Server, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A service that points to another host is refused at once, by the names of both."""
    monkeypatch.setenv("FASTFILL_API_KEY", "a-secret")
    server.answer = lambda _: (code, {"Location": f"{other.url}?token=hidden"}, {})
    with pytest.raises(EncoderError) as caught:
        HttpEncoder(server.url)(["a"])
    assert other.seen == []
    assert len(server.seen) == 1
    assert server.url in str(caught.value)
    assert other.url in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert "a-secret" not in str(caught.value)


def test_a_redirect_on_the_same_host_names_the_address_to_give(server: Server) -> None:
    """No redirect is followed, so that there is one rule; the message says where to."""
    server.answer = lambda _: (308, {"Location": "/v2/embeddings"}, {})
    with pytest.raises(EncoderError, match=r"to http://127\.0\.0\.1:\d+/v2/embeddings\."):
        HttpEncoder(server.url)(["a"])
    assert len(server.seen) == 1


def test_retry_after_can_be_a_date() -> None:
    """Both forms of the header are understood, nonsense is not waited for."""
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry_after("soon") is None
    assert retry_after(None) is None
