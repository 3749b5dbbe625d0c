"""Migrations of Qdrant collections in local mode, with their owner at work beside them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from qdrant_world import create_collection, models, qdrant_client

from fastfill.errors import FastFillError, StoreError
from fastfill.gallery import Columns, Gallery, JsonDocument, Marks, Settled, Store
from fastfill.migrate import Migration
from fastfill.wiring import open_store

OLD, NEW = 6, 8
MIX = np.random.default_rng(5).standard_normal((OLD, NEW)).astype(np.float32)
SETTLED = Settled("map", "model")
LAYOUTS = {"named": "image", "unnamed": ""}
ENCODER = """
import test_qdrant_migration

encode = test_qdrant_migration.encode
"""


def old(number: int) -> list[float]:
    """What the old model made of item `number`."""
    return np.random.default_rng(number).standard_normal(OLD).astype(np.float32).tolist()


def encode(texts: Any) -> Any:
    """The new model: near a linear map of the old one."""
    vectors = np.array([old(int(text.split()[1])) for text in texts], dtype=np.float32)
    return np.tanh(vectors @ MIX)


def items(count: int) -> dict[str, list[Any]]:
    """Columns of a gallery."""
    numbers = range(count)
    return {
        "id": list(numbers),
        "text": [f"text {n}" for n in numbers],
        "album": [n % 3 for n in numbers],
        "vector": [old(n) for n in numbers],
    }


class Owner:
    """The owner's client on a folder: local mode has one for a process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, method: str, **options: Any) -> Any:
        from fastfill.adapters.qdrant import open_folder

        return open_folder(str(self._path)).ask(method, **options)

    def points(self) -> dict[Any, tuple[Any, Any]]:
        """Payload and old vector by id."""
        found, _ = self("scroll", collection_name="photos", limit=9_999, with_vectors=True)
        return {p.id: (p.payload, _old_vector(p.vector)) for p in found}

    def collections(self) -> list[str]:
        """Their names."""
        return sorted(each.name for each in self("get_collections").collections)


def _old_vector(vectors: Any) -> Any:
    """The owner's; by cosine its direction, for local mode scales what a search has looked at."""
    if not isinstance(vectors, dict):
        return vectors
    return {
        name: tuple((np.array(value) / np.linalg.norm(value)).round(5))
        for name, value in vectors.items()
        if not name.endswith("_new")
    }


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    """Has the owner's vector a name?"""
    return str(request.param)


@pytest.fixture
def owner(tmp_path: Path, layout: str, unsynced: None) -> Owner:
    """The owner of a collection of 120 points."""
    distance = "COSINE" if layout == "named" else "EUCLID"
    create_collection(
        tmp_path / "db", items(120), vector=LAYOUTS[layout], dim=OLD, distance=distance
    )
    return Owner(tmp_path / "db")


@pytest.fixture
def url(tmp_path: Path, layout: str) -> str:
    """Where it is."""
    name = LAYOUTS[layout]
    return f"qdrant+local://{tmp_path / 'db'}#photos{'.' if name else ''}{name}"


@pytest.fixture
def store(owner: Owner, url: str) -> Iterator[Store]:
    """The store, expanded, every row aligned."""
    opened = open_store(url)
    opened.bind(Columns(id="id", input="text", old=opened.column))
    opened.expand(NEW)
    align(opened)
    yield opened
    opened.close()


def align(store: Store, settled: Settled = SETTLED) -> int:
    """Settle what is not."""
    count = 0
    for rows in store.unsettled(settled, batch=50, changed=True, new=True):
        count += len(rows)
        store.write(rows, np.nan_to_num(rows.old) @ MIX, aligned(len(rows)))
    return count


def aligned(count: int) -> Marks:
    """Marks of so many aligned rows."""
    numbers = np.arange(count, dtype=np.float32)
    return Marks("aligned", "map", numbers, numbers)


def client_of(store: Any) -> Any:
    """The application's client: local mode has one for a process."""
    return store._context.connection._client


def new_of(store: Store, key: int) -> Any:
    """The row with its added vector."""
    return store.read([key], new=True)


def test_vectors_that_a_search_has_looked_at_are_the_same(
    owner: Owner, url: str, layout: str, tmp_path: Path
) -> None:
    """Local mode scales them then, in place; they have not been written by anybody."""
    opened = open_store(url)
    opened.bind(Columns(id="id", input="text", old=opened.column))
    opened.expand(NEW)
    before = opened.read(list(range(120)))
    assert align(opened) == 120
    owner("query_points", collection_name="photos", query=old(3), using=LAYOUTS[layout] or None)
    assert align(opened) == 0
    opened.close()
    del opened  # the folder is let go of, and what was scaled is read from it
    again = open_store(url)
    again.bind(Columns(id="id", input="text", old=again.column))
    assert align(again) == 0
    assert np.array_equal(again.read(list(range(120))).old, before.old)
    again.close()


# --- the life of a migration -------------------------------------------------------------------


@pytest.fixture
def fastfill(
    tmp_path: Path, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Run the command as a user would; returns click's result."""
    from click.testing import CliRunner

    from fastfill.cli.main import commands, load_commands

    load_commands()

    (tmp_path / "toy_qdrant.py").write_text(ENCODER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(commands, arguments)
        assert result.exit_code == 0, f"{result.output}{result.exception}"
        return result

    yield run
    sys.modules.pop("toy_qdrant", None)


BEGIN = ("--input", "text", "--encoder", "toy_qdrant:encode")
START = (*BEGIN, "--pairs", "40", "--method", "ridge")


def test_the_whole_life(fastfill: Callable[..., Any], owner: Owner, url: str, layout: str) -> None:
    """Plan, start, backfill, verify, complete: the owner's points are what they were."""
    before = owner.points()
    plan = fastfill("plan", url, *BEGIN).output
    assert "120 rows, 6 → 8 dimensions" in plan
    assert f"distance {'cosine' if layout == 'named' else 'l2'}" in plan
    assert owner.collections() == ["photos"]
    assert "Aligned 80 rows" in fastfill("start", url, *START).output
    assert (
        "Embedded 12 rows. 52/120"
        in fastfill("backfill", url, "--no-throttle", "--budget", "10%").output
    )
    assert "120/120  100.0 %" in fastfill("backfill", url, "--no-throttle", "--workers", "3").output
    assert "Next: fastfill complete" in fastfill("verify", url).output
    fastfill("complete", url)
    assert owner.points() == before
    assert "The old vectors are gone" in fastfill("complete", url, "--drop-old").output
    assert "complete" in fastfill("status", url).output
    assert {key: payload for key, (payload, _) in owner.points().items()} == {
        key: payload for key, (payload, _) in before.items()
    }
    assert not any(vector for _, vector in owner.points().values())


def test_readers_find_what_the_new_model_asks_for(
    fastfill: Callable[..., Any], owner: Owner, url: str, layout: str
) -> None:
    """After the start the application searches the added vector with its own client."""
    fastfill("start", url, *START)
    fastfill("backfill", url, "--no-throttle")
    where = ("photos", "image_new") if layout == "named" else ("photos__vector_new", "vector_new")
    answer = owner(
        "query_points",
        collection_name=where[0],
        using=where[1],
        query=encode(["text 17"])[0].tolist(),
        query_filter=models.Filter(
            must=[models.FieldCondition(key="album", match=models.MatchValue(value=17 % 3))]
        ),
        limit=1,
    )
    assert [(hit.id, hit.payload["text"]) for hit in answer.points] == [(17, "text 17")]


def test_a_rollback_leaves_the_collection_as_it_was(
    fastfill: Callable[..., Any], owner: Owner, url: str
) -> None:
    """Points, vectors and aliases are those of before; the audit trail stays."""
    before, vectors = owner.points(), owner("get_collection", collection_name="photos").config
    fastfill("start", url, *START)
    fastfill("backfill", url, "--no-throttle", "--budget", "10")
    assert "Rolled back" in fastfill("rollback", url).output
    assert owner.points() == before
    assert owner("get_collection", collection_name="photos").config == vectors
    assert owner.collections() == ["photos", "photos__fastfill"]
    assert owner("get_aliases").aliases == []
    assert "Aligned 80 rows" in fastfill("start", url, *START).output


def test_another_model_half_way(owner: Owner, url: str) -> None:
    """A model of other dimensions takes over: every row ends with its vector."""
    store = open_store(url)
    first = Migration(Gallery(store, input="text"), encode, encoder_name="first")
    first.start(pairs=40, method="ridge")
    list(first.backfill(rows=10, throttle=False))

    def wide(texts: Any) -> Any:
        return np.concatenate([encode(texts), encode(texts)], axis=1)

    second = Migration(Gallery(store), wide, encoder_name="second")
    second.start(pairs=40, method="ridge")
    assert [*second.backfill(throttle=False)][-1].fraction == 1.0
    assert second.verify().good
    assert store.describe().new_dim == 2 * NEW
    store.close()


def test_a_server_that_cannot_add_vectors(
    tmp_path: Path, unsynced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Qdrant 1.18 named vectors too get a second collection."""
    from fastfill.adapters.qdrant import connection

    monkeypatch.setattr(connection, "NAMING", (9, 0))
    create_collection(tmp_path / "db", items(60), vector="image", dim=OLD)
    store = open_store(f"qdrant+local://{tmp_path / 'db'}#photos.image")
    migration = Migration(Gallery(store, input="text"), encode)
    migration.start(pairs=30, method="ridge")
    assert [*migration.backfill(throttle=False)][-1].fraction == 1.0
    assert migration.verify().good
    client = client_of(store)
    assert list(client.get_collection("photos").config.params.vectors) == ["image"]
    assert client.count("photos__image_new").count == 60
    migration.complete(drop_old=True)
    assert "image" not in store.describe().columns
    store.close()


# --- the owner goes on writing -----------------------------------------------------------------


def test_edits_by_every_kind_of_write_are_found(store: Store, layout: str) -> None:
    """Whether payload, vector or the whole point: a changed item is aligned again, once."""
    client, name = client_of(store), LAYOUTS[layout]
    client.set_payload("photos", {"text": "text 900"}, points=[1])
    client.overwrite_payload("photos", {"text": "text 901", "album": 0}, points=[2])
    client.update_vectors("photos", [models.PointVectors(id=3, vector={name: old(902)})])
    whole = {"text": "text 903", "album": 0}
    client.upsert("photos", [models.PointStruct(id=4, vector={name: old(903)}, payload=whole)])
    client.delete("photos", [5])
    client.upsert("photos", [models.PointStruct(id=777, vector={name: old(7)}, payload=whole)])
    (rows,) = store.unsettled(SETTLED, batch=999, changed=True, new=True)
    assert sorted(rows.ids.tolist()) == [1, 2, 3, 4, 777]
    assert align(store) == 5
    assert align(store) == 0
    assert store.counts() == {("aligned", "map"): 120}
    store.optimize()
    assert sum(map(len, store._context.layout.ledger.ids())) == 120  # type: ignore[attr-defined]


def test_the_same_point_written_again_loses_no_vector(store: Store, layout: str) -> None:
    """An upsert of a whole point takes an added vector off: the sweep puts it back."""
    client, name = client_of(store), LAYOUTS[layout]
    payload = {"text": "text 4", "album": 1}
    client.upsert("photos", [models.PointStruct(id=4, vector={name: old(4)}, payload=payload)])
    lost = 1 if layout == "named" else 0
    assert store.counts().get((None, None), 0) == lost
    assert sum(map(len, store.unsettled(SETTLED, batch=50, changed=False))) == lost
    assert align(store) == lost
    assert np.isfinite(new_of(store, 4).new).all()


def test_an_own_new_vector_is_adopted(store: Store, layout: str) -> None:
    """Written with the item, or through the gallery, it comes without marks and with itself."""
    own, name = [0.5] * NEW, LAYOUTS[layout]
    Gallery(store, input="text").upsert({"id": [801], "text": ["text 801"], store.column: [old(1)]})
    store.upsert({"id": [802], "text": ["text 802"], store.column: [old(2)]})
    store.upsert({"id": [802], store.columns.new: [own]})
    if layout == "named":
        vectors = {name: old(903), store.columns.new: own}
        point = models.PointStruct(id=4, vector=vectors, payload={"text": "text 903"})
        client_of(store).upsert("photos", [point])
    (rows,) = store.unsettled(SETTLED, batch=999, changed=True, new=True)
    assert rows.generation.tolist() == [None] * len(rows)
    assert rows.new is not None
    given = rows.ids[np.isfinite(rows.new).all(axis=1)].tolist()
    assert sorted(given) == ([4, 802] if layout == "named" else [802])
    assert store.write(rows.take(rows.ids == 802), rows.new[rows.ids == 802], aligned(1)) == 1


def test_deleted_items_are_not_found(store: Store) -> None:
    """Neither searches nor claims give items that their owner has deleted."""
    best = store.pick("aligned", 3, ()).ids.tolist()
    client_of(store).delete("photos", best[:2])
    query = np.array(old(best[0]), dtype=np.float32) @ MIX
    hits = store.search(query, 118, side="new", distance=store.describe().distance or "l2")
    assert len(hits.ids) == 118
    assert not set(best[:2]) & set(hits.ids)
    assert store.pick("aligned", 3, ()).ids[0] == best[2]


@pytest.mark.parametrize("layout", ["unnamed"], indirect=True)
def test_items_of_the_second_collection_alone(store: Store) -> None:
    """What the application itself writes there is found, and is never tidied away."""
    own = models.PointStruct(id=5_000, vector={"vector_new": [9.0] * NEW}, payload={"text": "own"})
    client_of(store).upsert("photos__vector_new", [own])
    store.optimize()
    assert store.search([9.0] * NEW, 1, side="new", distance="l2").ids.tolist() == [5_000]


def test_filters_see_changed_payload(store: Store) -> None:
    """A value that is not part of the content can be filtered by after the next sweep."""
    client_of(store).set_payload("photos", {"album": 77}, points=[9])
    client_of(store).delete_payload("photos", ["album"], points=[10])
    assert align(store) == 0
    query = np.ones(NEW, dtype=np.float32)
    for album, expected in ((77, [9]), (None, [10])):
        hits = store.search(query, 9, side="new", distance="ip", where={"album": album})
        assert hits.ids.tolist() == expected
        assert hits.generation.tolist() == ["aligned"]
    assert store.search(query, 9, side="new", distance="l2", where={"id": 3}).ids.tolist() == [3]


# --- in the middle of a write ------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


def die(*_: Any, **__: Any) -> None:
    """Be killed here."""
    raise Killed


@pytest.mark.parametrize("place", ["put_vectors", "finish"])
@pytest.mark.parametrize("layout", ["named"], indirect=True)
def test_a_write_left_in_the_middle_is_not_believed(
    store: Store, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Rows whose vector may or may not be written are work to do, and are not adopted."""
    from fastfill.adapters.qdrant.collection import QdrantCollection
    from fastfill.adapters.qdrant.ledger import QdrantLedger

    rows = store.read([1, 2])
    owner = QdrantCollection if place == "put_vectors" else QdrantLedger
    with monkeypatch.context() as patch:
        patch.setattr(owner, place, die)
        with pytest.raises(Killed):
            store.write(rows, np.ones((2, NEW), np.float32), Marks("new", "model"))
    assert store.counts() == {("aligned", "map"): 118, (None, None): 2}
    for changed in (True, False):
        (found,) = store.unsettled(SETTLED, batch=999, changed=changed, new=True)
        assert sorted(found.ids.tolist()) == [1, 2]
        assert found.generation.tolist() == [None, None]
        assert np.isnan(found.new).all()
    assert align(store) == 2
    assert store.counts() == {("aligned", "map"): 120}


def test_content_that_changes_during_a_write_is_found(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marks are of what was read, so an edit after the comparison is seen by the sweep."""
    from fastfill.adapters.qdrant.ledger import QdrantLedger

    groups = QdrantLedger._groups

    def edit_first(self: Any, *arguments: Any) -> Any:
        client_of(store).set_payload("photos", {"text": "text 900"}, points=[1])
        return groups(self, *arguments)

    rows = store.read([1, 2])
    with monkeypatch.context() as patch:
        patch.setattr(QdrantLedger, "_groups", edit_first)
        store.write(rows, np.ones((2, NEW), np.float32), Marks("new", "model"))
    (found,) = store.unsettled(SETTLED, batch=999, changed=True)
    assert found.ids.tolist() == [1]


def test_rows_for_an_encoder_come_without_vectors(store: Store) -> None:
    """A text that went and came back again while its row was read is not taken for the first."""
    client = client_of(store)
    client.set_payload("photos", {"text": "for a while"}, points=[1])
    rows = store.read([1, 2], old=False)
    assert np.isnan(rows.old).all()
    assert sorted(rows.inputs.tolist()) == ["for a while", "text 2"]
    assert store.write(rows, np.ones((2, NEW), np.float32), Marks("new", "model")) == 2
    assert not list(store.unsettled(SETTLED, batch=999, changed=True))
    client.set_payload("photos", {"text": "text 1"}, points=[1])
    (found,) = store.unsettled(SETTLED, batch=999, changed=True)
    assert found.ids.tolist() == [1]


@pytest.mark.parametrize("layout", ["named"], indirect=True)
def test_two_writers_of_one_row(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that wakes up when another has the row may spoil the vector, but not unseen."""
    from fastfill.adapters.qdrant.collection import QdrantCollection

    put_vectors, late = QdrantCollection.put_vectors, store.read([1])

    def overtaken(self: Any, vectors: Any) -> None:
        patch.undo()
        rows = store.read([1])
        assert store.write(rows, 2 * np.ones((1, NEW), np.float32), Marks("new", "model")) == 1
        put_vectors(self, vectors)

    patch = monkeypatch
    patch.setattr(QdrantCollection, "put_vectors", overtaken)
    assert store.write(late, -np.ones((1, NEW), np.float32), aligned(1)) == 0
    (found,) = store.unsettled(SETTLED, batch=999, changed=True, new=True)
    assert found.ids.tolist() == [1]
    assert np.isnan(found.new).all()


def test_a_late_writer_is_refused(store: Store) -> None:
    """Whoever read a row before another wrote it does not overwrite that, nor revive a row."""
    late, vectors = store.read([1, 2, 3]), np.ones((3, NEW), np.float32)
    other = store.read([1])
    assert store.write(other, vectors[:1], Marks("new", "model")) == 1
    store.delete([3])
    assert store.write(late, -vectors, aligned(3)) == 1
    assert new_of(store, 1).generation.tolist() == ["new"]
    assert len(store.read([3])) == 0
    again = store.read([1])
    assert store.write(again, vectors[:1], Marks("new", "model")) == 1
    assert store.write(other, vectors[:1], Marks("new", "model")) == 0


# --- documents ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number(JsonDocument):
    """A document that counts."""

    NAME: ClassVar[str] = "number"

    value: int = 0


@pytest.mark.parametrize("layout", ["unnamed"], indirect=True)
def test_documents_are_counted_up_by_many(owner: Owner, url: str) -> None:
    """Threads that replace one document at once lose no change."""
    stores = [open_store(url) for _ in range(4)]

    def count_up(store: Store) -> None:
        for _ in range(10):
            Number.change(store, lambda number: Number(1 if number is None else number.value + 1))

    threads = [threading.Thread(target=count_up, args=[store]) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    document = stores[0].load("number")
    assert document is not None
    assert (Number.from_bytes(document.value), document.version) == (Number(40), 40)


@pytest.mark.parametrize("layout", ["unnamed"], indirect=True)
def test_large_documents(owner: Owner, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is too large for one request comes back whole, and leaves nothing behind."""
    from fastfill.adapters.qdrant import documents

    monkeypatch.setattr(documents, "PART", 1_000)
    store = open_store(url)
    value = np.random.default_rng(0).bytes(4_321)
    assert store.save("alignment/1", value, 0)
    assert not store.save("alignment/1", value, 0)
    assert store.save("alignment/1", value[::-1], 1)
    document = store.load("alignment/1")
    assert document is not None
    assert document.value == value[::-1]
    assert client_of(store).count("photos__fastfill").count == 6
    assert store.names("") == ["alignment/1"]
    store.remove(["alignment/1"])
    assert client_of(store).count("photos__fastfill").count == 0


# --- addresses and errors ----------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["unnamed"], indirect=True)
def test_an_alias_is_followed(owner: Owner, tmp_path: Path) -> None:
    """A URL may name an alias; what is added belongs to the collection behind it."""
    alias = models.CreateAlias(collection_name="photos", alias_name="pictures")
    operation = models.CreateAliasOperation(create_alias=alias)
    owner("update_collection_aliases", change_aliases_operations=[operation])
    store = open_store(f"qdrant+local://{tmp_path / 'db'}#pictures")
    store.save("a", b"1", 0)
    store.close()
    assert owner.collections() == ["photos", "photos__fastfill"]


@pytest.mark.parametrize("layout", ["named"], indirect=True)
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("qdrant+local://nowhere#photos", "not a folder of Qdrant's local mode"),
        ("qdrant+local://db#nobody", "no collection 'nobody', only photos"),
        ("qdrant+local://db#photos", "which vector? Add one of .image"),
        ("qdrant+local://db#photos.other", "no vector named 'other', only 'image'"),
        ("qdrant+local://db#a.b.c", "after the # comes COLLECTION"),
        ("qdrant+local://db", "add #COLLECTION[.VECTOR]"),
        ("qdrant://secret@host#photos", "QDRANT_API_KEY"),
        ("qdrant://host:port#photos", "is not a server"),
        ("qdrant://127.0.0.1:9#photos", "qdrant://127.0.0.1:9 cannot be reached"),
    ],
)
def test_wrong_addresses(
    owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, words: str
) -> None:
    """A mistake in the URL is told in one sentence that names what there is."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FastFillError) as error:
        open_store(address)
    assert words in str(error.value)


@pytest.mark.parametrize("layout", ["named"], indirect=True)
def test_wrong_columns(owner: Owner, url: str) -> None:
    """Points are known by their ids, and the input must be in some payload."""
    store = open_store(url)
    with pytest.raises(StoreError, match="Leave --id out"):
        store.bind(Columns(id="key", input="text", old="image"))
    with pytest.raises(StoreError, match="no point has 'caption' in its payload, only text, album"):
        store.bind(Columns(id="id", input="caption", old="image"))


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"distance": "Manhattan"}, "compares by Manhattan"),
        (
            {"distance": "Dot", "multivector_config": {"comparator": "max_sim"}},
            "many vectors for a point",
        ),
    ],
)
def test_vectors_that_cannot_be_migrated(tmp_path: Path, params: Any, words: str) -> None:
    """Distances and kinds of vectors that FastFill does not know are refused at once."""
    client = qdrant_client.QdrantClient(path=str(tmp_path))
    client.create_collection("photos", models.VectorParams(size=4, **params))
    client.close()
    with pytest.raises(StoreError, match=words):
        open_store(f"qdrant+local://{tmp_path}#photos")


@pytest.mark.parametrize("layout", ["named"], indirect=True)
def test_a_folder_in_use(owner: Owner, url: str, tmp_path: Path) -> None:
    """Local mode lets one client in: the other is told so; stores of a process share theirs."""
    other = qdrant_client.QdrantClient(path=str(tmp_path / "db"))
    with pytest.raises(StoreError, match="in use by another process"):
        open_store(url)
    other.close()
    first, second = open_store(url), open_store(url)
    first.close()
    assert second.load("state") is None
    with pytest.raises(StoreError, match="has been closed"):
        first.load("state")


def test_an_old_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without conditional updates nothing is safe."""
    from fastfill.adapters.qdrant import connection

    create_collection(tmp_path, items(1), dim=OLD)
    monkeypatch.setattr(connection, "CONDITIONAL", (9, 1))
    with pytest.raises(StoreError, match=r"FastFill needs 9\.1 or newer"):
        open_store(f"qdrant+local://{tmp_path}#photos")


def test_input_in_a_nested_payload(tmp_path: Path, unsynced: None) -> None:
    """A path of keys names an input that is inside another value."""
    values = {k: v for k, v in items(20).items() if k != "text"}
    create_collection(
        tmp_path, {**values, "metadata": [{"text": f"text {n}"} for n in range(20)]}, dim=OLD
    )
    gallery = Gallery(open_store(f"qdrant+local://{tmp_path}#photos"), input="metadata.text")
    assert gallery.store.read([7]).inputs.tolist() == ["text 7"]
    assert Migration(gallery, encode).plan().rows == 20
