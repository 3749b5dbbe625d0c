"""An old encoder is believed only if it makes the gallery's old vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from serving_worlds import ITEMS, World
from test_made_queries import bag_of_words, documents, encode_new, encode_old

from fastfill.errors import MigrationError
from fastfill.features import Matrix
from fastfill.gallery import Gallery, MemoryStore
from fastfill.migrate import Migration


def other_model(texts: Any) -> Matrix:
    """As many dimensions, and other vectors."""
    return bag_of_words(texts, 12, 99)


def common_direction(texts: Any) -> Matrix:
    """Another model whose vectors all point the same way, as do those of many models."""
    return other_model(texts) + 40


def migration(values: dict[str, Any]) -> Migration:
    """Of documents, before its start."""
    gallery = Gallery(MemoryStore(values), input="text", distance="cosine")
    return Migration(gallery, encode_new, encoder_name="new")


@pytest.mark.parametrize("wrong", [other_model, common_direction])
def test_another_model_is_refused(wrong: Any) -> None:
    """What it would measure is of no use; nothing has been written by then."""
    begun = migration(documents(sentences=3))
    with pytest.raises(
        MigrationError, match=rf"{wrong.__name__}.*only \d+ are near.*cosine"
    ) as refused:
        begun.start(30, method="ridge", encode_old=wrong)
    assert "--old-encoder" in str(refused.value)
    assert begun._job.store.names("") == []


def test_queries_as_texts_are_not_embedded_by_another_model() -> None:
    """The same where queries are given."""
    world = World("documents")
    begun = Migration(world.gallery(), world.encode, encoder_name="new")
    turned = np.random.default_rng(3).permutation(ITEMS)

    def wrong(texts: Any) -> Matrix:
        items = [f"item {turned[int(text.split()[1])]}" for text in texts]
        return world.encode_old(items)

    with pytest.raises(MigrationError, match="is not the model of the old vectors"):
        begun.start(60, queries=world.query_set(texts=True), encode_old=wrong)


@pytest.mark.parametrize(
    "look",
    [
        lambda texts: encode_old([f"query: search for {text}" for text in texts]),
        lambda texts: encode_old(texts) + np.float32(30),
        lambda texts: encode_old([text.split(".")[0] for text in texts]),
    ],
    ids=["prompt", "offset", "first sentence"],
)
def test_another_prompt_is_no_other_model(look: Any) -> None:
    """The side of a model that embeds queries is near enough to its items."""
    begun = migration(documents(sentences=3))
    begun.start(30, method="ridge", encode_old=look)
    assert "first sentences" in str(begun.status().serving)


@pytest.mark.parametrize("texts", [0, 7])
def test_items_that_are_no_texts_are_not_asked(texts: int) -> None:
    """A model of queries cannot read paths, and of seven texts chance would decide."""
    values = documents(sentences=3)
    inputs = [
        text if number < texts else f"photos/{number}.jpg"
        for number, text in enumerate(values["text"])
    ]
    text_of = dict(zip(inputs, values["text"], strict=True))
    gallery = Gallery(MemoryStore({**values, "text": inputs}), input="text", distance="cosine")
    begun = Migration(gallery, lambda items: encode_new([text_of[each] for each in items]))
    begun.start(30, method="ridge", encode_old=other_model)
    assert begun.status().phase == "started"
