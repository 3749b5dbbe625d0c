"""Cut-over under the same name on Chroma."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from chroma_world import fill

from fastfill.adapters.chroma.connection import ChromaConnection
from fastfill.errors import MigrationError, StoreError
from fastfill.gallery import Gallery
from fastfill.migrate import Migration
from fastfill.wiring import connect, open_store

ROWS = 60


class KilledError(Exception):
    """Stands for the end of the process."""


def encode(texts: Any) -> Any:
    """The new model."""
    return np.array([[int(t) % 7 + 1, int(t) % 11 + 1] for t in texts], np.float32)


def encode_later(texts: Any) -> Any:
    """The model after it."""
    return np.array([[int(t), int(t) % 3, 1] for t in texts], np.float32)


def old_model(number: int) -> list[float]:
    """What the old model makes of a text."""
    return [number % 7, number % 11, 1.0]


@pytest.fixture
def url(chroma_owner: Any, chroma_place: str) -> str:
    """The owner's collection."""
    values = {
        "id": [str(n) for n in range(ROWS)],
        "document": [str(n) for n in range(ROWS)],
        "album": [n % 3 for n in range(ROWS)],
        "vector": [old_model(n) for n in range(ROWS)],
    }
    collection = fill(chroma_owner, values)
    collection.modify(metadata={"owner": "museum"})
    return f"{chroma_place}#photos"


@pytest.fixture
def migration(url: str) -> Migration:
    """A migration whose rows are all new."""
    opened = Migration(connect(url, input="document"), encode)
    opened.start(pairs=20, method="ridge", serving="aligned")
    assert [*opened.backfill(throttle=False, refit=None)][-1].fraction == 1
    return opened


def nearest(client: Any, vector: Any) -> str:
    """What an application asks that opens the collection by the name that it knows."""
    collection = client.get_collection("photos", embedding_function=None)
    answer = collection.query(query_embeddings=[vector], n_results=1, include=[])
    return str(answer["ids"][0][0])


def names(client: Any) -> set[str]:
    """Of the collections with vectors."""
    return {c.name for c in client.list_collections()} - {"photos__fastfill"}


def test_both_collections_change_their_names(
    migration: Migration, chroma_owner: Any, url: str
) -> None:
    """The application's query needs the new model and nothing else; it can be taken back."""
    reader = connect(url)
    before = chroma_owner.get_collection("photos").get(include=["metadatas", "embeddings"])
    migration.complete(swap=True)
    assert nearest(chroma_owner, encode(["6"])[0]) == "6"
    assert reader.search(encode(["8"])[0], k=1).ids.tolist() == ["8"]
    assert chroma_owner.get_collection("photos").metadata["owner"] == "museum"
    assert migration.status().progress.new == ROWS
    migration.swap_back()
    assert nearest(chroma_owner, old_model(6)) == "6"
    assert names(chroma_owner) == {"photos", "photos__vector_new"}
    after = chroma_owner.get_collection("photos").get(include=["metadatas", "embeddings"])
    assert after["metadatas"] == before["metadatas"]
    assert np.array_equal(after["embeddings"], before["embeddings"])
    migration.complete(swap=True, drop_old=True)
    assert names(chroma_owner) == {"photos"}
    assert nearest(chroma_owner, encode(["6"])[0]) == "6"
    assert chroma_owner.get_collection("photos").get("6")["metadatas"] == [{"album": 0}]
    with pytest.raises(MigrationError, match="no way back"):
        migration.swap_back()


def test_rows_written_before_the_swap(migration: Migration, chroma_owner: Any) -> None:
    """A row without a new vector is in the way, and nothing is renamed."""
    migration.complete()
    collection = chroma_owner.get_collection("photos", embedding_function=None)
    collection.add(ids=["99"], documents=["99"], embeddings=[old_model(99)])
    with pytest.raises(MigrationError, match="1 rows have been written"):
        migration.complete(swap=True)
    assert names(chroma_owner) == {"photos", "photos__vector_new"}
    assert collection.get("99")["ids"] == ["99"]


def test_a_row_written_while_it_is_renamed(
    migration: Migration, chroma_owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that has the collection open is seen after the renaming, which is undone."""
    collection = chroma_owner.get_collection("photos", embedding_function=None)
    renamed, late = ChromaConnection.rename, []

    def rename(self: Any, name: str, *options: Any) -> None:
        renamed(self, name, *options)
        if not late:
            late.append(name)
            collection.update(ids=["6"], documents=["8"], embeddings=[old_model(8)])

    monkeypatch.setattr(ChromaConnection, "rename", rename)
    with pytest.raises(MigrationError, match="1 rows have been written"):
        migration.complete(swap=True)
    assert names(chroma_owner) == {"photos", "photos__vector_new"}
    assert [*migration.backfill(throttle=False)][-1].fraction == 1
    migration.complete(swap=True)
    assert chroma_owner.get_collection("photos").get("6")["documents"] == ["8"]


@pytest.mark.parametrize("first", ["photos", "photos__vector_new"])
@pytest.mark.parametrize("onward", [True, False])
def test_a_kill_between_the_renamings(
    migration: Migration,
    chroma_owner: Any,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    onward: bool,
) -> None:
    """The next process reads as before, and can go on, or go back."""
    _die_after(monkeypatch, first, lambda: migration.complete(swap=True))
    assert Gallery(open_store(url)).search(encode(["6"])[0], k=1).ids.tolist() == ["6"]
    later = Migration(Gallery(open_store(url)), encode)
    if onward:
        later.complete(swap=True)
        assert names(chroma_owner) == {"photos", "photos__vector_old"}
        assert nearest(chroma_owner, encode(["6"])[0]) == "6"
    else:
        later.swap_back()
        assert names(chroma_owner) == {"photos", "photos__vector_new"}
        assert nearest(chroma_owner, old_model(6)) == "6"
    later.rollback()
    assert names(chroma_owner) == {"photos"}
    assert nearest(chroma_owner, old_model(6)) == "6"


@pytest.mark.parametrize("first", ["photos", "photos__vector_old"])
def test_a_kill_on_the_way_back(
    migration: Migration,
    chroma_owner: Any,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
) -> None:
    """The next process reads as before, and ends it."""
    migration.complete(swap=True)
    _die_after(monkeypatch, first, migration.swap_back)
    assert Gallery(open_store(url)).search(encode(["6"])[0], k=1).ids.tolist() == ["6"]
    Migration(Gallery(open_store(url)), encode).rollback()
    assert names(chroma_owner) == {"photos"}
    assert nearest(chroma_owner, old_model(6)) == "6"


def _die_after(monkeypatch: pytest.MonkeyPatch, name: str, work: Callable[[], None]) -> None:
    """Let a process end as soon as the collection of this name has another one."""
    renamed = ChromaConnection.rename

    def rename(self: Any, before: str, *options: Any) -> None:
        renamed(self, before, *options)
        if before == name:
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(ChromaConnection, "rename", rename)
        with pytest.raises(KilledError):
            work()


def test_what_the_application_writes_after_the_swap(
    migration: Migration, chroma_owner: Any, url: str
) -> None:
    """It stays; the way back takes changes and deletions along, and refuses to lose records."""
    migration.complete(swap=True)
    collection = chroma_owner.get_collection("photos", embedding_function=None)
    collection.add(ids=["99"], documents=["99"], embeddings=encode(["99"]))
    collection.update(ids=["7"], metadatas=[{"album": 12}])
    collection.delete(ids=["8"])
    assert migration.status().progress.total == ROWS
    assert Gallery(open_store(url)).search(encode(["99"])[0], k=3).ids.tolist().count("99") == 1
    with pytest.raises(StoreError, match="1 records, such as '99', have been added"):
        migration.swap_back()
    old = chroma_owner.get_collection("photos__vector_old", embedding_function=None)
    old.add(ids=["99"], documents=["99"], embeddings=[old_model(99)])
    migration.swap_back()
    assert len(old.get()["ids"]) == ROWS
    assert old.get(["7"])["metadatas"] == [{"album": 12}]
    assert old.get(["8"])["ids"] == []


def test_records_of_the_application_outlive_the_old_vectors(
    migration: Migration, chroma_owner: Any
) -> None:
    """What was added after the swap is no rest of anything when the old vectors go."""
    migration.complete(swap=True)
    collection = chroma_owner.get_collection("photos", embedding_function=None)
    collection.add(ids=["99"], documents=["99"], embeddings=encode(["99"]))
    migration.complete(drop_old=True)
    assert collection.get("99")["documents"] == ["99"]
    assert collection.count() == ROWS + 1


def test_a_name_that_is_taken(migration: Migration, chroma_owner: Any) -> None:
    """A collection that bears the name of the old vectors is left alone."""
    chroma_owner.create_collection("photos__vector_old")
    with pytest.raises(StoreError, match="already a collection 'photos__vector_old'"):
        migration.complete(swap=True)


def test_the_next_model_after_a_swap(migration: Migration, chroma_owner: Any, url: str) -> None:
    """Once the old vectors are gone, another migration begins at the same address."""
    migration.complete(swap=True, drop_old=True)
    later = Migration(connect(url, input="document"), encode_later)
    later.start(pairs=20, method="ridge", serving="aligned")
    assert [*later.backfill(throttle=False)][-1].fraction == 1
    later.complete(swap=True, drop_old=True)
    assert names(chroma_owner) == {"photos"}
    assert nearest(chroma_owner, encode_later(["8"])[0]) == "8"
