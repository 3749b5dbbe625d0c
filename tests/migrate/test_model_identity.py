"""What makes a model another one is noticed, and said; what changes no vector is not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from migration_world import encode, gallery_values

from fastfill.errors import MigrationError
from fastfill.gallery import Gallery, MemoryStore, State, load_state
from fastfill.migrate import Migration
from fastfill.migrate.identity import ModelIdentity, described
from fastfill.wiring import open_encoder

MODULE = """
from migration_world import encode

PROMPT = "query: "


def encode_query(texts):
    return encode([PROMPT + text for text in texts])
"""
Opened = Callable[..., Migration]


@pytest.fixture
def store() -> MemoryStore:
    """A gallery that no migration has seen."""
    return MemoryStore(gallery_values(90), distance="l2")


@pytest.fixture
def opened(store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Opens the migration by a module as it is written then, as another process would."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def by(module: str, **options: Any) -> Migration:
        (tmp_path / "model_of_a_user.py").write_text(module)
        sys.modules.pop("model_of_a_user", None)
        name = "model_of_a_user:encode"
        gallery = Gallery(store, input="text")
        return Migration(gallery, open_encoder(name), encoder_name=name, **options)

    return by


def before(state: State) -> State:
    """The state as a version wrote it that kept no settings."""
    plain = {k: v for k, v in json.loads(state.to_bytes()).items() if k != "settings"}
    return State.from_bytes(json.dumps({**plain, "version": 5}).encode())


@pytest.mark.parametrize(
    "changed",
    [
        MODULE.replace("query: ", "question: "),
        MODULE.replace("PROMPT + text", "text.lower()"),
        MODULE.replace("encode_query", "encode_queries"),
    ],
    ids=["its prompt", "without it", "gone"],
)
def test_another_function_for_queries_is_noticed(opened: Opened, changed: str) -> None:
    """A backfill and a verify with it are refused by what differs; a start takes it."""
    opened(MODULE).start(pairs=30, method="ridge")
    for verb in (lambda job: [*job.backfill(rows=5)], Migration.verify):
        with pytest.raises(MigrationError, match=r"encode_query was .*texts.* and is ") as refused:
            verb(opened(changed))
        assert str(refused.value).endswith("start with this --encoder to change the model.")
    heard: list[str] = []
    again = opened(changed, callback=lambda event, details: heard.append(details.get("reason", "")))
    again.start(pairs=30, method="ridge")
    assert any("another one now: encode_query was" in reason for reason in heard)
    assert [*again.backfill()][-1].fraction == 1


ITEMS = (
    MODULE.replace("import encode\n", "import encode as embed\n").replace(
        "encode([PROMPT", "embed([PROMPT"
    )
    + """
PASSAGE = "passage: "


def encode(texts):
    return embed([PASSAGE + text for text in texts])
"""
)


@pytest.mark.parametrize("beside", ["encode_query", "another"], ids=["with queries", "alone"])
@pytest.mark.parametrize(
    "changed",
    [
        ITEMS.replace("passage: ", "document: "),
        ITEMS.replace("PASSAGE + text", "text"),
        ITEMS.replace("PASSAGE + text", "PASSAGE + 'title: ' + text"),
    ],
    ids=["another", "none", "longer"],
)
def test_another_prompt_of_items_is_noticed(opened: Opened, changed: str, beside: str) -> None:
    """A backfill and a verify with it are refused by what differs; a start takes it."""
    module, changed = (text.replace("encode_query", beside) for text in (ITEMS, changed))
    opened(module).start(pairs=30, method="ridge")
    for verb in (lambda job: [*job.backfill(rows=5)], Migration.verify):
        with pytest.raises(
            MigrationError, match=r"\(encode was 'texts .*' and is '.*texts"
        ) as refused:
            verb(opened(changed))
        assert str(refused.value).endswith("start with this --encoder to change the model.")
    again = opened(changed)
    again.start(pairs=30, method="ridge")
    assert [*again.backfill()][-1].fraction == 1


def test_a_first_prompt_of_items_is_noticed(opened: Opened) -> None:
    """A function without any text has that for a setting."""
    plain = ITEMS.replace("PASSAGE + text", "text")
    opened(plain).start(pairs=30, method="ridge")
    with pytest.raises(MigrationError, match="encode was 'no texts' and is 'texts "):
        [*opened(ITEMS).backfill(rows=5)]


CONTACT = ITEMS.replace("    return embed([PASSAGE", "    CONTACT\n    return embed([PASSAGE")


def test_texts_that_change_no_vector_make_no_other_model(
    opened: Opened, store: MemoryStore
) -> None:
    """They are settled by rows that are embedded again, once for each edit, with one line."""
    by = {name: CONTACT + f'CONTACT = "{name}@example.org"\n' for name in ("ann", "bob", "eve")}
    heard: list[str] = []

    def hear(event: str, details: dict[str, Any]) -> None:
        if event in ("noted", "model"):
            heard.append(details["reason"])

    opened(by["ann"]).start(pairs=30, method="ridge")
    state = load_state(store)
    assert opened(by["bob"], callback=hear).verify(10).wrong_new == ()
    assert [*opened(by["bob"], callback=hear).backfill(rows=5)][-1].new == 35
    assert len(heard) == 2
    assert all("8 new rows that were embedded again are the same" in reason for reason in heard)
    assert [*opened(by["bob"], callback=hear).backfill(rows=5)][-1].new == 40
    assert len(heard) == 2
    opened(by["eve"], callback=hear).start()
    assert [*opened(by["eve"], callback=hear).backfill()][-1].fraction == 1
    opened(by["ann"], callback=hear).complete()
    assert len(heard) == 4
    after = load_state(store)
    assert after is not None
    assert state is not None
    assert (after.model, after.abandoned) == (state.model, ())


def test_texts_that_change_a_few_vectors_make_another_model(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt of some items is noticed, where most of the rows are as they were."""
    monkeypatch.setattr("fastfill.migrate.model_check.ROWS", 90)
    some = ITEMS.replace("PASSAGE + text", "('' if int(text[:5]) % 3 else PASSAGE) + text")
    changed = some.replace("passage: ", "document: ")
    opened(some).start(pairs=90, method="ridge")
    with pytest.raises(MigrationError, match=r"\(encode was 'texts .*' and is 'texts"):
        opened(changed).verify(10)


def test_texts_are_another_model_while_no_row_can_tell(opened: Opened, store: MemoryStore) -> None:
    """A start that was killed before it embedded anything goes on with the texts as they are."""
    begun = opened(ITEMS)
    begun.stop.set()
    begun.start(pairs=30, method="ridge")
    before = load_state(store)
    opened(ITEMS.replace("passage: ", "document: ")).start()
    after = load_state(store)
    assert before is not None
    assert after is not None
    assert after.abandoned == (before.model,)


def test_another_function_under_the_same_name_is_vouched_for(
    opened: Opened, store: MemoryStore
) -> None:
    """Who names an encoder otherwise than it is called says which model it is."""

    def mine(texts: Any) -> Any:
        return encode(["passage: " + text for text in texts])

    opened(ITEMS).start(pairs=30, method="ridge")
    job = Migration(Gallery(store, input="text"), mine, encoder_name="model_of_a_user:encode")
    with pytest.raises(MigrationError, match=r"\(encode_query was [^;]* and is not set\)"):
        [*job.backfill(rows=5)]
    mine.encode_query = open_encoder("model_of_a_user:encode").encode_query  # type: ignore[attr-defined]
    job = Migration(Gallery(store, input="text"), mine, encoder_name="model_of_a_user:encode")
    assert [*job.backfill(rows=5)][-1].new == 35


def test_a_prompt_that_is_bound_to_a_function_counts(opened: Opened) -> None:
    """Also where the name is that of a partial."""
    module = (
        "from functools import partial\nfrom test_model_identity import encode_with\n"
        "encode = partial(encode_with, prompt='passage: ')\n"
    )
    opened(module).start(pairs=30, method="ridge")
    with pytest.raises(MigrationError, match="encode was 'texts "):
        [*opened(module.replace("passage", "document")).backfill(rows=5)]
    assert [*opened(module).backfill(rows=5)][-1].new == 35


@pytest.mark.usefixtures("rows_done_alone")
def test_a_migration_that_did_not_look_into_functions_goes_on(
    opened: Opened, store: MemoryStore
) -> None:
    """A state without the texts of a function takes them as they are, keeps them and its model."""
    opened(ITEMS).start(pairs=30, method="ridge")

    def forget(state: State | None) -> State:
        assert state is not None
        assert state.settings is not None
        kept = {name: text for name, text in state.settings.items() if name != "encode"}
        assert [*kept] == ["encode_query"]
        return replace(state, settings=kept)

    state = State.change(store, forget)
    changed = ITEMS.replace("passage: ", "document: ")
    assert opened(changed).verify(10).progress.new == 30
    assert [*opened(changed).backfill(rows=5)][-1].new == 35
    after = load_state(store)
    assert after is not None
    assert (after.model, after.abandoned) == (state.model, ())
    with pytest.raises(MigrationError, match="encode was"):
        [*opened(ITEMS).backfill(rows=5)]


def test_other_code_or_a_key_changes_no_model(opened: Opened) -> None:
    """Code may be mended while a migration runs; a service's key is not the model."""
    looked = "    API_KEY, DEVICE\n    assert texts, 'one'\n    return"
    keyed = ITEMS.replace("    return", looked) + 'API_KEY = "one"\nDEVICE = "one"\n'
    opened(keyed).start(pairs=30, method="ridge")
    longer = '    """As its card says."""\n    texts = list(texts)\n    return'
    edited = keyed.replace("    return", longer).replace("one", "two")
    assert [*opened(edited).backfill()][-1].fraction == 1


def test_a_migration_of_a_version_before_goes_on(opened: Opened, store: MemoryStore) -> None:
    """Its state knows no settings: they are taken as they are, and kept from then on."""
    opened(MODULE).start(pairs=30, method="ridge")
    state = State.change(store, lambda state: before(state))  # type: ignore[arg-type]
    assert state.settings is None
    changed = opened(MODULE.replace("query: ", "question: "))
    assert [*changed.backfill(rows=5)][-1].new == 35
    after = load_state(store)
    assert after is not None
    assert (after.model, after.abandoned) == (state.model, ())
    with pytest.raises(MigrationError, match="encode_query was"):
        [*opened(MODULE).backfill(rows=5)]


def test_the_order_of_options_makes_no_model(store: MemoryStore) -> None:
    """`?a&b` and `?b&a` are one model, in states of versions before too; another value is not."""

    def migration(name: str) -> Migration:
        return Migration(Gallery(store, input="text"), encode, encoder_name=name)

    migration("m:f?dim=8&prompt=a").start(pairs=30, method="ridge")
    assert [*migration("m:f?prompt=a&batch=4&dim=8").backfill(rows=5)][-1].new == 35
    State.change(store, lambda state: before(state))  # type: ignore[arg-type]
    with pytest.raises(MigrationError, match="prompt was 'a' and is 'b'"):
        migration("m:f?prompt=b&dim=8").backfill(rows=5).__next__()
    with pytest.raises(MigrationError, match="the encoder was m:f and is m:g"):
        migration("m:g?prompt=a&dim=8").backfill(rows=5).__next__()
    assert [*migration("m:f?prompt=a&dim=8").backfill(rows=5)][-1].new == 40


def test_an_encoder_tells_its_own_settings() -> None:
    """`identity` stands for what embeds queries, and over what the name says."""

    class Told:
        identity: ClassVar = {"prompt": "passage: ", "pooling": "mean"}

        def encode_query(self, texts: Any) -> Any:
            return encode(texts)

        def __call__(self, texts: Any) -> Any:
            return encode(texts)

    settings = {"prompt": "passage: ", "pooling": "mean"}
    assert ModelIdentity.of("m:f?prompt=x", Told()).settings == settings
    state = before(replace_settings(settings))
    assert ModelIdentity.of("m:f", Told()).differences(state) == ()
    assert ModelIdentity.of("m:f", Told()).differences(replace_settings({"prompt": "a"})) == (
        "pooling was not set and is 'mean'",
        "prompt was 'a' and is 'passage: '",
    )


def replace_settings(settings: dict[str, str]) -> State:
    """The state of a started migration with these settings."""
    made = MemoryStore(gallery_values(40), distance="l2")
    migration = Migration(Gallery(made, input="text"), encode, encoder_name="m:f")
    migration.start(pairs=30, method="ridge")
    state = load_state(made)
    assert state is not None
    return replace(state, settings=settings)


def test_every_kind_of_function_is_described() -> None:
    """Methods, objects that can be called, partials and builtins; a partial by its texts too."""

    class Called:
        def __call__(self, texts: Any) -> Any:
            return texts

    assert described(Called()).endswith("Called.__call__")
    assert described(Called().__call__) == described(Called())
    one, other = (partial(encode_with, prompt=prompt) for prompt in ("a: ", "b: "))
    assert described(one) != described(other)
    assert described(partial(encode_with, key="1")) == described(partial(encode_with, key="2"))
    assert described(print) == "builtins:print"


def encode_with(texts: Any, prompt: str = "", key: str = "") -> Any:
    """An encoder with a prompt and a service's key."""
    return encode([prompt + text + key[:0] for text in texts])
