"""Whatever an encoder returns, nothing bad comes out of the checks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfill.errors import EncoderBusyError, EncoderError, InputError
from fastfill.migrate import Encoder
from fastfill.migrate.backoff import Backoff
from fastfill.migrate.encoding import as_item
from fastfill.migrate.events import ignore


def lengths(texts: Any) -> Any:
    """A model that counts letters."""
    return np.array([[len(t), 1.0] for t in texts], dtype=np.float32)


def test_one_bad_item_does_not_cost_its_neighbours() -> None:
    """A batch that fails as a whole is halved until the item at fault is alone."""

    def picky(texts: Any) -> Any:
        if "bad" in texts:
            raise ValueError("cannot read")
        return lengths(texts)

    texts = ["a"] * 9 + ["bad"] + ["cc"] * 6
    encoded = Encoder(picky, distance="l2", dim=2)(list(range(16)), texts)
    assert encoded.good.sum() == 15
    assert list(encoded.errors) == [9]
    assert "cannot read" in encoded.errors[9]


@pytest.mark.parametrize(
    "answer",
    [
        lambda texts: lengths(texts)[1:],
        lambda texts: lengths(texts)[:, :1],
        lambda texts: lengths(texts) * np.nan,
        lambda texts: lengths(texts) * np.inf,
        lambda texts: lengths(texts) * 0,
        lambda texts: "nonsense",
        lambda texts: None,
    ],
    ids=["count", "dimension", "nan", "infinite", "zero", "text", "none"],
)
def test_bad_answers_are_never_good(answer: Any) -> None:
    """Wrong counts, dimensions, NaN, infinite and zero vectors are errors of their items."""
    encoder = Encoder(answer, distance="cosine", dim=2)
    encoded = encoder([1, 2, 3], ["a", "b", "c"])
    assert not encoded.good.any()
    assert set(encoded.errors) == {1, 2, 3}


@pytest.mark.parametrize("kind", [np.float64, list, tuple, iter], ids=str)
def test_any_kind_of_rows_is_taken(kind: Any) -> None:
    """Arrays of other numbers, lists of lists, and what a generator yields."""
    made = Encoder(lambda texts: _as(kind, lengths(texts)), distance="l2")([1, 2], ["a", "bcd"])
    assert made.good.all()
    assert made.vectors.tolist() == [[1.0, 1.0], [3.0, 1.0]]


def _as(kind: Any, matrix: Any) -> Any:
    return matrix.astype(kind) if kind is np.float64 else kind(matrix.tolist())


def test_the_first_answer_of_a_wrong_shape_is_the_one_that_is_told() -> None:
    """Not what single items got when they were asked for again; a good answer forgets it."""
    short = Encoder(lambda texts: lengths(texts)[1:], distance="l2")
    encoded = short([1, 2, 3], ["a", "b", "c"])
    told = "EncoderError: the encoder returned shape (2, 2) for 3 items (1, 2, 3)"
    assert encoded.errors == dict.fromkeys([1, 2, 3], told)

    def moody(texts: Any) -> Any:
        return lengths(texts)[1:] if "bad" in texts else lengths(texts)

    encoder = Encoder(moody, distance="l2")
    encoder([1, 2], ["bad", "a"])
    assert "for 1 items (7)" in encoder([7], ["bad"]).errors[7]


@pytest.mark.parametrize("code", [3, None])
def test_an_encoder_that_ends_the_program_is_told(code: int | None) -> None:
    """One sentence instead of a silent end with its exit code."""

    def leaving(texts: Any) -> Any:
        raise SystemExit(code)

    with pytest.raises(EncoderError, match=f"ended the program, with exit code {code}"):
        Encoder(leaving, distance="l2")([1, 2], ["a", "b"])


def test_a_busy_encoder_is_no_error_of_the_items() -> None:
    """A refusal for now is passed on to whoever waits."""

    def busy(texts: Any) -> Any:
        raise EncoderBusyError("429", 3.0)

    with pytest.raises(EncoderBusyError):
        Encoder(busy, distance="l2")([1], ["a"])


def test_a_refusal_costs_one_call_and_not_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a backoff the refused call is made again, and the batch's other answers are kept."""
    monkeypatch.setattr("fastfill.migrate.encoding.AT_ONCE", 2)
    monkeypatch.setattr("fastfill.migrate.backoff.FIRST", 0.001)
    calls: list[int] = []
    events: list[str] = []

    def moody(texts: Any) -> Any:
        calls.append(len(texts))
        if len(calls) % 2 == 0:
            raise EncoderBusyError("429", 0.0)
        return lengths(texts)

    backoff = Backoff(threading.Event(), lambda event, _: events.append(event))
    encoder = Encoder(moody, distance="l2", dim=2, backoff=backoff)
    encoded = encoder(list(range(8)), ["a", "bb"] * 4)
    assert encoded.good.all()
    assert not encoded.errors
    assert len(calls) == 7
    assert events == ["throttled"] * 3


def test_an_encoder_that_stays_busy_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty refusals in a row are enough; an answer in between starts the count anew."""
    monkeypatch.setattr("fastfill.migrate.backoff.FIRST", 0.0)

    def busy(texts: Any) -> Any:
        raise EncoderBusyError("429", 0.0)

    encoder = Encoder(busy, distance="l2", backoff=Backoff(threading.Event(), ignore))
    with pytest.raises(EncoderError, match="busy 20 times in a row"):
        encoder([1], ["a"])


def test_an_encoder_that_always_fails_is_given_up() -> None:
    """Twenty failures in a row are the encoder's fault, not the items'."""

    def dead(texts: Any) -> Any:
        raise OSError("gone")

    with pytest.raises(EncoderError, match="20 times in a row"):
        Encoder(dead, distance="l2")(list(range(64)), ["a"] * 64)


def test_bad_items_in_a_row_are_no_fault_of_the_encoder() -> None:
    """When an item that could be embedded before still can, it is the items, however many."""

    def picky(texts: Any) -> Any:
        if "bad" in texts:
            raise ValueError("cannot read")
        return lengths(texts)

    encoder = Encoder(picky, distance="l2", dim=2, proven=lambda: "good")
    encoded = encoder(list(range(64)), ["bad"] * 64)
    assert len(encoded.errors) == 64
    with pytest.raises(EncoderError, match="20 times in a row"):
        Encoder(picky, distance="l2", dim=2, proven=lambda: "bad")(list(range(64)), ["bad"] * 64)


def test_inputs_are_paths_under_the_root(tmp_path: Path) -> None:
    """A path cannot leave the root, a missing input is named."""
    assert as_item("a/b.jpg", str(tmp_path)) == str(tmp_path / "a/b.jpg")
    with pytest.raises(InputError, match="outside"):
        as_item("../secret", str(tmp_path))
    with pytest.raises(InputError, match="outside"):
        as_item("/etc/passwd", str(tmp_path))
    with pytest.raises(InputError, match="no input"):
        as_item(None, None)
    assert as_item(b"bytes", None) == b"bytes"
