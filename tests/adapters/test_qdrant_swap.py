"""Cut-over under the same name on Qdrant: an alias that is switched to a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from qdrant_world import models
from test_qdrant_migration import OLD, encode, old

from fastfill.adapters.qdrant.bulk import BulkRequests
from fastfill.adapters.qdrant.connection import QdrantConnection
from fastfill.errors import MigrationError, StoreError
from fastfill.gallery import Gallery
from fastfill.migrate import Migration
from fastfill.wiring import connect, open_store

pytest.importorskip("qdrant_edge", reason="qdrant-edge-py is not installed")
ROWS = 60
MIX = np.random.default_rng(9).standard_normal((OLD, 4)).astype(np.float32)


class KilledError(Exception):
    """Stands for the end of the process."""


def encode_later(texts: Any) -> Any:
    """The model after it."""
    return np.tanh(np.array([old(int(t.split()[1])) for t in texts], dtype=np.float32) @ MIX)


@pytest.fixture
def server(qdrant_server: str) -> str:
    """HOST:PORT."""
    return qdrant_server


@pytest.fixture
def owner(qdrant_owner: Any) -> Any:
    """The owner's client on an empty server."""
    return qdrant_owner


@pytest.fixture(params=["", "image"], ids=["unnamed", "named"])
def vector(request: pytest.FixtureRequest) -> str:
    """What the owner's vector is called."""
    return str(request.param)


def point(number: int, vector: str, value: list[float]) -> Any:
    """One of the owner's points; where vectors have names, it has another one."""
    more = {"title": [float(number), 1.0]} if vector else {}
    payload = {"text": f"text {number}", "album": number % 3}
    return models.PointStruct(id=number, vector={vector: value, **more}, payload=payload)


@pytest.fixture
def url(server: str, owner: Any, vector: str) -> str:
    """The owner's collection behind an alias."""
    params = models.VectorParams(size=OLD, distance=models.Distance.COSINE)
    title = models.VectorParams(size=2, distance=models.Distance.EUCLID)
    owner.create_collection("photos_1", {vector: params, "title": title} if vector else params)
    owner.create_payload_index("photos_1", "album", models.PayloadSchemaType.INTEGER)
    owner.upsert("photos_1", [point(n, vector, old(n)) for n in range(ROWS)])
    alias = models.CreateAlias(collection_name="photos_1", alias_name="photos")
    owner.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    return f"qdrant://{server}#photos{'.' * bool(vector)}{vector}"


@pytest.fixture
def migration(url: str) -> Migration:
    """A migration whose rows are all new."""
    opened = Migration(connect(url, input="text"), encode)
    opened.start(pairs=40, method="ridge", serving="aligned")
    assert [*opened.backfill(throttle=False, refit=None)][-1].fraction == 1
    return opened


def nearest(owner: Any, vector: str, value: Any) -> int:
    """What an application asks that knows the alias and its vector alone."""
    answer = owner.query_points("photos", query=list(map(float, value)), using=vector or None)
    return int(answer.points[0].id)


def collections(owner: Any) -> set[str]:
    """Those of the owner, and copies of it."""
    names = {each.name for each in owner.get_collections().collections}
    return {name for name in names if not name.endswith("__fastfill")}


def test_the_alias_stands_for_a_copy(
    migration: Migration, owner: Any, url: str, vector: str
) -> None:
    """The application's query needs the new model and nothing else; it can be taken back."""
    reader = connect(url)
    kinds = ["payload", "vector"]
    before = [p.model_dump(include=kinds) for p in owner.retrieve("photos_1", [*range(ROWS)])]
    migration.complete(swap=True)
    assert nearest(owner, vector, encode(["text 6"])[0]) == 6
    assert reader.search(encode(["text 8"])[0], k=1).ids.tolist() == [8]
    assert migration.status().progress.new == ROWS
    copied = owner.retrieve("photos", [7], with_payload=True, with_vectors=True)[0]
    assert copied.payload == {"text": "text 7", "album": 1}
    assert not vector or copied.vector["title"] == [7.0, 1.0]
    assert list(owner.get_collection("photos").payload_schema) == ["album"]
    migration.swap_back()
    assert nearest(owner, vector, old(6)) == 6
    assert collections(owner) == {"photos_1"}
    after = [p.model_dump(include=kinds) for p in owner.retrieve("photos", [*range(ROWS)])]
    assert after == before
    migration.complete(swap=True, drop_old=True)
    assert len(collections(owner)) == 1
    assert "photos_1" not in collections(owner)
    assert nearest(owner, vector, encode(["text 6"])[0]) == 6
    with pytest.raises(MigrationError, match="no way back"):
        migration.swap_back()


def test_a_collection_by_its_own_name_is_refused(
    migration: Migration, owner: Any, url: str
) -> None:
    """Nothing can be switched there: the sentence names the way out, and nothing is changed."""
    by_name = Migration(connect(url.replace("#photos", "#photos_1")), encode)
    with pytest.raises(StoreError, match="'photos_1' is the collection itself"):
        by_name.complete(swap=True)
    assert collections(owner) == {"photos_1"}
    migration.complete(swap=True)


def test_a_name_that_is_taken(migration: Migration, owner: Any, vector: str) -> None:
    """A collection that bears the name of the copy is left alone."""
    taken = f"photos_1__{vector or 'vector'}__1"
    params = models.VectorParams(size=3, distance=models.Distance.DOT)
    owner.create_collection(taken, params)
    with pytest.raises(StoreError, match=f"already a collection '{taken}'"):
        migration.complete(swap=True)
    assert collections(owner) == {"photos_1", taken}


def test_rows_written_before_the_swap(migration: Migration, owner: Any, vector: str) -> None:
    """A row without a new vector is in the way, and nothing is switched."""
    migration.complete()
    owner.upsert("photos", [point(99, vector, old(99))])
    with pytest.raises(MigrationError, match="1 rows have been written"):
        migration.complete(swap=True)
    assert collections(owner) == {"photos_1"}
    assert nearest(owner, vector, old(99)) == 99


def _once(
    monkeypatch: pytest.MonkeyPatch, method: str, act: Callable[[], None], *, after: bool = False
) -> None:
    """Do something once, just before or just after the first call of a method on points or aliases.

    Calls on the collections that FastFill keeps for itself do not count.
    """
    ask, done = QdrantConnection.ask, list[str]()

    def asked(self: Any, called: str, **options: Any) -> Any:
        own = str(options.get("collection_name", "")).endswith("__fastfill")
        now = called == method and not own and not done
        if now:
            done.append(called)
        if now and not after:
            act()
        answer = ask(self, called, **options)
        if now and after:
            act()
        return answer

    monkeypatch.setattr(QdrantConnection, "ask", asked)


SWITCH = "update_collection_aliases"


def late(migration: Migration) -> list[list[Any]]:
    """The ids that the latest swap has named, as in the audit trail."""
    named = [list(each.ids) for each in migration.late_writes()]
    swaps = [event for event in migration.history() if event["event"].startswith("swapped")]
    assert [entry["ids"] for entry in swaps[-1].get("late", [])] == named
    return named


def test_writes_between_copy_and_switch(
    migration: Migration, owner: Any, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of payloads are carried over after the switch; a deletion is named alone."""

    def write() -> None:
        owner.set_payload("photos", {"album": 12, "more": "x"}, points=[7])
        owner.delete_payload("photos", ["album"], points=[5])
        owner.delete("photos", [8])

    migration.complete()
    _once(monkeypatch, SWITCH, write)
    migration.complete(swap=True)
    assert owner.retrieve("photos", [7])[0].payload == {"text": "text 7", "album": 12, "more": "x"}
    assert owner.retrieve("photos", [5])[0].payload == {"text": "text 5"}
    assert nearest(owner, vector, encode(["text 8"])[0]) == 8
    assert late(migration) == [[8]]
    assert "deleted from 'photos_1'" in str(migration.late_writes()[0])


def test_a_row_written_between_copy_and_switch(
    migration: Migration, owner: Any, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there without a vector, and named; the way back and a backfill give it one."""
    migration.complete()
    written = point(99, vector, old(99))
    _once(monkeypatch, SWITCH, lambda: owner.upsert("photos", [written]))
    migration.complete(swap=True, drop_old=True)
    assert late(migration) == [[99]]
    found = owner.retrieve("photos", [99], with_vectors=True)[0]
    assert found.payload["text"] == "text 99"
    assert vector not in (found.vector or {})
    assert "photos_1" in collections(owner), "the old vectors stay until somebody has looked"
    migration.swap_back()
    assert nearest(owner, vector, old(99)) == 99
    with pytest.raises(MigrationError, match="1 rows have been written"):
        migration.complete(swap=True)
    assert [*migration.backfill(throttle=False)][-1].fraction == 1
    migration.complete(swap=True)
    assert nearest(owner, vector, encode(["text 99"])[0]) == 99
    assert late(migration) == []


def test_a_text_changed_between_copy_and_switch(
    migration: Migration, owner: Any, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is carried over, its row named; a swap back leaves the late write as it was."""
    migration.complete()
    change = {"text": "text 70"}
    _once(monkeypatch, SWITCH, lambda: owner.set_payload("photos", change, points=[7]))
    migration.complete(swap=True)
    assert late(migration) == [[7]]
    assert owner.retrieve("photos", [7])[0].payload == {"text": "text 70", "album": 1}
    owner.set_payload("photos", {"album": 5}, points=[7])
    migration.swap_back()
    assert owner.retrieve("photos", [7])[0].payload == {"text": "text 70", "album": 5}


def test_deleted_late_and_inserted_again(
    migration: Migration, owner: Any, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A point that the application has inserted again stays, with the vector it was given."""
    again = point(8, vector, encode(["text 30"])[0].tolist())

    def insert() -> None:
        owner.delete("photos_1", [8])
        owner.upsert("photos", [again])

    migration.complete()
    _once(monkeypatch, SWITCH, insert, after=True)
    migration.complete(swap=True)
    assert sorted(_ids(owner, vector, encode(["text 30"])[0])) == [8, 30]
    assert late(migration) == [[8]]


def _ids(owner: Any, vector: str, value: Any) -> list[int]:
    query = list(map(float, value))
    answer = owner.query_points("photos", query=query, using=vector or None, limit=2)
    return [int(hit.id) for hit in answer.points]


def test_what_the_application_has_written_to_the_copy_stays(
    migration: Migration, owner: Any, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late change of the same point is named, and not carried over."""
    mine = point(7, vector, encode(["text 40"])[0].tolist())
    mine.payload = {"text": "text 40"}

    def write() -> None:
        owner.set_payload("photos_1", {"album": 12}, points=[7, 9])
        owner.upsert("photos_1", [point(77, vector, old(77))])
        owner.upsert("photos", [mine, point(77, vector, encode(["text 41"])[0].tolist())])
        owner.delete("photos", [9])

    migration.complete()
    _once(monkeypatch, SWITCH, write, after=True)
    migration.complete(swap=True)
    assert owner.retrieve("photos", [7])[0].payload == {"text": "text 40"}
    assert sorted(_ids(owner, vector, encode(["text 40"])[0])) == [7, 40]
    assert sorted(_ids(owner, vector, encode(["text 41"])[0])) == [41, 77]
    assert owner.retrieve("photos", [9]) == []
    assert late(migration) == [[77], [7, 9]]


@pytest.mark.parametrize(
    ("mine", "after", "named"),
    [
        ({"album": 33}, {"text": "text 7", "album": 33}, [[7]]),
        ({"more": 1}, {"text": "text 7", "album": 12, "more": 1}, []),
    ],
)
def test_a_write_between_the_look_and_its_change(
    migration: Migration,
    owner: Any,
    monkeypatch: pytest.MonkeyPatch,
    mine: dict[str, Any],
    after: dict[str, Any],
    named: list[list[int]],
) -> None:
    """The condition is Qdrant's own: what the application sets a moment before is not lost."""
    migration.complete()
    owner.set_payload("photos_1", {"album": 1}, points=[7])

    def set_both() -> None:
        _once(monkeypatch, "set_payload", lambda: owner.set_payload("photos", mine, points=[7]))
        owner.set_payload("photos_1", {"album": 12}, points=[7])

    _once(monkeypatch, SWITCH, set_both)
    migration.complete(swap=True)
    assert owner.retrieve("photos", [7])[0].payload == after
    assert late(migration) == named


def test_what_no_condition_can_say(
    migration: Migration, owner: Any, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late changes of lists, of odd keys and of other vectors are named alone."""
    migration.complete()
    owner.set_payload("photos_1", {"tags": ["a"], "odd.key": 1}, points=[3, 4, 5])

    def write() -> None:
        owner.set_payload("photos_1", {"tags": ["b"]}, points=[3])
        owner.set_payload("photos_1", {"odd.key": 2}, points=[4])
        if vector:
            changed = models.PointVectors(id=5, vector={"title": [3.0, 3.0]})
            owner.update_vectors("photos_1", [changed])

    _once(monkeypatch, SWITCH, write)
    migration.complete(swap=True)
    assert late(migration) == [[3, 4, 5] if vector else [3, 4]]
    assert owner.retrieve("photos", [3])[0].payload["tags"] == ["a"]


def test_writers_that_never_rest(
    migration: Migration, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is switched, and nothing is left over."""
    migration.complete()
    scroll, turn = BulkRequests.scroll, iter(range(1_000))

    def scrolled(*arguments: Any, **options: Any) -> Any:
        owner.set_payload("photos_1", {"album": next(turn)}, points=[0], wait=True)
        return scroll(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(BulkRequests, "scroll", scrolled)
        with pytest.raises(StoreError, match="Stop the writers"):
            migration.complete(swap=True)
    assert collections(owner) == {"photos_1"}
    migration.complete(swap=True)
    assert collections(owner) != {"photos_1"}


def test_two_processes_that_swap(
    migration: Migration, owner: Any, url: str, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that has begun later goes on alone: the other does not switch to its copy."""
    migration.complete()
    other = Migration(Gallery(open_store(url)), encode)
    _once(monkeypatch, "create_collection", lambda: other.complete(swap=True), after=True)
    with pytest.raises(StoreError, match="another process has begun"):
        migration.complete(swap=True)
    assert owner.count("photos").count == ROWS
    assert nearest(owner, vector, encode(["text 6"])[0]) == 6


@pytest.mark.parametrize("step", ["create_collection", "upsert", "update_collection_aliases"])
@pytest.mark.parametrize("onward", [True, False])
def test_a_kill_between_the_steps(
    migration: Migration,
    owner: Any,
    url: str,
    vector: str,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    onward: bool,
) -> None:
    """Whatever step is the last one of a process, the next one can go on, or go back."""
    migration.complete()
    _die_in_swap(monkeypatch, step, lambda: migration.complete(swap=True))
    assert Gallery(open_store(url)).search(encode(["text 6"])[0], k=1).ids.tolist() == [6]
    later = Migration(Gallery(open_store(url)), encode)
    if onward:
        later.complete(swap=True)
        assert nearest(owner, vector, encode(["text 6"])[0]) == 6
    else:
        later.swap_back()
        assert nearest(owner, vector, old(6)) == 6
        assert collections(owner) == {"photos_1"}
    later.rollback()
    assert collections(owner) == {"photos_1"}
    assert nearest(owner, vector, old(6)) == 6


def test_a_kill_on_the_way_back(
    migration: Migration, owner: Any, url: str, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process reads as before, and ends it."""
    migration.complete(swap=True)
    _die_in_swap(monkeypatch, "update_collection_aliases", migration.swap_back)
    assert Gallery(open_store(url)).search(encode(["text 6"])[0], k=1).ids.tolist() == [6]
    Migration(Gallery(open_store(url)), encode).rollback()
    assert collections(owner) == {"photos_1"}
    assert nearest(owner, vector, old(6)) == 6


def _die_in_swap(monkeypatch: pytest.MonkeyPatch, step: str, work: Callable[[], None]) -> None:
    """Let a process end as soon as it has done something to a copy, or to the alias."""
    ask = QdrantConnection.ask

    def asked(self: Any, method: str, **options: Any) -> Any:
        answer = ask(self, method, **options)
        if method == step and not str(options.get("collection_name", "")).endswith("__fastfill"):
            raise KilledError
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(QdrantConnection, "ask", asked)
        with pytest.raises(KilledError):
            work()


def test_a_kill_between_switch_and_look(
    migration: Migration, owner: Any, url: str, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process names what was late, and takes nothing from the application."""
    migration.complete()
    added = point(98, vector, encode(["text 98"])[0].tolist())

    def write() -> None:
        owner.delete("photos", [8])
        owner.upsert("photos", [point(99, vector, old(99))])

    _once(monkeypatch, SWITCH, write)
    _die_in_swap(monkeypatch, SWITCH, lambda: migration.complete(swap=True))
    owner.upsert("photos", [added])
    owner.delete("photos", [9])
    later = Migration(Gallery(open_store(url)), encode)
    later.complete(swap=True)
    assert late(later) == [[8], [99]]
    assert [p.id for p in owner.retrieve("photos", [8, 9, 98, 99])] == [8, 98, 99]
    later.swap_back()
    assert [p.id for p in owner.retrieve("photos", [8, 9, 98, 99])] == [8, 98, 99]
    assert nearest(owner, vector, old(99)) == 99


def test_a_write_that_comes_after_the_look(
    migration: Migration, owner: Any, url: str, vector: str
) -> None:
    """The way back does not delete it, but what an application has deleted by FastFill."""
    migration.complete(swap=True)
    owner.upsert("photos_1", [point(99, vector, old(99))])
    store = open_store(url)
    Gallery(store).search(encode(["text 6"])[0], k=1)
    store.delete([8])
    migration.swap_back()
    assert [p.id for p in owner.retrieve("photos", [8, 99])] == [99]
    assert nearest(owner, vector, old(99)) == 99


def test_writes_while_the_alias_is_switched_back(
    migration: Migration, owner: Any, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are carried back where that is safe; otherwise the copy is kept, and they are named."""
    migration.complete(swap=True)
    copy = next(iter(collections(owner) - {"photos_1"}))

    def write() -> None:
        owner.set_payload(copy, {"album": 12}, points=[7])
        owner.set_payload(copy, {"tags": ["b"]}, points=[6])
        owner.set_payload(copy, {"album": 13}, points=[5])
        owner.set_payload("photos_1", {"album": 14}, points=[5])
        owner.upsert(copy, [point(99, vector, encode(["text 99"])[0].tolist())])
        owner.delete(copy, [8])

    _once(monkeypatch, SWITCH, write)
    migration.swap_back()
    albums = [p.payload["album"] for p in owner.retrieve("photos", [5, 7, 8, 99])]
    assert albums == [14, 12, 2, 0]
    assert late(migration) == [[8], [5]]
    assert owner.retrieve("photos", [6])[0].payload["tags"] == ["b"]
    assert collections(owner) == {"photos_1", copy}
    with pytest.raises(StoreError, match="a swap back has kept"):
        migration.complete(swap=True)
    owner.delete_collection(copy)
    migration.rollback()
    assert nearest(owner, vector, old(8)) == 8


def test_a_kill_between_switch_back_and_look(
    migration: Migration, owner: Any, url: str, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the copy alone is not dropped with it."""
    migration.complete(swap=True)
    copy = next(iter(collections(owner) - {"photos_1"}))
    written = point(99, vector, encode(["text 99"])[0].tolist())
    _once(monkeypatch, SWITCH, lambda: owner.upsert(copy, [written]))
    _die_in_swap(monkeypatch, SWITCH, migration.swap_back)
    later = Migration(Gallery(open_store(url)), encode)
    later.swap_back()
    assert late(later) == [[99]]
    assert collections(owner) == {"photos_1", copy}
    assert nearest(owner, vector, old(6)) == 6


def test_what_the_application_writes_after_the_swap(
    migration: Migration, owner: Any, vector: str
) -> None:
    """The way back takes it along; points that were added have no old vector."""
    migration.complete(swap=True)
    owner.upsert("photos", [point(99, vector, encode(["text 99"])[0].tolist())])
    owner.set_payload("photos", {"album": 12}, points=[7])
    owner.delete("photos", [8])
    if vector:
        owner.update_vectors("photos", [models.PointVectors(id=5, vector={"title": [3.0, 3.0]})])
    migration.swap_back()
    assert owner.count("photos").count == ROWS
    assert owner.retrieve("photos", [99])[0].payload["text"] == "text 99"
    assert owner.retrieve("photos", [7])[0].payload["album"] == 12
    assert owner.retrieve("photos", [8]) == []
    found = owner.retrieve("photos", [5, 99], with_vectors=True)
    assert not vector or found[0].vector["title"] == [3.0, 3.0]
    assert vector not in (found[1].vector or {})
    assert nearest(owner, vector, old(6)) == 6


def test_points_of_the_application_outlive_the_old_vectors(
    migration: Migration, owner: Any, vector: str
) -> None:
    """What was added after the swap stays, and another alias of the old collection is spared."""
    migration.complete(swap=True)
    owner.upsert("photos", [point(99, vector, encode(["text 99"])[0].tolist())])
    alias = models.CreateAlias(collection_name="photos_1", alias_name="archive")
    owner.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    with pytest.raises(StoreError, match="alias 'archive' still stands for 'photos_1'"):
        migration.complete(drop_old=True)
    delete = models.DeleteAlias(alias_name="archive")
    owner.update_collection_aliases([models.DeleteAliasOperation(delete_alias=delete)])
    migration.complete(drop_old=True)
    assert owner.count("photos").count == ROWS + 1
    assert nearest(owner, vector, encode(["text 99"])[0]) == 99


def test_the_next_model_after_a_swap(
    migration: Migration, owner: Any, url: str, vector: str
) -> None:
    """Once the old vectors are gone, another migration begins at the same address."""
    migration.complete(swap=True, drop_old=True)
    later = Migration(connect(url, input="text"), encode_later)
    later.start(pairs=40, method="ridge", serving="aligned")
    assert [*later.backfill(throttle=False)][-1].fraction == 1
    later.complete(swap=True, drop_old=True)
    assert len(collections(owner)) == 1
    assert nearest(owner, vector, encode_later(["text 8"])[0]) == 8
