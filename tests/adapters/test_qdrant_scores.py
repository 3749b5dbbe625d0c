"""Vectors of Qdrant that are compared by their scores, without being sent."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import httpx
import numpy as np
import pytest
from qdrant_world import fill, models
from test_qdrant_migration import NEW, OLD, encode, items, old

from fastfill.adapters.qdrant.collection import DISTANCE_OF, QdrantCollection
from fastfill.adapters.qdrant.ledger import QdrantLedger
from fastfill.adapters.qdrant.probes import direction, expected, near
from fastfill.features import Distance
from fastfill.gallery import Gallery, Id, Marks, Settled, Store, load_state
from fastfill.migrate import Migration
from fastfill.wiring import open_store

pytest.importorskip("qdrant_edge", reason="qdrant-edge-py is not installed")
DISTANCES = ("COSINE", "DOT", "EUCLID")


@pytest.fixture
def server(qdrant_server: str) -> str:
    """HOST:PORT."""
    return qdrant_server


@pytest.fixture
def owner(qdrant_owner: Any) -> Any:
    """The owner's client on an empty server."""
    return qdrant_owner


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
    unheard = httpx.Client.send

    def listen(self: httpx.Client, request: httpx.Request, **options: Any) -> Any:
        if request.content and json.loads(request.content).get("with_vector"):
            sent.append(request.url.path)
        return unheard(self, request, **options)

    monkeypatch.setattr(httpx.Client, "send", listen)
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
