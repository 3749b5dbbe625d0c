"""Cut-over under the same name on Qdrant: an alias that is switched to a copy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qdrant_world import models, qdrant_client
from test_qdrant_migration import OLD, encode, old

from fastfill.adapters.qdrant.connection import QdrantConnection
from fastfill.errors import MigrationError, StoreError
from fastfill.gallery import Gallery
from fastfill.migrate import Migration
from fastfill.wiring import connect, open_store

pytest.importorskip("qdrant_edge", reason="qdrant-edge-py is not installed")
ROOT = Path(__file__).parents[2]
ROWS = 60
MIX = np.random.default_rng(9).standard_normal((OLD, 4)).astype(np.float32)


class KilledError(Exception):
    """Stands for the end of the process."""


def encode_later(texts: Any) -> Any:
    """The model after it."""
    return np.tanh(np.array([old(int(t.split()[1])) for t in texts], dtype=np.float32) @ MIX)


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
    assert [*opened.backfill(throttle=False)][-1].fraction == 1
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


def _during(monkeypatch: pytest.MonkeyPatch, when: str, act: Callable[[], None]) -> None:
    """Do something once, just before the alias is switched, or just after a method was called."""
    ask, done = QdrantConnection.ask, []

    def asked(self: Any, method: str, **options: Any) -> Any:
        switch = method == "update_collection_aliases"
        if switch and when == "before the switch" and not done:
            done.append(method)
            act()
        answer = ask(self, method, **options)
        if method == when and not done:
            done.append(method)
            act()
        return answer

    monkeypatch.setattr(QdrantConnection, "ask", asked)


def test_writes_between_copy_and_switch(
    migration: Migration, owner: Any, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs no new vector is copied again after the switch: none is lost, none comes back."""

    def write() -> None:
        owner.set_payload("photos", {"album": 12}, points=[7])
        owner.delete("photos", [8])

    migration.complete()
    _during(monkeypatch, "before the switch", write)
    migration.complete(swap=True)
    assert owner.retrieve("photos", [7])[0].payload["album"] == 12
    assert owner.retrieve("photos", [8]) == []


def test_a_row_written_between_copy_and_switch(
    migration: Migration, owner: Any, vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that needs a new vector is in the way: the alias is switched back."""
    migration.complete()
    late = point(99, vector, old(99))
    _during(monkeypatch, "before the switch", lambda: owner.upsert("photos", [late]))
    with pytest.raises(MigrationError, match="1 rows have been written"):
        migration.complete(swap=True)
    assert collections(owner) == {"photos_1"}
    assert nearest(owner, vector, old(99)) == 99
    assert [*migration.backfill(throttle=False)][-1].fraction == 1
    migration.complete(swap=True)
    assert nearest(owner, vector, encode(["text 99"])[0]) == 99


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
