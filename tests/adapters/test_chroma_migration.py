"""Migrations on Chroma: in a folder, with documents, and what is in the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chroma_world import fill, open_owner
from chromadb.errors import InternalError

from fastfill.adapters.chroma import writes
from fastfill.adapters.chroma.collection import ChromaCollection
from fastfill.adapters.chroma.writes import unchanged
from fastfill.errors import InputError, MigrationError, StoreError
from fastfill.gallery import Columns, Gallery
from fastfill.migrate import Migration
from fastfill.testing import SETTLED, marks, new_vectors, values
from fastfill.wiring import open_store

OLD, NEW = 6, 9
_MIX = np.random.default_rng(5).standard_normal((OLD, NEW)).astype(np.float32)


def old_model(text: str) -> Any:
    """What the old model makes of a text."""
    seed = sum(map(ord, text))
    return np.random.default_rng(seed).standard_normal(OLD).astype(np.float32)


def encode(texts: Any) -> Any:
    """The new model."""
    return np.stack([np.tanh(old_model(text) @ _MIX) for text in texts])


def items(count: int) -> dict[str, list[Any]]:
    """Records whose text is their document."""
    texts = [f"text {n}" for n in range(count)]
    return {
        "id": [str(n) for n in range(count)],
        "document": texts,
        "album": [n % 3 for n in range(count)],
        "vector": [old_model(text).tolist() for text in texts],
    }


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Any]:
    """The owner's client on a folder, in this process."""
    client = open_owner(tmp_path / "data")
    yield client
    client.close()


def everything(collection: Any) -> dict[str, Any]:
    """All that the owner has written."""
    answer = collection.get(include=["metadatas", "documents", "embeddings"])
    vectors = [vector.tolist() for vector in np.asarray(answer["embeddings"])]
    rows = zip(answer["metadatas"], answer["documents"], vectors, strict=True)
    return dict(zip(answer["ids"], rows, strict=True))


def test_a_migration_in_a_folder(owner: Any, tmp_path: Path) -> None:
    """From start to completion beside the owner's client; the second collection has it all."""
    collection = fill(owner, items(60), space="cosine")
    before = everything(collection)
    store = open_store(f"chroma://{tmp_path / 'data'}#photos")
    migration = Migration(Gallery(store, input="document"), encode)
    migration.start(pairs=30, method="ridge")
    assert everything(collection) == before
    collection.update(
        ids=["3"],
        documents=["text 900"],
        embeddings=[old_model("text 900")],
        metadatas=[{"album": 7, "year": 1999}],
    )
    collection.delete(ids=["4"])
    assert [*migration.backfill(throttle=False)][-1].fraction == 1.0
    assert migration.verify().good
    migration.complete(drop_old=True)
    assert {c.name for c in owner.list_collections()} == {"photos__vector_new", "photos__fastfill"}
    left = everything(owner.get_collection("photos__vector_new", embedding_function=None))
    assert left.keys() == before.keys() - {"4"}
    metadata, document, vector = left["3"]
    assert (metadata, document) == ({"album": 7, "year": 1999}, "text 900")
    np.testing.assert_allclose(vector, encode(["text 900"])[0], rtol=1e-5)
    hits = store.search(encode(["text 900"])[0], 1, side="new", distance="cosine")
    assert hits.ids.tolist() == ["3"]
    store.close()


def test_a_rollback_leaves_the_documents_of_the_migration_alone(owner: Any, tmp_path: Path) -> None:
    """After a rollback the owner's collection is as it was, and another migration can begin."""
    collection = fill(owner, items(40))
    before = everything(collection)
    store = open_store(f"chroma://{tmp_path / 'data'}#photos")
    migration = Migration(Gallery(store, input="document"), encode)
    migration.start(pairs=20, method="ridge")
    migration.rollback()
    assert everything(collection) == before
    assert {c.name for c in owner.list_collections()} == {"photos", "photos__fastfill"}
    Migration(Gallery(store, input="document"), encode).start(pairs=20, method="ridge")
    store.close()


def test_the_copy_of_a_document_follows(owner: Any, tmp_path: Path) -> None:
    """A changed document that is not the input changes in the copy, and the vector stays."""
    data = {**values(3), "document": ["a", "b", "c"]}
    collection = fill(owner, data)
    store = open_store(f"chroma://{tmp_path / 'data'}#photos")
    store.bind(Columns("id", "text", "vector"))
    store.expand(12)
    rows = store.read(data["id"])
    store.write(rows, new_vectors(rows), marks("new", rows))
    key = data["id"][0]
    collection.update(ids=[key], documents=["changed"], embeddings=[data["vector"][0]])
    assert not [*store.unsettled(SETTLED, batch=9, changed=True)]
    _, document, vector = everything(owner.get_collection("photos__vector_new"))[key]
    assert document == "changed"
    np.testing.assert_allclose(vector, new_vectors(store.read([key]))[0], rtol=1e-6)
    store.close()


def test_a_key_that_is_gone_leaves_the_copy_too(owner: Any, tmp_path: Path) -> None:
    """A value that the owner has taken off is found by no filter of the second collection."""
    collection = fill(owner, values(4))
    store = open_store(f"chroma://{tmp_path / 'data'}#photos")
    store.bind(Columns("id", "text", "vector"))
    store.expand(12)
    rows = store.read(values(4)["id"])
    store.write(rows, new_vectors(rows), marks("new", rows))
    collection.update(ids=[rows.ids[0]], metadatas=[{"album": None}])
    assert len(store.search(np.ones(12), 9, side="new", distance="l2", where={"album": 0}).ids) == 2
    assert not [*store.unsettled(SETTLED, batch=9, changed=True)]
    hits = store.search(np.ones(12), 9, side="new", distance="l2", where={"album": 0})
    assert hits.ids.tolist() == [rows.ids[3]]
    store.close()


def test_the_owners_metadata_is_sent_once(
    owner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row whose copy is up to date gets a vector and marks, and keeps the copy."""
    fill(owner, {**values(3), "document": ["a", "b", "c"]})
    store = open_store(f"chroma://{tmp_path / 'data'}#photos")
    store.bind(Columns("id", "text", "vector"))
    store.expand(NEW)
    sent: list[tuple[bool, str | None]] = []
    send = ChromaCollection._send

    def watch(self: Any, method: str, records: Any) -> None:
        sent.extend(("album" in record.metadata, record.document) for record in records.values())
        send(self, method, records)

    monkeypatch.setattr(ChromaCollection, "_send", watch)
    for generation in ("aligned", "new"):
        rows = store.read(values(3)["id"])
        assert store.write(rows, new_vectors(rows)[:, :NEW], marks(generation, rows)) == 3
    assert sent == [(True, "a"), (True, "b"), (True, "c")] + 3 * [(False, None)]
    left = everything(owner.get_collection("photos__vector_new", embedding_function=None))
    assert [(m["album"], text) for m, text, _ in left.values()] == [(0, "a"), (1, "b"), (2, "c")]
    store.close()


def test_what_others_delete_before_the_write_stays_deleted(
    owner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that is gone when its marks are written is not made again with these alone."""
    fill(owner, values(3))
    store = open_store(f"chroma://{tmp_path / 'data'}#photos")
    store.bind(Columns("id", "text", "vector"))
    store.expand(NEW)
    keys = values(3)["id"]
    rows = store.read(keys)
    store.write(rows, new_vectors(rows)[:, :NEW], marks("aligned", rows))
    second = owner.get_collection("photos__vector_new", embedding_function=None)

    def delete_meanwhile(*looked_at: Any) -> list[int]:
        second.delete(ids=[keys[1]])
        return unchanged(*looked_at)

    monkeypatch.setattr(writes, "unchanged", delete_meanwhile)
    rows = store.read(keys)
    assert store.write(rows, new_vectors(rows)[:, :NEW], marks("new", rows)) == 2
    assert second.get(include=[])["ids"] == [keys[0], keys[2]]
    store.close()


def test_one_of_many_writers_replaces_a_document(chroma_owner: Any, chroma_place: str) -> None:
    """Of several who save the same version at the same time one is told that it has."""
    fill(chroma_owner, values(3))
    stores = [open_store(f"{chroma_place}#photos") for _ in range(4)]
    stores[0].save("other", b"-", 0)
    won: list[int] = []
    for version in range(3):
        start = threading.Barrier(len(stores))

        def save(store: Any, number: int, version: int = version, start: Any = start) -> None:
            start.wait()
            if store.save("state", f"{version}/{number}".encode(), version):
                won.append(number)

        threads = [threading.Thread(target=save, args=pair[::-1]) for pair in enumerate(stores)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == version + 1
        document = stores[0].load("state")
        assert document is not None
        assert document.value == f"{version}/{won[-1]}".encode()
    for store in stores:
        store.close()


def test_a_removed_document_stays_removed(owner: Any, tmp_path: Path) -> None:
    """Whoever knew a version of a document that was removed cannot bring it back."""
    fill(owner, values(3))
    store = open_store(f"chroma://{tmp_path / 'data'}#photos")
    large = bytes(range(256)) * (5 << 12)  # more than one request takes
    assert store.save("map", large, 0)
    known = store.load("map")
    assert known is not None
    assert known.value == large
    store.remove(["map"])
    assert store.load("map") is None
    assert store.names("") == []
    assert not store.save("map", b"late", known.version)
    assert store.save("map", b"again", 0)
    assert store.names("") == ["map"]
    store.close()


def test_what_is_in_the_way_is_named(owner: Any, tmp_path: Path) -> None:
    """A collection of the name of the second one is somebody else's, and nothing is written."""
    fill(owner, items(20))
    owner.create_collection("photos__vector_new", embedding_function=None)
    store = open_store(f"chroma://{tmp_path / 'data'}#photos")
    migration = Migration(Gallery(store, input="document"), encode)
    with pytest.raises(MigrationError, match="photos__vector_new"):
        migration.start(pairs=20, method="ridge")
    with pytest.raises(StoreError, match="not FastFill's"):
        store.expand(NEW)
    store.close()


@pytest.mark.parametrize(
    ("url", "kind", "says"),
    [
        ("chroma://{path}/nowhere#photos", StoreError, "is not a folder of Chroma's"),
        ("chroma://{path}/data#missing", StoreError, "no collection 'missing', only photos"),
        ("chroma://{path}/data", InputError, "add #COLLECTION"),
        ("chroma+http://key@here#photos", InputError, "Keep the key out of the URL"),
        ("chroma+http://127.0.0.1:1#photos", StoreError, "cannot be reached"),
    ],
)
def test_addresses_that_lead_nowhere(
    owner: Any, tmp_path: Path, url: str, kind: type[Exception], says: str
) -> None:
    """A wrong address is refused in a sentence that says what is wrong with it."""
    fill(owner, values(3))
    with pytest.raises(kind, match=says):
        open_store(url.format(path=tmp_path))


def test_a_key_that_no_record_has(owner: Any, tmp_path: Path) -> None:
    """The input is refused with the keys that there are."""
    fill(owner, values(3))
    store = open_store(f"chroma://{tmp_path / 'data'}#photos")
    with pytest.raises(StoreError, match="no record has 'caption', only"):
        Gallery(store, input="caption")
    store.close()


def test_records_that_are_deleted_while_they_are_read(
    owner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Chroma misses the vector of a record that goes just then, it is read again."""
    collection = fill(owner, items(20))
    store = open_store(f"chroma://{tmp_path / 'data'}#photos")
    store.bind(Columns(id="id", input="document", old="vector"))
    get, failures = type(collection).get, []

    def get_beside_a_deletion(self: Any, *given: Any, **options: Any) -> Any:
        if "embeddings" in options["include"] and len(failures) < 2:
            failures.append(options)
            raise InternalError("Error executing plan: Internal error: Error finding id")
        return get(self, *given, **options)

    monkeypatch.setattr(type(collection), "get", get_beside_a_deletion)
    assert store.read(["3"]).inputs.tolist() == ["text 3"]
    assert len(failures) == 2
