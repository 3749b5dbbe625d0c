"""What a model's card says about prompts and dimensions is done, as the library itself does it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import WORDS, library_model, save_tiny_model

from fastfill.adapters.encoders.sentence_transformers import SentenceTransformersEncoder
from fastfill.errors import EncoderError
from fastfill.gallery import Gallery, MemoryStore
from fastfill.migrate import Migration

pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
# The library and those that it stands on warn of their own future at import.
pytestmark = pytest.mark.filterwarnings("ignore")
ITEMS, QUERIES = ["red bicycle", "green house", "blue"], ["green bicycle", "red"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model of unit lengths whose card has prompts."""
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def opened(folder: str, options: str = "") -> Any:
    """The model by its name in FastFill."""
    from fastfill.wiring import open_encoder

    return open_encoder(f"sentence-transformers:{folder}{options}")


def test_items_and_queries_have_their_prompts(folder: str) -> None:
    """Items are embedded as passages and queries as queries, as the library does it."""
    model, encode = library_model(folder), opened(folder)
    np.testing.assert_allclose(encode(ITEMS), model.encode(ITEMS, prompt="passage: "), rtol=1e-6)
    np.testing.assert_allclose(
        encode.encode_query(QUERIES), model.encode(QUERIES, prompt="query: "), rtol=1e-6
    )
    assert np.abs(encode(QUERIES) - encode.encode_query(QUERIES)).max() > 0.01


def test_prompts_can_be_given(folder: str) -> None:
    """A prompt in the name takes the place of the model's own; an empty one is none."""
    model = library_model(folder)
    encode = opened(folder, "?prompt=other:%20&query_prompt=&device=cpu&batch=2")
    np.testing.assert_allclose(encode(ITEMS), model.encode(ITEMS, prompt="other: "), rtol=1e-6)
    np.testing.assert_allclose(
        encode.encode_query(QUERIES), model.encode(QUERIES, prompt=""), rtol=1e-6
    )


def test_the_first_dimensions_are_normalised_again(folder: str) -> None:
    """`dim` keeps the first numbers; a model of unit lengths stays one."""
    vectors = opened(folder, "?dim=4")(ITEMS)
    whole = library_model(folder).encode(ITEMS, prompt="passage: ")[:, :4]
    expected = whole / np.linalg.norm(whole, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, rtol=1e-5)


class Before:
    """A model as the library had it before its version 5."""

    def __init__(self, model: Any) -> None:
        self.encode, self.prompts = model.encode, model.prompts
        self.default_prompt_name = model.default_prompt_name


def test_a_library_without_sides_is_given_the_prompts_by_name(folder: str) -> None:
    """Before its version 5 the library had `encode` alone: the prompts are looked up for it."""
    encode = SentenceTransformersEncoder(Before(library_model(folder)), "tiny", {})
    now = opened(folder)
    np.testing.assert_allclose(encode(ITEMS), now(ITEMS), rtol=1e-6)
    np.testing.assert_allclose(encode.encode_query(ITEMS), now.encode_query(ITEMS), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("?promt=x", "Unknown option 'promt': did you mean 'prompt'"),
        ("?dim=few", "dim is a whole number from 1 on, not 'few'"),
        ("?device=abacus", "cannot be loaded"),
    ],
)
def test_a_wrong_option_is_named(folder: str, options: str, words: str) -> None:
    """One sentence with the option at fault, before any work."""
    with pytest.raises(EncoderError, match=words):
        opened(folder, options)


def gallery() -> Any:
    """Texts of two words with old vectors, in memory."""
    from fastfill.gallery import MemoryStore

    texts = [f"{a} {b}" for a in WORDS for b in WORDS]
    old = np.random.default_rng(0).standard_normal((len(texts), 6)).astype(np.float32)
    values = {"id": [*range(len(texts))], "text": texts, "vector": old.tolist()}
    return MemoryStore(values, distance="cosine")


def migrated(store: Any, folder: str, options: str) -> Any:
    """The migration of a gallery to the model with these options."""
    from fastfill.gallery import Gallery
    from fastfill.migrate import Migration

    name = f"sentence-transformers:{folder}{options}"
    return Migration(Gallery(store, input="text"), opened(folder, options), encoder_name=name)


def test_another_prompt_is_another_model(folder: str) -> None:
    """A migration that was begun with one prompt notices another one, but not another batch."""
    store = gallery()

    def started(options: str) -> Any:
        migration = migrated(store, folder, options)
        migration.start(pairs=30, method="ridge")
        return migration.status().state

    first = started("")
    assert started("?batch=8&device=cpu").model == first.model
    other = started("?prompt=other:%20")
    assert other.model != first.model
    assert other.abandoned == (first.model,)
    assert other.encoder.endswith("?prompt=other:%20")


def configured(folder: str, path: Path, **changes: Any) -> str:
    """The model with something else in its own configuration."""
    shutil.copytree(folder, path)
    card = path / "config_sentence_transformers.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), **changes}))
    return str(path)


def test_a_default_prompt_is_told_where_it_is_put_before_items(folder: str, tmp_path: Path) -> None:
    """The library's own sides pass it over, the library before them did not."""
    both = {"prompts": {"other": "other: ", "query": "query: "}, "default_prompt_name": "other"}
    model = configured(folder, tmp_path / "default", **both)
    itself = library_model(model)
    for encode, expected in (
        (opened(model), itself.encode_document(ITEMS)),
        (SentenceTransformersEncoder(Before(itself), "tiny", {}), itself.encode(ITEMS)),
    ):
        np.testing.assert_allclose(encode(ITEMS), expected, rtol=1e-6)
        told = encode.identity["prompt"]
        np.testing.assert_allclose(itself.encode(ITEMS, prompt=told), expected, rtol=1e-6)
    assert told == "other: "


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": {"query": "query: ", "passage": "other: "}},
         "(prompt was 'passage: ' and is 'other: ')"),
        ({"prompts": {"query": "", "passage": "passage: "}},
         "(query_prompt was 'query: ' and is '')"),
    ],
)  # fmt: skip
def test_a_changed_configuration_of_the_model_is_noticed(
    folder: str, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    """The prompts of a model's own configuration are part of what it is, under the same name."""
    from fastfill.errors import MigrationError

    model = configured(folder, tmp_path / "own")
    store = gallery()
    migrated(store, model, "").start(pairs=30, method="ridge")
    assert [*migrated(store, model, "?batch=4").backfill(rows=5)][-1].new == 35
    shutil.rmtree(model)
    configured(folder, Path(model), **changes)
    with pytest.raises(MigrationError) as refused:
        [*migrated(store, model, "").backfill(rows=5)]
    assert words in str(refused.value)
    given = "?query_prompt=query:%20&prompt=passage:%20"  # the same vectors as before
    assert [*migrated(store, model, given).backfill(rows=5)][-1].new == 40


def ask_for_code(folder: str, target: Path, place: str) -> str:
    """A copy of the model that asks for code of its own, which must never run."""
    shutil.copytree(folder, target)
    (target / "theirs.py").write_text("raise SystemExit('the model has run its own code')\n")
    if place == "modules.json":
        modules = json.loads((target / place).read_text())
        modules[0]["type"] = "theirs.Embedding"
        (target / place).write_text(json.dumps(modules))
    else:
        (target / "modules.json").unlink()
        auto_map = {"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model"}
        (target / place).write_text(json.dumps({"model_type": "theirs", "auto_map": auto_map}))
    return str(target)


@pytest.mark.parametrize("place", ["config.json", "modules.json"])
def test_a_model_with_code_of_its_own_is_refused(folder: str, tmp_path: Path, place: str) -> None:
    """Its code is not run, and one sentence says what can be done."""
    with pytest.raises(EncoderError) as refused:
        opened(ask_for_code(folder, tmp_path / "theirs", place))
    assert "brings code of its own (trust_remote_code)" in str(refused.value)
    assert str(refused.value).endswith(
        "load it in a function of yours and give that, for example my_module:encode."
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "puts 'passage: ' before items and 'query: ' before queries"),
        ("?prompt=", "puts nothing before items and 'query: ' before queries"),
        ("?prompt=&query_prompt=", "puts no prompt before items or queries; if the model's card"),
    ],
)
def test_a_plan_says_what_is_put_before_texts(folder: str, options: str, said: str) -> None:
    """Also where nothing is, since a card may ask for what the configuration does not have."""
    rows = {"id": range(40), "text": ITEMS * 13 + ["red"], "vector": np.eye(40, 4, dtype="f4") + 1}
    gallery = Gallery(MemoryStore(rows, distance="l2"), input="text")
    migration = Migration(gallery, opened(folder, options), encoder_name="tiny")
    assert migration.prompts.startswith(said)
    assert f"\nthe encoder {said}" in str(migration.plan())
