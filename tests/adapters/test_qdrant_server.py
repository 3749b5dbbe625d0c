"""`qdrant://` over the network: Qdrant's engine behind a process that speaks its protocol.

No Qdrant server can be installed from a package index, but its engine can. What an operation does
to points, vectors and payloads here is what a server does with one shard; a cluster is for those
who have one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from qdrant_world import fill, models
from test_qdrant_migration import OLD, encode, items

from fastfill.errors import StoreError
from fastfill.features import Distance
from fastfill.gallery import Gallery, Id, QuickSweeps, Store, load_state
from fastfill.migrate import Migration
from fastfill.testing import StoreSuite
from fastfill.wiring import open_store

pytest.importorskip("qdrant_edge", reason="qdrant-edge-py is not installed")


@pytest.fixture
def server(qdrant_server: str) -> str:
    """HOST:PORT."""
    return qdrant_server


@pytest.fixture
def owner(qdrant_owner: Any) -> Any:
    """The owner's client on an empty server."""
    return qdrant_owner


class TestQdrantServer(StoreSuite):
    """The suite over the network."""

    @pytest.fixture(autouse=True)
    def _server(self, server: str, owner: Any) -> Iterator[None]:
        self.url, self.owner = f"qdrant://{server}#photos.vector", owner
        self.opened: list[Store] = []
        yield
        for store in self.opened:
            store.close()

    def key(self, number: int) -> Id:
        """A number."""
        return number

    def make(self, values: Mapping[str, Sequence[Any]], distance: Distance | None = None) -> Store:
        """A store over a collection made by its owner."""
        fill(self.owner, values, vector="vector")
        self.opened.append(open_store(self.url))
        return self.opened[-1]


@pytest.mark.parametrize("vector", ["", "image"])
def test_a_migration_over_the_network(server: str, owner: Any, vector: str) -> None:
    """From start to completion with the owner's client at work, and the index looked after."""
    fill(owner, items(80), vector=vector, dim=OLD, distance="COSINE")
    store = open_store(f"qdrant://{server}#photos{'.' * bool(vector)}{vector}")
    migration = Migration(Gallery(store, input="text"), encode)
    migration.start(pairs=40, method="ridge")
    owner.set_payload("photos", {"text": "text 900"}, points=[3])
    assert [*migration.backfill(throttle=False, workers=2)][-1].fraction == 1.0
    assert migration.verify().good
    assert migration.index_health().recall == 1.0
    migration.complete(drop_old=True)
    assert store.search(encode(["text 900"])[0], 1, side="new", distance="cosine").ids == [3]
    store.close()


def test_points_that_were_written_as_a_whole_are_found_by_a_filter(server: str, owner: Any) -> None:
    """New ones and replaced ones, but not those that wait; vectors edited in place by a sweep."""
    fill(owner, items(60), vector="image", dim=OLD, distance="COSINE")
    owner.upsert("photos", [models.PointStruct(id=70, vector={}, payload={"text": "text 70"})])
    store = open_store(f"qdrant://{server}#photos.image")
    migration = Migration(Gallery(store, input="text"), encode)
    migration.start(pairs=40, method="ridge")
    state = load_state(store)
    assert state is not None
    assert isinstance(store, QuickSweeps)
    assert store.can_sweep_quickly()
    vector = items(1)["vector"][0]
    for key in (3, 80):
        point = models.PointStruct(id=key, vector={"image": vector}, payload={"text": "text 3"})
        owner.upsert("photos", [point])
    owner.update_vectors("photos", [models.PointVectors(id=5, vector={"image": vector})])
    found = [key for rows in store.quick_sweep(state.settled, batch=7) for key in rows.ids]
    assert found == [3, 80]
    every = store.unsettled(state.settled, batch=7, changed=True)
    assert sorted(key for rows in every for key in rows.ids) == [3, 5, 80]
    store.close()


def test_a_second_collection_is_swept_as_a_whole(server: str, owner: Any) -> None:
    """The owner's points hold nothing there that goes when they are written anew."""
    fill(owner, items(50), dim=OLD)
    store = open_store(f"qdrant://{server}#photos")
    Migration(Gallery(store, input="text"), encode).start(pairs=40, method="ridge")
    assert isinstance(store, QuickSweeps)
    assert not store.can_sweep_quickly()
    store.close()


def test_a_wrong_key(server: str, owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the environment is sent; a refusal tells where to put it, and does not show it."""
    monkeypatch.setenv("QDRANT_API_KEY", "wrong")
    with pytest.warns(UserWarning, match="insecure"), pytest.raises(StoreError) as error:
        open_store(f"qdrant://{server}#photos")
    assert "Put it into QDRANT_API_KEY" in str(error.value)
    assert "wrong" not in str(error.value).replace("wants another", "")


def test_what_the_server_says_is_passed_on(server: str, owner: Any) -> None:
    """An error of the server is one sentence of ours."""
    fill(owner, items(3), dim=OLD)
    store = open_store(f"qdrant://{server}#photos")
    taken = models.VectorParams(size=3, distance=models.Distance.DOT)
    owner.create_collection("photos__vector_new", taken)
    Gallery(store, input="text")
    with pytest.raises(StoreError, match=f"qdrant://{server}: .*photos__vector_new"):
        store.expand(8)
    store.close()


@pytest.mark.parametrize("vector", ["", "image"])
def test_the_server_counts_what_the_ledger_says(server: str, owner: Any, vector: str) -> None:
    """An estimate agrees with the count, but for points deleted since the last sweep."""
    fill(owner, items(80), vector=vector, dim=OLD, distance="COSINE")
    store = open_store(f"qdrant://{server}#photos{'.' * bool(vector)}{vector}")
    migration = Migration(Gallery(store, input="text"), encode)
    migration.start(pairs=40, method="ridge")
    assert store.estimate() == store.counts()
    owner.delete("photos", [3])
    estimate = store.estimate()
    assert estimate is not None
    assert sum(estimate.values()) == 80
    assert sum(store.counts().values()) == 79
    store.close()
