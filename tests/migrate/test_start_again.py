"""A start that was killed goes on as it was asked, by the URL alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from migration_world import encode, gallery_values
from serving_worlds import ITEMS, World

from fastfill.align import Alignment
from fastfill.errors import InputError, MigrationError
from fastfill.features import Features, Pairs
from fastfill.gallery import Gallery, MemoryStore
from fastfill.migrate import Migration
from fastfill.migrate.ledger.start_request import StartRequest

ASKED: dict[str, Any] = {"pairs": 100, "method": "ridge", "policy": "sigma"}


class KilledError(BaseException):
    """What no part of the work hears of."""


@pytest.fixture
def world() -> World:
    """Each query has one right answer."""
    return World("documents")


def killed(world: World, at: int, **options: Any) -> Gallery:
    """The gallery after a start that was killed when the new model was given text number `at`."""
    seen, gallery = 0, world.gallery()

    def encode(texts: Any) -> Any:
        nonlocal seen
        seen += len(texts)
        if seen > at:
            raise KilledError
        return world.encode(texts)

    with pytest.raises(KilledError):
        Migration(gallery, encode, encoder_name="new").start(**{**ASKED, **options})
    return gallery


def gone_on(world: World, gallery: Gallery, **options: Any) -> tuple[Migration, list[str]]:
    """The start that goes on, and what it says is missing."""
    said = []

    def hear(event: str, details: dict[str, Any]) -> None:
        if event == "missing":
            said.append(details["reason"])

    again = Gallery(gallery.store)
    migration = Migration(again, world.encode, encoder_name="new", callback=hear)
    migration.start(**options)
    return migration, said


def test_pairs_and_method_are_those_of_the_first_start(world: World) -> None:
    """Not the default of 2,000 pairs, which would be every row here."""
    migration, said = gone_on(world, killed(world, at=60))
    status = migration.status()
    assert status.state is not None
    assert status.state.learning is not None
    assert (status.progress.new, status.state.policy) == (100, "sigma")
    assert (status.state.learning.method, said) == ("ridge", [])
    assert StartRequest.load(migration._job.store) is None


def test_what_is_given_goes_before_what_was_asked(world: World) -> None:
    """Also where it is the default."""
    migration, _ = gone_on(world, killed(world, at=60), pairs=50, method="auto")
    state = migration.status().state
    assert state is not None
    assert state.learning is not None
    assert (migration.status().progress.new, state.learning.method) == (50, "auto")


@pytest.mark.parametrize(
    ("options", "serving", "label"),
    [({"serving": "old"}, "old", None), ({"label": "topic"}, None, "topic")],
)
def test_serving_and_label_are_those_of_the_first_start(
    world: World, options: dict[str, Any], serving: str | None, label: str | None
) -> None:
    """What the first start was told chooses at the end of the second."""
    migration, _ = gone_on(world, killed(world, at=60, **options))
    choice = migration.status().choices[-1]
    assert choice.label == label
    assert (choice.evidence is None) is (serving is not None)
    assert serving is None or choice.serving == serving


def test_queries_that_were_embedded_are_kept(world: World) -> None:
    """A start that is killed while pairs are embedded measures on the queries when it goes on."""
    queries = world.query_set(texts=True)
    gallery = killed(world, at=100, queries=queries, encode_old=world.encode_old)
    looked = Migration(gallery, None).status()
    assert looked.again == ()
    migration, said = gone_on(world, gallery)
    evidence = migration.status().choices[-1].evidence
    assert evidence is not None
    assert (evidence.metric, said) == ("ndcg@10", [])


def test_queries_that_were_not_kept_are_asked_for(world: World) -> None:
    """Killed while queries are embedded: status names the options, a start without them says so."""
    queries = world.query_set(texts=True)
    gallery = killed(world, at=50, queries=queries, encode_old=world.encode_old)
    wanted = ("--queries FILE", "--judgements FILE", "--old-encoder NAME")
    assert Migration(gallery, None).status().again == wanted
    migration, said = gone_on(world, gallery)
    assert len(said) == 1
    assert "--queries FILE --judgements FILE --old-encoder NAME" in said[0]
    assert migration.status().again == ()
    assert migration.status().progress.new == 100


def test_queries_that_are_given_again_are_measured_on(world: World) -> None:
    """Nothing is missing then, and pairs are as many as the first start was asked for."""
    queries = world.query_set(texts=True)
    gallery = killed(world, at=50, queries=queries, encode_old=world.encode_old)
    again = {"queries": queries, "encode_old": world.encode_old}
    migration, said = gone_on(world, gallery, **again)
    evidence = migration.status().choices[-1].evidence
    assert evidence is not None
    assert (evidence.metric, said, migration.status().progress.new) == ("ndcg@10", [], 100)


def test_another_model_begins_anew(world: World) -> None:
    """What was asked for the model before is not asked of the next one."""
    gallery = killed(world, at=60)
    migration = Migration(Gallery(gallery.store), world.encode, encoder_name="another")
    migration.start(method="ridge")
    assert migration.status().progress.new == ITEMS


def test_a_rollback_forgets_what_was_asked(world: World) -> None:
    """A start after it begins with the defaults."""
    gallery = killed(world, at=60)
    migration = Migration(Gallery(gallery.store), world.encode, encoder_name="new")
    migration.rollback()
    assert StartRequest.NAME not in gallery.store.names("")


def test_a_state_of_an_earlier_version_goes_on_by_the_defaults(world: World) -> None:
    """Nothing was kept then, so that what is not given is the default."""
    gallery = killed(world, at=60)
    gallery.store.remove([StartRequest.NAME])
    migration, said = gone_on(world, gallery, method="ridge")
    assert (migration.status().progress.new, said) == (ITEMS, [])


def test_too_few_pairs_are_refused_first(world: World) -> None:
    """Nothing is embedded and nothing written; where there are enough already, they are used."""
    gallery = world.gallery()
    migration = Migration(gallery, world.encode, encoder_name="new")
    with pytest.raises(InputError, match="2 pairs are too few to learn from: give at least 20"):
        migration.start(pairs=2)
    assert gallery.store.names("") == []
    migration.pairs(60)
    migration.start(pairs=2, method="ridge")
    assert migration.status().progress.new == 60


def test_a_start_that_another_has_overtaken_says_so(world: World) -> None:
    """It neither ends well nor ends the other one's start, which goes on to its own end."""
    gallery = world.gallery()
    seen = 0

    def overtaken(texts: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == 2:  # the pairs, after the dimensions
            with pytest.raises(KilledError):
                Migration(Gallery(gallery.store, input="text"), dying, encoder_name="other").start()
        return world.encode(texts)

    def dying(texts: Any) -> Any:
        if len(texts) > 8:
            raise KilledError
        return world.encode(texts)

    first = Migration(gallery, overtaken, encoder_name="first")
    with pytest.raises(MigrationError, match="changed the model to other meanwhile, so this one"):
        first.start(**ASKED)
    status = first.status()
    assert status.state is not None
    assert (status.phase, status.state.encoder) == ("starting", "other")


def test_a_start_that_another_has_forestalled_says_so(world: World) -> None:
    """Both find no migration; the later one embeds nothing by its model under the other's name."""
    gallery = world.gallery()
    embedded: list[int] = []

    def late(texts: Any) -> Any:
        if not embedded:  # the dimensions, before the migration is opened
            other = Gallery(gallery.store, input="text")
            Migration(other, world.encode, encoder_name="first").start(60, method="ridge")
        embedded.append(len(texts))
        return -world.encode(texts)

    with pytest.raises(MigrationError, match="at the model first, and this is another one"):
        Migration(gallery, late, encoder_name="late").start(**ASKED)
    assert sum(embedded) == 8
    first = Migration(Gallery(gallery.store, input="text"), world.encode, encoder_name="first")
    assert first.status().phase == "started"
    assert first.verify().good


def test_a_start_that_a_wider_model_has_overtaken_says_so(world: World) -> None:
    """Vectors that fit no more are not the reason that is told."""
    gallery = world.gallery()
    seen = 0

    def overtaken(texts: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == 2:  # the pairs, after the dimensions
            other = Gallery(gallery.store, input="text")
            Migration(other, wide, encoder_name="wide").start(60, method="ridge")
        return world.encode(texts)

    def wide(texts: Any) -> Any:
        return np.concatenate([world.encode(texts)] * 2, axis=1)

    with pytest.raises(MigrationError, match="changed the model to wide meanwhile"):
        Migration(gallery, overtaken, encoder_name="first").start(**ASKED)


@pytest.mark.parametrize(
    ("rows", "words"), [(0, "has no rows: there is nothing to migrate"), (8, "has 8 rows, too few")]
)
def test_a_gallery_without_enough_rows_is_refused_first(rows: int, words: str) -> None:
    """One sentence says how many there are, and nothing is embedded or written."""
    values = gallery_values(8)
    store = MemoryStore(values, distance="l2")
    store.delete(values["id"][rows:])
    with pytest.raises(MigrationError, match=words):
        Migration(Gallery(store, input="text"), encode).start()
    assert store.names("") == []
    assert store.describe().new_dim is None


def test_a_map_from_a_file_needs_no_pairs(world: World) -> None:
    """The least number of pairs is for those that learn."""
    pairs = Pairs(Features(world.old), Features(world.new))
    migration = Migration(world.gallery(), world.encode, encoder_name="new")
    migration.start(pairs=2, alignment=Alignment.fit(pairs, method="ridge", distance="cosine"))
    assert migration.status().phase == "started"
    assert np.isfinite(migration.status().progress.fraction)
