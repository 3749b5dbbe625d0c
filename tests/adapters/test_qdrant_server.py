"""`qdrant://` over the network: Qdrant's engine behind a process that speaks its protocol.

No Qdrant server can be installed from a package index, but its engine can. What an operation does
to points, vectors and payloads here is what a server does with one shard; a cluster is for those
who have one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qdrant_world import fill, models, qdrant_client
from test_qdrant_migration import NEW, OLD, encode, items, old

from fastfill.adapters.qdrant.collection import DISTANCE_OF, QdrantCollection
from fastfill.adapters.qdrant.connection import QdrantConnection
from fastfill.adapters.qdrant.ledger import QdrantLedger
from fastfill.adapters.qdrant.probes import direction, expected, near
from fastfill.errors import StoreError
from fastfill.features import Distance
from fastfill.gallery import Gallery, Id, Marks, QuickSweeps, Settled, Store, load_state
from fastfill.migrate import Migration
from fastfill.testing import StoreSuite
from fastfill.wiring import open_store

pytest.importorskip("qdrant_edge", reason="qdrant-edge-py is not installed")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a process that serves a folder."""
    folder = str(tmp_path_factory.mktemp("qdrant"))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.shared.qdrant_server", folder, "0"],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert process.stdout is not None
    yield f"127.0.0.1:{process.stdout.readline().strip()}"
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def owner(server: str) -> Iterator[Any]:
    """The owner's client on an empty server."""
    host, port = server.split(":")
    client = qdrant_client.QdrantClient(host=host, port=int(port), check_compatibility=False)
    yield client
    for each in client.get_collections().collections:
        client.delete_collection(each.name)
    client.close()


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


# --- scores in place of vectors ------------------------------------------------------------------

DISTANCES = ("COSINE", "DOT", "EUCLID")


def migrated(server: str, owner: Any, count: int, distance: str = "COSINE") -> tuple[Store, Any]:
    """A store whose rows are aligned, some of them new, and its state's idea of what is right."""
    fill(owner, items(count), vector="image", dim=OLD, distance=distance)
    owner.upsert("photos", [models.PointStruct(id=900, vector={}, payload={"text": "text 900"})])
    store = open_store(f"qdrant://{server}#photos.image")
    migration = Migration(Gallery(store, input="text"), encode)
    migration.start(pairs=40, method="ridge")
    for _ in migration.backfill(throttle=False, rows=20, batch=10, refit=None):
        pass
    state = load_state(store)
    assert state is not None
    return store, state.settled


def swept(store: Store, settled: Settled) -> list[Id]:
    """What a sweep finds."""
    found = store.unsettled(settled, batch=13, changed=True)
    return sorted(int(key) for rows in found for key in rows.ids)


def swept_by_vectors(server: str, settled: Settled, patch: pytest.MonkeyPatch) -> list[Id]:
    """What the slow, obvious sweep finds, which reads both vectors of each point."""
    with patch.context() as without, closing(open_store(f"qdrant://{server}#photos.image")) as slow:
        without.setattr(QdrantCollection, "can_score", lambda _: False)
        Gallery(slow, input="text")
        return swept(slow, settled)


@pytest.fixture
def asked_vectors(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests for vectors, as they are sent."""
    sent: list[str] = []
    ask = QdrantConnection.ask

    def listen(self: QdrantConnection, method: str, **options: Any) -> Any:
        if options.get("with_vectors"):
            sent.append(method)
        return ask(self, method, **options)

    monkeypatch.setattr(QdrantConnection, "ask", listen)
    return sent


def edit(owner: Any, kind: str, key: int) -> None:
    """What an application does to one point in place."""
    other = {"old": {"image": old(key + 7)}, "new": {"image_new": encode([f"text {key + 7}"])[0]}}
    if kind in other:
        owner.update_vectors("photos", [models.PointVectors(id=key, vector=other[kind])])
    elif kind == "input":
        owner.set_payload("photos", {"text": f"text {key + 7}"}, points=[key])
    else:
        owner.delete_vectors("photos", [kind.removeprefix("no ")], points=[key])


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_sweep_asks_for_no_vectors_and_finds_every_edit(
    server: str,
    owner: Any,
    distance: str,
    asked_vectors: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By their scores the same points are found as by their vectors, and only those are read."""
    store, settled = migrated(server, owner, 60, distance)
    asked_vectors.clear()
    assert swept(store, settled) == []
    assert asked_vectors == []
    kinds = ("old", "new", "input", "no image", "no image_new")
    edits = {key: kinds[key % len(kinds)] for key in range(3, 60, 4)}
    for key, kind in edits.items():
        edit(owner, kind, key)
    assert swept(store, settled) == list(edits)
    assert swept_by_vectors(server, settled, monkeypatch) == list(edits)
    store.close()


def test_a_write_compares_scores(server: str, owner: Any, asked_vectors: list[str]) -> None:
    """A point whose vector or input has changed since it was read is not written."""
    store, settled = migrated(server, owner, 60)
    rows = store.read([1, 2, 3, 4])
    asked_vectors.clear()
    edit(owner, "old", 1)
    edit(owner, "input", 2)
    edit(owner, "no image", 3)
    assert store.write(rows, np.ones((4, NEW), np.float32), Marks("new", settled.new)) == 1
    assert asked_vectors == []
    assert swept(store, settled) == [1, 2, 3]
    store.close()


@pytest.mark.parametrize("kind", ["old", "new"])
@pytest.mark.parametrize("place", ["put", "put_vectors", "finish"])
def test_an_edit_during_a_write_is_found(
    server: str, owner: Any, monkeypatch: pytest.MonkeyPatch, place: str, kind: str
) -> None:
    """Whenever the application comes in between, the row is not taken for right."""
    store, settled = migrated(server, owner, 60)
    rows = store.read([1, 2])
    home = QdrantCollection if place == "put_vectors" else QdrantLedger
    unmoved = getattr(home, place)

    def edited_before(self: Any, *arguments: Any) -> Any:
        edit(owner, kind, 1)
        return unmoved(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(home, place, edited_before)
        store.write(rows, np.ones((2, NEW), np.float32), Marks("new", settled.new))
    overwritten = kind == "new" and place != "finish"  # before ours: as if it had never been
    assert swept(store, settled) == ([] if overwritten else [1])
    assert swept_by_vectors(server, settled, monkeypatch) == ([] if overwritten else [1])
    store.close()


def test_a_vector_that_changes_while_it_is_read_has_no_score(
    server: str, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vector that went and came back again is not taken for the one that was read."""
    store, settled = migrated(server, owner, 60)
    points = QdrantCollection.points

    def edited_before(self: QdrantCollection, *arguments: Any, **options: Any) -> Any:
        if options.get("vectors"):
            edit(owner, "old", 1)
        return points(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(QdrantCollection, "points", edited_before)
        rows = store.read([1, 2])
    np.testing.assert_allclose(rows.old[0], np.array(old(8)) / np.linalg.norm(old(8)), rtol=1e-5)
    owner.update_vectors("photos", [models.PointVectors(id=1, vector={"image": old(1)})])
    assert store.write(rows, np.ones((2, NEW), np.float32), Marks("new", settled.new)) == 1
    assert swept(store, settled) == []
    store.close()


def test_a_ledger_without_scores_is_believed(
    server: str, owner: Any, asked_vectors: list[str]
) -> None:
    """Rows that were written before there were any are compared by their vectors."""
    store, settled = migrated(server, owner, 60)
    owner.delete_payload(
        "photos__image_new__fastfill", keys=["ff_image_probe"], points=models.Filter()
    )
    asked_vectors.clear()
    assert swept(store, settled) == []
    assert asked_vectors
    edit(owner, "old", 1)
    assert swept(store, settled) == [1]
    rows = store.read([1, 2], old=False)
    assert store.write(rows, np.ones((2, NEW), np.float32), Marks("new", settled.new)) == 2
    assert swept(store, settled) == [1]  # its fingerprint is that of the vector before
    store.close()


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("dim", [3, 100, 1024])
def test_a_score_is_what_the_server_says(owner: Any, distance: str, dim: int) -> None:
    """Computed here, it is off by no more than is allowed, for short vectors and for long ones."""
    params = models.VectorParams(size=dim, distance=models.Distance[distance])
    owner.create_collection("scored", params)
    rng = np.random.default_rng(dim)
    vectors = rng.standard_normal((90, dim)) * np.geomspace(1e-2, 1e3, 90)[:, None]
    vectors[0] = 0
    float32 = vectors.astype(np.float32)
    points = [models.PointStruct(id=i, vector=v.tolist()) for i, v in enumerate(float32)]
    owner.upsert("scored", points, wait=True)
    found = owner.query_points(
        "scored",
        direction(dim).tolist(),
        limit=90,
        search_params=models.SearchParams(exact=True),
    )
    said = {point.id: point.score for point in found.points}
    kind: Distance = DISTANCE_OF[str(models.Distance[distance].value)]
    for key, (score, off) in enumerate(expected(float32, kind)):
        assert near(said[key], score, off), (key, said[key], score, off)
    others = [score for score, _ in expected(float32[::-1].copy(), kind)]
    pairs = zip(expected(float32, kind), others, strict=True)
    assert not any(near(said[key], other, off) for key, ((_, off), other) in enumerate(pairs))
    owner.delete_collection("scored")


def test_an_operator_may_forbid_exact_searches(
    server: str, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then vectors are read as before."""
    fill(owner, items(3), vector="image", dim=OLD)
    store = open_store(f"qdrant://{server}#photos.image")
    collection = store._qdrant.owner  # type: ignore[attr-defined]
    assert collection.can_score()
    told = collection.info()
    for strict, can in (
        (models.StrictModeConfigOutput(enabled=True, search_allow_exact=False), False),
        (models.StrictModeConfigOutput(enabled=False, search_allow_exact=False), True),
        (models.StrictModeConfigOutput(enabled=True, max_query_limit=100), False),
        (models.StrictModeConfigOutput(enabled=True), True),
    ):
        config = told.config.model_copy(update={"strict_mode_config": strict})
        answer = told.model_copy(update={"config": config})
        monkeypatch.setattr(collection, "info", lambda answer=answer: answer)
        assert collection.can_score() is can
    store.close()
