"""Encoders that are Python functions, and the functions for queries beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastfill.errors import EncoderError
from fastfill.gallery import Gallery, MemoryStore
from fastfill.gallery.queries import query_encoder
from fastfill.wiring import open_encoder

MODULE = """
def encode(items):
    return [[len(item), 0.0] for item in items]

def encode_query(items):
    return [[len(item), 1.0] for item in items]

def plain(items):
    return [[len(item), 2.0] for item in items]

class Model:
    def __call__(self, items):
        return [[len(item), 3.0] for item in items]

    def encode_query(self, items):
        return [[len(item), 4.0] for item in items]

model = Model()
number = 7
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models_of_a_user.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "item", "query"), [("encode", 0, 1), ("plain", 2, 2), ("model", 3, 4)]
)
def test_queries_are_embedded_by_the_function_for_them(name: str, item: int, query: int) -> None:
    """`encode_query` beside `encode`, or a method; a function that has neither does both."""
    encode = open_encoder(f"models_of_a_user:{name}")
    np.testing.assert_array_equal(encode(["abc"]), [[3, item]])
    np.testing.assert_array_equal(query_encoder(encode)(["abc"]), [[3, query]])


def test_a_gallery_is_searched_by_queries_as_queries() -> None:
    """`Gallery.search` of an item uses the side of the encoder for queries."""
    rows = {"id": [0, 1], "text": ["a", "b"], "vector": [[3.0, 0.0], [3.0, 1.0]]}
    encode = open_encoder("models_of_a_user:encode")
    gallery = Gallery(MemoryStore(rows, distance="l2"), input="text", query_old=encode)
    assert list(gallery.search("abc", k=1).ids) == [1]


def test_what_is_no_function_is_named() -> None:
    """A missing name and a value are refused in a sentence."""
    with pytest.raises(EncoderError, match="has no function 'nothing'"):
        open_encoder("models_of_a_user:nothing")
    with pytest.raises(EncoderError, match="'number' is not a function"):
        open_encoder("models_of_a_user:number")
